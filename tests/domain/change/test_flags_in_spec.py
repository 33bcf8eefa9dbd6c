"""Where flags are written, and what is said when they cannot be known."""

from __future__ import annotations

import pytest

from bot.domain.change.flag_table import newest_table, version_of_image
from bot.domain.change.flags_in_spec import flags_of_template
from tests.domain.change.worlds import container, template

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


def test_among_strangers_no_engine_is_guessed() -> None:
    made = template()
    made["spec"]["containers"] = [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]
    assert "recognised as the engine" in flags_of_template(made).unparsable


@pytest.mark.parametrize(
    ("command", "args"),
    [
        pytest.param(["sh", "-c", "vllm serve m"], None, id="command"),
        pytest.param(["/bin/bash", "-ec", "vllm serve m"], None, id="bash-with-options"),
        pytest.param(None, ["sh", "-c", "vllm serve m"], id="args"),
    ],
)
def test_a_shell_string_says_so(command: list[str] | None, args: list[str] | None) -> None:
    made = {"spec": {"containers": [container() | {"command": command, "args": args}]}}
    assert "which is not taken apart" in flags_of_template(made).unparsable


@pytest.mark.parametrize(
    ("image", "version"),
    [
        pytest.param("vllm/vllm-openai:v0.32.0", "0.32", id="tag"),
        pytest.param("registry.example:5000/vllm:0.11.2-cu128@sha256:abc", "0.11", id="port-suffix-and-digest"),
        pytest.param("registry.example:5000/vllm", "", id="no-tag"),
        pytest.param("vllm/vllm-openai:latest", "", id="latest"),
    ],
)
def test_the_engine_version_is_only_what_the_tag_says(image: str, version: str) -> None:
    assert version_of_image(image) == version


def test_the_table_holds_every_flag_of_the_engines_parser() -> None:
    table = newest_table()
    assert len(table.flags) == 316
    assert table.name_of("--no-enable_chunked_prefill") == "--enable-chunked-prefill"
