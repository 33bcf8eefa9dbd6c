"""Where flags are written, and the message when they are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.flags.flag_table import newest_table, version_of_image
from bot.domain.flags.flags_in_spec import config_maps_named, engine_statuses, flags_of_template
from tests.domain.changes.snapshots import container, template

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("words", "values"),
    [
        pytest.param(["--max-num-seqs=64"], {"--max-num-seqs": "64"}, id="joined"),
        pytest.param(["--max_num_seqs", "64"], {"--max-num-seqs": "64"}, id="underscores"),
        pytest.param(["-tp", "2"], {"--tensor-parallel-size": "2"}, id="short"),
        pytest.param(["--enforce-eager", "model"], {"--enforce-eager": True}, id="a-switch-takes-no-value"),
        pytest.param(["--no-enable-prefix-caching"], {"--enable-prefix-caching": False}, id="no-form"),
        pytest.param(["--max-num-seqs=1", "--max-num-seqs=2"], {"--max-num-seqs": "2"}, id="last-wins"),
        pytest.param(["--kv-cache-memory=5G"], {"--kv-cache-memory-bytes": "5G"}, id="abbreviation"),
        pytest.param(["--max", "5"], {"--max": "5"}, id="an-ambiguous-abbreviation-stays-what-it-is"),
        pytest.param(["--max-num-seqs=8k"], {"--max-num-seqs": "8k"}, id="human"),
        pytest.param(["--compilation_config.pass_config.x=1"], {"--compilation-config.pass_config.x": "1"}, id="dots"),
        pytest.param(["--made-up", "x"], {"--made-up": "x"}, id="unknown"),
        pytest.param(["-m", "vllm.entrypoints.openai.api_server"], {}, id="pythons-own-option"),
        pytest.param(["--max-num-seqs=$(SEQS)"], {"--max-num-seqs": "$(SEQS)"}, id="unexpanded"),
    ],
)
def test_flags_are_read_as_the_engine_reads_them(words: list[str], values: dict[str, str | bool]) -> None:
    assert flags_of_template(template(*words)).values == values


def test_the_engine_is_found_beside_a_sidecar() -> None:
    made = template()
    made["spec"]["containers"].insert(0, {"name": "proxy", "image": "envoy:v1", "args": ["--max-num-seqs=1"]})
    flags = flags_of_template(made)
    assert (flags.container, flags.container_index, flags.values["--max-num-seqs"]) == ("vllm", 1, "64")


ENGINE = ("vllm", "serve", "m")
SCRIPT = ("sh", "-c", "ulimit -n 9; exec vllm serve m --max-num-seqs 64")
MODULE = ("python3", "-m", "vllm.entrypoints.openai.api_server")
LMCACHE = {"name": "cache", "image": "lmcache/vllm-openai:v0.3", "command": ["lmcache_server"]}


@pytest.mark.parametrize(
    ("sidecar", "command"),
    [
        pytest.param({"name": "auth", "image": "oauth2-proxy:v7", "args": ["--skip-auth-route=/openai"]}, ENGINE,
                     id="openai-in-its-args"),
        pytest.param({"name": "vllm-metrics-proxy", "image": "nginx:1.27"}, ENGINE, id="named-after-the-engine"),
        pytest.param(LMCACHE, ENGINE, id="image-named-after-the-engine"),
        pytest.param(LMCACHE, SCRIPT, id="engine-in-a-script"),
        pytest.param(LMCACHE, MODULE, id="engine-as-a-module"),
        pytest.param(LMCACHE, ("python3", "/app/api_server.py"), id="engine-as-a-file"),
        pytest.param(LMCACHE, (), id="engine-asks-for-a-gpu"),
    ],
)  # fmt: skip
def test_a_sidecar_that_mentions_the_engine_is_not_taken_for_it(
    sidecar: dict[str, Any], command: Sequence[str]
) -> None:
    engine = container("--max-num-seqs=64", command=list(command))
    assert flags_of_template({"spec": {"containers": [sidecar, engine]}}).container == "vllm"


def test_an_engine_that_only_its_image_names_is_found() -> None:
    engine = {"name": "server", "image": "vllm/vllm-openai:v0.32.0", "args": ["--max-num-seqs=64"]}
    proxy = {"name": "auth", "image": "oauth2-proxy:v7", "args": ["--skip-auth-route=/openai"]}
    assert flags_of_template({"spec": {"containers": [proxy, engine]}}).container == "server"


def test_among_strangers_the_only_one_with_an_accelerator_is_the_engine() -> None:
    """A service mesh puts its proxy into the pod, beside the only container of the template."""
    asks = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    engine = {"name": "kserve-container", "image": "kserve/huggingfaceserver:v0.15.2", "args": ["--max-num-seqs=64"]}
    proxy = {"name": "istio-proxy", "image": "istio/proxyv2:1.29"}
    assert flags_of_template({"spec": {"containers": [proxy, engine | asks]}}).values == {"--max-num-seqs": "64"}
    assert flags_of_template({"spec": {"containers": [proxy | asks, engine | asks]}}).unparsable
    gateway = {"name": "openai-gateway", "image": "acme/gateway:1", "args": ["--port=8080"]}
    assert flags_of_template({"spec": {"containers": [gateway, engine | asks]}}).container == "kserve-container"
    unnamed = {"name": "server", "image": "vllm/vllm-openai:v0.32.0", "args": ["m"]}
    assert flags_of_template({"spec": {"containers": [proxy, unnamed]}}).container == "server", "it runs on the CPU"


def test_among_strangers_no_engine_is_guessed() -> None:
    made = template()
    made["spec"]["containers"] = [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]
    assert "recognised as the engine" in flags_of_template(made).unparsable


def test_the_engines_status_is_found_beside_those_of_sidecars() -> None:
    made = template()
    made["spec"]["containers"].insert(0, {"name": "proxy", "image": "envoy:v1"})
    made["status"] = {
        "containerStatuses": [{"name": "proxy"}, {"name": "vllm"}], "initContainerStatuses": [{"name": "native"}],
    }  # fmt: skip
    assert engine_statuses(made) == [{"name": "vllm"}]


def test_among_strangers_every_status_may_be_the_engines() -> None:
    strangers = [{"name": "a"}, {"name": "b"}]
    made = {"spec": {"containers": strangers}, "status": {"containerStatuses": strangers}}
    assert engine_statuses(made) == strangers
    assert engine_statuses({"spec": {"containers": strangers}}) == []


@pytest.mark.parametrize(
    ("command", "args", "values"),
    [
        pytest.param(["sh", "-c", "vllm serve m --seed 1"], None, {"--seed": "1"}, id="command"),
        pytest.param(["/bin/bash", "-ec"], ["exec vllm serve m --seed=1"], {"--seed": "1"}, id="script-in-args"),
        pytest.param(None, ["sh", "-c", "vllm serve m -tp 2"], {"--tensor-parallel-size": "2"}, id="args"),
        pytest.param(["sh", "-c", "set -e; vllm serve m --seed 1 | tee /log"], None, {"--seed": "1"}, id="more"),
        pytest.param(["bash", "-euxo", "pipefail", "-c"], ["vllm serve m --seed 1"], {"--seed": "1"}, id="pipefail"),
        pytest.param(["bash", "-ceo", "pipefail", "vllm serve m --seed 1"], None, {"--seed": "1"}, id="c-first"),
        pytest.param(["bash", "-o", "pipefail", "-O", "extglob", "-c", "vllm serve m --seed 1"], None, {"--seed": "1"},
                     id="several-options"),
        pytest.param(["tini", "-g", "--", "bash", "-c", "--", "vllm serve m --seed 1"], None,
                     {"--seed": "1"}, id="init"),
        pytest.param(["sh", "-c", "vllm serve m \\\n  --seed 1 \\\n  -tp 2 # --seed 3\n"], None,
                     {"--seed": "1", "--tensor-parallel-size": "2"}, id="lines-and-comment"),
        pytest.param(["sh", "-c", "vllm serve m --seed '1' --chat-template \"a b\" 2>/dev/null"], None,
                     {"--seed": "1", "--chat-template": "a b"}, id="quotes-and-redirection"),
        pytest.param(["sh", "-c", "vllm serve m $VLLM_ADDITIONAL_ARGS"], None, {"--seed": "7"}, id="split-variable"),
        pytest.param(["sh", "-c", "vllm serve m --seed ${SEED:-3} --port=$PORT"], None,
                     {"--seed": "3", "--port": "8001"}, id="variables"),
        pytest.param(["sh", "-c", 'vllm serve m "$@"', "--"], ["--seed", "1"], {"--seed": "1"}, id="positional"),
        pytest.param(["sh", "-c", "IP=$(hostname -i); vllm serve m --host $IP --seed 1"], None,
                     {"--host": "$IP", "--seed": "1"}, id="unknown-value"),
        pytest.param(["sh", "-c", "vllm serve m --api-key $KEY"], None, {"--api-key": "$KEY"}, id="secret"),
        pytest.param(["sh", "-c", "python3 -m vllm.entrypoints.openai.api_server --model m"], None, {"--model": "m"},
                     id="module"),
        pytest.param(["vllm", "serve", "m"], ["--port=$(PORT)", "--seed", "$$(PORT)"],
                     {"--port": "8001", "--seed": "$(PORT)"}, id="pod-reference"),
        pytest.param(None, ["--port=1"], {"--port": "1", "--seed": "7"}, id="additional-args-of-the-entrypoint"),
        pytest.param(["vllm", "serve", "m"], ["-cc.mode", "3"], {"--compilation-config.mode": "3"}, id="dotted"),
        pytest.param(["sh", "-c", ". /venv/bin/activate; vllm serve m --port=$PORT --seed 1"], None,
                     {"--port": "8001", "--seed": "1"}, id="sourced-beside-a-variable-of-the-container"),
        pytest.param(["sh", "-c", ". /env.sh; vllm serve m --max-num-seqs $SEQS --seed 1"], None,
                     {"--max-num-seqs": "$SEQS", "--seed": "1"}, id="sourced-value"),
        pytest.param(["sh", "-c", 'set -eu; say() { echo "$@"; }; vllm serve m "$@"', "--"], ["--seed", "1"],
                     {"--seed": "1"}, id="positional-after-a-function"),
        pytest.param(["/usr/bin/env", "VLLM_X=1", "numactl", "-l", "vllm", "serve", "m"], ["--seed=1"],
                     {"--seed": "1"}, id="wrapped"),
        pytest.param(["numactl", "--membind=0", "--", "vllm", "serve", "m"], ["--seed=1"], {"--seed": "1"},
                     id="options-of-a-wrapper"),
        pytest.param(None, ["nsys", "profile", "--trace", "cuda", "vllm", "serve", "m", "--port=1"],
                     {"--port": "1", "--seed": "7"}, id="options-of-a-wrapper-in-args"),
        pytest.param(["vllm", "serve"], ["--seed=1", "--", "m", "--seed=2"], {"--seed": "1"}, id="end-of-options"),
        pytest.param(["python3", "-m", "vllm_tgis_adapter"], ["--seed=1"], {"--seed": "1"}, id="wrapping-module"),
        pytest.param(["dumb-init"], ["python3", "-m", "vllm.entrypoints.openai.api_server", "--seed=1"],
                     {"--seed": "1"}, id="wrapped-module-in-args"),
    ],
)  # fmt: skip
def test_flags_are_found_wherever_they_live(
    command: list[str] | None, args: list[str] | None, values: dict[str, str | bool]
) -> None:
    env = [
        {"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 7"},
        {"name": "PORT", "value": "8001"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    made = {"spec": {"containers": [container() | {"command": command, "args": args, "env": env}]}}
    found = flags_of_template(made)
    assert (found.unparsable, found.values) == ("", values)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("vllm serve m $(cat /flags)", "may stand for flags", id="command-substitution"),
        pytest.param("vllm serve m `cat /flags`", "may stand for flags", id="backticks"),
        pytest.param("EXTRA=--seed=1; vllm serve m $EXTRA", "may stand for flags", id="set-by-the-script"),
        pytest.param("vllm serve $KEY", "", id="the-model-may-be-unknown"),
        pytest.param("vllm serve m --enforce-eager $KEY", "may stand for flags", id="behind-a-switch"),
        pytest.param("if true; then vllm serve a; else vllm serve b; fi", "more than one", id="two"),
        pytest.param("/start.sh", "no command", id="none"),
        pytest.param('eval "vllm serve m"', "no command", id="eval"),
        pytest.param(". /config/env.sh; exec vllm serve m $MORE", "$MORE in its", id="sourced"),
        pytest.param("if [ -f /e ]; then source /e; fi; vllm serve m $MORE", "$MORE in its", id="sourced-in-a-block"),
        pytest.param('eval "$(cat /e)"; vllm serve m $MORE', "$MORE in its", id="set-by-eval"),
        pytest.param("export $(cat /e | xargs); vllm serve m $MORE", "$MORE in its", id="exported-from-a-file"),
        pytest.param("EXTRA+=' --seed 2'; vllm serve m $EXTRA", "$EXTRA in its", id="appended"),
        pytest.param(': "${MORE:=--seed 1}"; vllm serve m $MORE', "$MORE in its", id="default-assigned"),
        pytest.param("read -r MORE < /e; vllm serve m $MORE", "$MORE in its", id="read-from-a-file"),
        pytest.param('set -- "$@" --seed 1; exec vllm serve m "$@"', '"$@" in its', id="positional-set"),
        pytest.param('set -- m --seed 1; exec vllm serve "$@"', '"$@" in its', id="positional-set-with-the-model"),
        pytest.param('run() { vllm serve m "$@"; }; run --seed 1', '"$@" in its', id="function"),
        pytest.param('function run {\n vllm serve m "$@"\n}\nrun --seed 1', '"$@" in its', id="function-by-keyword"),
        pytest.param('A=(m --seed 1); vllm serve "${A[@]}"', '"${A[@]}" in its', id="array"),
        pytest.param("vllm serve m --seed '1", "quote that does not end", id="open-quote"),
        pytest.param("vllm serve m --seed 1 <<EOF\nx\nEOF", "here-document", id="here-document"),
    ],
)
def test_what_a_shell_may_make_of_it_is_not_guessed(script: str, reason: str) -> None:
    env = [
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "EXTRA", "value": "--seed 1"},
    ]
    made = {"spec": {"containers": [container() | {"command": ["sh", "-c", script], "args": None, "env": env}]}}
    assert (reason or "nothing") in (flags_of_template(made).unparsable or "nothing")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["/bin/bash", "/scripts/start.sh"], id="script-file"),
        pytest.param(["/entrypoint.sh", "--max-num-seqs=64"], id="entry-point"),
        pytest.param(["python3", "-c", "import vllm"], id="other-program"),
    ],
)
def test_the_flags_of_a_command_that_does_not_name_the_engine_are_not_known(command: list[str]) -> None:
    made = template("--max-num-seqs=64", command=command)
    assert f"its command {command[0]} does not name the engine" in flags_of_template(made).unparsable


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["bash", "/start.sh"], id="shell"),
        pytest.param(["/bin/bash", "-x", "/start.sh", "--max-num-seqs=64"], id="shell-with-options"),
        pytest.param(["/bin/bash", "-o", "pipefail", "/start.sh", "-c", "vllm serve m"], id="shell-that-reads-a-file"),
        pytest.param(["/start.sh", "--max-num-seqs=64"], id="script"),
        pytest.param(["python3", "/app/serve.py"], id="python"),
        pytest.param(["tini", "--", "/start.sh"], id="init"),
        pytest.param([], id="the-image-alone"),
    ],
)
def test_the_flags_behind_a_program_that_the_image_starts_are_not_known(args: list[str]) -> None:
    made = template(command=None)
    made["spec"]["containers"][0]["args"] = args
    assert "so its flags are not known" in flags_of_template(made).unparsable


def test_additional_arguments_that_cannot_be_read_leave_the_flags_unknown() -> None:
    secret = {"name": "VLLM_ADDITIONAL_ARGS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    read = flags_of_template(template("--max-num-seqs=64", command=None, env=[secret]))
    assert "VLLM_ADDITIONAL_ARGS cannot be read" in read.unparsable


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["--model=m", "--max-num-seqs=64"], id="flags"),
        pytest.param(["/models/llama", "--max-num-seqs=64"], id="a-model-by-its-path"),
        pytest.param(["serve", "m", "--max-num-seqs=64"], id="the-engines-own-command"),
        pytest.param(["bash", "-c", "vllm serve m --max-num-seqs=64"], id="script-in-the-template"),
        pytest.param(["vllm", "serve", "m", "--max-num-seqs=64"], id="engine"),
    ],
)
def test_the_flags_of_an_engine_that_the_image_starts_are_known(args: list[str]) -> None:
    read = flags_of_template(template(*args, command=None))
    assert (read.values.get("--max-num-seqs"), read.unparsable) == ("64", "")


def with_config(text: str, *args: str, **mount: str) -> dict[str, Any]:
    made = template("--config=/etc/vllm/config.yaml", *args)
    made["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "vllm-config"}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "c", "mountPath": "/etc/vllm"} | mount]
    return made


def config_map(text: str, key: str = "config.yaml") -> dict[str, Any]:
    return {"metadata": {"name": "vllm-config", "namespace": "serving", "uid": "cm-uid"}, "data": {key: text}}


def test_the_config_file_of_a_config_map_is_read_and_the_command_line_wins_over_it() -> None:
    text = (
        "# flags\nmax-num-seqs: 64  # cap\nseed: '1'\nenforce_eager: true\nno-enable-prefix-caching: true\nx:\n  y: 1\n"
    )
    found = flags_of_template(with_config(text, "--seed=2"), config_maps={"vllm-config": config_map(text)})
    assert found.unparsable == ""
    assert found.values == {
        "--max-num-seqs": "64",
        "--seed": "2",
        "--enforce-eager": True,
        "--enable-prefix-caching": False,
        "--x": "",
        "--config": "/etc/vllm/config.yaml",
    }
    assert config_maps_named(with_config(text)) == {"vllm-config"}


@pytest.mark.parametrize(
    ("maps", "mount", "reason"),
    [
        pytest.param({}, {}, "could not be read", id="not-read"),
        pytest.param({"vllm-config": config_map("a: 1", "other")}, {}, "has no config.yaml", id="no-such-key"),
        pytest.param({"vllm-config": config_map("a: 1")}, {"mountPath": "/etc/vll"}, "not on a volume", id="elsewhere"),
        pytest.param({"vllm-config": config_map("{a: 1}")}, {}, "is not `flag: value`", id="flow"),
    ],
)
def test_a_config_file_that_cannot_be_read_says_so(maps: dict[str, Any], mount: dict[str, str], reason: str) -> None:
    assert reason in flags_of_template(with_config("", **mount), config_maps=maps).unparsable


@pytest.mark.parametrize(
    ("image", "version"),
    [
        pytest.param("vllm/vllm-openai:v0.32.0", "0.32", id="tag"),
        pytest.param("registry.example:5000/vllm:0.11.2-cu128@sha256:abc", "0.11", id="port-suffix-and-digest"),
        pytest.param("registry.example:5000/vllm", "", id="no-tag"),
        pytest.param("vllm/vllm-openai:latest", "", id="latest"),
        pytest.param("lmcache/vllm-openai:v0.3.7", "", id="of-lmcache"),
        pytest.param("ghcr.io/llm-d/llm-d-cuda:v0.3.1", "", id="of-llm-d"),
        pytest.param("nvcr.io/nvidia/vllm:25.09-py3", "", id="a-month"),
        pytest.param("kserve/huggingfaceserver:v0.15.2-gpu", "", id="of-kserve"),
        pytest.param("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.2", "", id="of-red-hat"),
    ],
)
def test_the_engine_version_is_only_what_the_tag_says(image: str, version: str) -> None:
    assert version_of_image(image) == version


def test_the_table_holds_every_flag_of_the_engines_parser() -> None:
    table = newest_table()
    assert len(table.flags) == 316
    assert table.name_of("--no-enable_chunked_prefill") == "--enable-chunked-prefill"
