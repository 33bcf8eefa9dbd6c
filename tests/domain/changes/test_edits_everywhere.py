"""Edits in every place that can hold a setting: what changes, what stays, and an undo without traces."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.domain.changes.plan import Call, LedgerEntry, Plan
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template
from bot.domain.kernel.redaction import MASK
from tests.domain.changes.real_fleets import kueue_groups
from tests.domain.changes.snapshots import (
    CONTEXT,
    declined,
    deployment,
    grade,
    owner,
    planned,
    pod,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast

LLM, CONFIG_MAP = "deploy-uid", "cm-uid"


def made(
    command: list[str] | None, args: list[str] | None, *, config: str | None = None, **fields: Any
) -> ClusterSnapshot:
    """A workload with this command line, and with this text as /etc/vllm/config.yaml."""
    pod_template = template()
    container = pod_template["spec"]["containers"][0]
    container |= {"command": command, "args": args} | fields
    for name in [name for name in ("command", "args") if container[name] is None]:
        del container[name]
    seen = snapshot(workload=deployment(pod_template))
    if config is not None:
        pod_template["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "vllm-config"}}]
        container["volumeMounts"] = [{"name": "c", "mountPath": "/etc/vllm"}]
    held = {"metadata": {"name": "vllm-config", "namespace": "serving", "uid": CONFIG_MAP}}
    maps = {"vllm-config": held | {"data": {"config.yaml": config or "", "seqs": "64\n", "other": "x"}}}
    # Nothing to take a replica out of rotation with: the rollout is the one patch that these tests are about.
    return snapshot(workload=seen.workload, config_maps=maps, services=())


@dataclass(frozen=True)
class Objects:
    """The workload and its ConfigMap, as calls change them."""

    by_uid: dict[str, Obj]

    @staticmethod
    def of(seen: ClusterSnapshot) -> Objects:
        return Objects(copy.deepcopy({LLM: seen.workload or {}, CONFIG_MAP: seen.config_maps["vllm-config"]}))

    def after(self, *calls: Call) -> Objects:
        held = dict(self.by_uid)
        for call in calls:
            held[call.target.uid] = applied(call.body, held[call.target.uid])
        return Objects(held)

    @property
    def container(self) -> Obj:
        found: Obj = self.by_uid[LLM]["spec"]["template"]["spec"]["containers"][0]
        return found

    @property
    def config(self) -> str:
        return str(self.by_uid[CONFIG_MAP]["data"]["config.yaml"])

    @property
    def flags(self) -> FlagsInSpec:
        maps = {"vllm-config": self.by_uid[CONFIG_MAP]}
        return flags_of_template(self.by_uid[LLM]["spec"]["template"], config_maps=maps)


def change(seen: ClusterSnapshot, *edits: Obj, verb: str = "set_flags") -> Plan:
    return planned(verb, {"edits": list(edits)}, seen)


def seqs(value: Any) -> Obj:
    return {"flag": "--max-num-seqs", "value": value}


@pytest.mark.parametrize(
    ("args", "more", "after"),
    [
        (["--seed", "1", "--", "m"], "", ["--seed", "1", "--max-num-seqs", "6", "--", "m"]),
        (["--", "--max-num-seqs=64"], "", ["--max-num-seqs=6", "--", "--max-num-seqs=64"]),
        (None, "--seed 1 -- m", ["--max-num-seqs", "6"]),
    ],
)
def test_a_new_flag_stands_before_two_dashes(args: list[str] | None, more: str, after: list[str]) -> None:
    """Behind them the engine takes no more flags."""
    seen = made(None, args, env=[{"name": "VLLM_ADDITIONAL_ARGS", "value": more}])
    objects = Objects.of(seen)
    plan = change(seen, seqs(6))
    changed = objects.after(*plan.calls)
    assert (changed.container["args"], changed.flags.values["--max-num-seqs"]) == (after, "6")
    assert changed.after(*plan.calls[-1].undo) == objects


@pytest.mark.parametrize(
    ("script", "edit", "after"),
    [
        pytest.param(
            "vllm serve m --max-num-seqs 64 -tp 2", seqs(6), "vllm serve m --max-num-seqs 6 -tp 2", id="words"
        ),
        pytest.param("exec vllm serve m --max_num_seqs=64", seqs(6), "exec vllm serve m --max_num_seqs=6", id="joined"),
        pytest.param("vllm serve m --max-num-seqs='64'", seqs(6), "vllm serve m --max-num-seqs='6'", id="quotes"),
        pytest.param(
            'set -e\nvllm serve m \\\n  --max-num-seqs "64" \\\n  --seed 1 | tee /log\n',
            seqs(6),
            'set -e\nvllm serve m \\\n  --max-num-seqs "6" \\\n  --seed 1 | tee /log\n',
            id="lines",
        ),
        pytest.param("vllm serve m --seed 1; echo", seqs(6), "vllm serve m --seed 1 --max-num-seqs 6; echo", id="new"),
        pytest.param("vllm serve -- m", seqs(6), "vllm serve --max-num-seqs=6 -- m", id="new-before-two-dashes"),
        pytest.param("vllm serve m # m", seqs(6), "vllm serve m --max-num-seqs=6 # m", id="new-before-a-comment"),
        pytest.param(
            "vllm serve m \\\n  --max-num-seqs 64 \\\n  --seed 1",
            seqs(None),
            "vllm serve m \\\n  --seed 1",
            id="removed",
        ),
        pytest.param(
            "vllm serve m --seed 1",
            {"flag": "--override-generation-config", "value": '{"max_new_tokens": 5}'},
            "vllm serve m --seed 1 --override-generation-config '{\"max_new_tokens\": 5}'",
            id="json-is-quoted",
        ),
        pytest.param("vllm serve m --max-num-seqs $SEQS", seqs(6), "vllm serve m --max-num-seqs $SEQS", id="variable"),
        pytest.param(
            "echo $SEQS; vllm serve m --max-num-seqs=$SEQS",
            seqs(6),
            "echo $SEQS; vllm serve m --max-num-seqs=6",
            id="a-variable-with-other-uses-keeps-its-value",
        ),
        pytest.param(
            "vllm serve m --max-num-seqs ${SECRET}", seqs(6), "vllm serve m --max-num-seqs 6", id="out-of-a-secret"
        ),
        pytest.param(
            ': "${MORE:=64}"; vllm serve m --max-num-seqs $MORE',
            seqs(6),
            ': "${MORE:=64}"; vllm serve m --max-num-seqs 6',
            id="set-by-the-script",
        ),
        pytest.param(
            "vllm serve m $VLLM_ADDITIONAL_ARGS",
            {"flag": "--block-size", "value": 32},
            "vllm serve m $VLLM_ADDITIONAL_ARGS",
            id="inside-a-variable",
        ),
    ],
)
def test_a_script_keeps_every_character_but_the_value(script: str, edit: Obj, after: str) -> None:
    env = [
        {"name": "SEQS", "value": "64"},
        {"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 7  --block-size 16"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    seen = made(["sh", "-c", script], None, env=env)
    objects = Objects.of(seen)
    plan = change(seen, edit)
    changed = objects.after(*plan.calls)
    assert changed.container["command"][2] == after
    wanted = None if edit["value"] is None else str(edit["value"])
    assert changed.flags.values.get(edit["flag"]) == wanted
    assert changed.after(*plan.calls[-1].undo) == objects


@pytest.mark.parametrize(
    ("env", "args", "edit", "after"),
    [
        pytest.param(
            [{"name": "SEQS", "value": "64"}],
            ["--max-num-seqs=$(SEQS)"],
            seqs(6),
            [{"name": "SEQS", "value": "6"}],
            id="reference",
        ),
        pytest.param(
            [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 1 --max-num-seqs 64"}],
            None,
            seqs(6),
            [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 1 --max-num-seqs 6"}],
            id="additional-args",
        ),
        pytest.param(
            [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 1 --max-num-seqs 64"}],
            None,
            seqs(None),
            [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 1"}],
            id="removed-from-additional-args",
        ),
        pytest.param(
            [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 1"}],
            None,
            seqs(6),
            [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--seed 1 --max-num-seqs 6"}],
            id="added-to-additional-args",
        ),
    ],
)
def test_a_flag_in_a_variable_is_edited_there(
    env: list[Obj], args: list[str] | None, edit: Obj, after: list[Obj]
) -> None:
    seen = made(None, args, env=env)
    plan = change(seen, edit)
    assert Objects.of(seen).after(*plan.calls).container["env"] == after


CONFIG = "model: m\n# the cap\nmax-num-seqs: 64  # halve it in an incident\nenable_prefix_caching: true\nseed: '1'\n"


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        pytest.param(seqs(6), CONFIG.replace("64", "6"), id="value"),
        pytest.param({"flag": "--seed", "value": 5}, CONFIG.replace("'1'", "'5'"), id="quotes"),
        pytest.param(seqs(None), CONFIG.replace("max-num-seqs: 64  # halve it in an incident\n", ""), id="removed"),
        pytest.param({"flag": "--watermark", "value": 0.2}, CONFIG + "watermark: 0.2\n", id="new"),
        pytest.param(
            {"flag": "--enable-prefix-caching", "value": False},
            CONFIG.replace("enable_prefix", "no_enable_prefix"),
            id="switch-off",
        ),
    ],
)
def test_the_config_map_is_patched_first_and_an_annotation_rolls_the_pods(edit: Obj, after: str) -> None:
    seen = made(["vllm", "serve"], ["--config", "/etc/vllm/config.yaml"], config=CONFIG)
    objects, plan = Objects.of(seen), change(seen, edit)
    assert [call.target.kind for call in plan.calls] == ["ConfigMap", "Deployment"]
    changed = objects.after(*plan.calls)
    assert changed.config == after
    assert changed.by_uid[LLM]["spec"]["template"]["metadata"]["annotations"]["incident-bot/config"]
    assert changed.container == objects.container
    assert [d.text.split(" ")[0] for d in plan.calls[0].differences] == [edit["flag"]]
    assert changed.after(*plan.calls[1].undo) == objects


def test_the_undo_puts_the_config_map_back_before_the_pods_roll() -> None:
    seen = made(["vllm", "serve"], ["--config", "/etc/vllm/config.yaml"], config=CONFIG)
    plan = change(seen, seqs(6))
    changed = Objects.of(seen).after(*plan.calls)
    ledger = tuple(
        LedgerEntry(
            call_id=f"INC-42/R1/{number}", state="s", verb="set_flags", title=call.title, target=call.target,
            undo=call.undo, applied_at=1.0,
        )
        for number, call in enumerate(plan.calls)
    )  # fmt: skip
    maps = {"vllm-config": changed.by_uid[CONFIG_MAP]}
    held = snapshot(workload=changed.by_uid[LLM], config_maps=maps, services=())
    context = CONTEXT.__class__(incident_id="INC-42", ledger=ledger)
    back = planned("undo", {"of": "all"}, held, context)
    assert [call.target.kind for call in back.calls] == ["ConfigMap", "Deployment"]
    assert changed.after(*back.calls) == Objects.of(seen)


def test_a_value_out_of_a_config_map_is_edited_in_the_config_map() -> None:
    env = [{"name": "SEQS", "valueFrom": {"configMapKeyRef": {"name": "vllm-config", "key": "seqs"}}}]
    seen = made(["vllm", "serve", "m"], ["--max-num-seqs=$(SEQS)"], env=env)
    changed = Objects.of(seen).after(*change(seen, seqs(6)).calls)
    assert changed.by_uid[CONFIG_MAP]["data"]["seqs"] == "6\n"


def test_a_canary_leaves_the_shared_config_map_alone() -> None:
    seen = made(["vllm", "serve"], ["--config", "/etc/vllm/config.yaml"], config=CONFIG)
    (call,) = change(seen, seqs(6), verb="canary").calls
    canary = call.body["spec"]["template"]
    assert canary["spec"]["containers"][0]["args"] == ["--config", "/etc/vllm/config.yaml", "--max-num-seqs", "6"]
    assert flags_of_template(canary, config_maps=seen.config_maps).values["--max-num-seqs"] == "6"
    assert "running replicas read too" in declined("canary", {"edits": [seqs(None)]}, seen).reason


SHARED_SCRIPT = "exec vllm serve m --max-num-seqs $SEQS --max-model-len 2048"


def with_more_flags_in_the_value() -> ClusterSnapshot:
    env = [{"name": "SEQS", "valueFrom": {"configMapKeyRef": {"name": "vllm-config", "key": "seqs"}}}]
    seen = made(["sh", "-c", SHARED_SCRIPT], None, env=env)
    seen.config_maps["vllm-config"]["data"]["seqs"] = "64 --enable-prefix-caching"
    return seen


def test_a_canary_overrides_a_value_whose_config_map_holds_more_flags() -> None:
    seen = with_more_flags_in_the_value()
    (call,) = change(seen, seqs(6), verb="canary").calls
    canary = call.body["spec"]["template"]
    assert canary["spec"]["containers"][0]["command"] == ["sh", "-c", f"{SHARED_SCRIPT} --max-num-seqs 6"]
    flags = flags_of_template(canary, config_maps=seen.config_maps).values
    assert (flags["--max-num-seqs"], flags["--enable-prefix-caching"]) == ("6", True)


def test_a_canary_does_not_remove_a_value_from_a_shared_config_map() -> None:
    reason = declined("canary", {"edits": [seqs(None)]}, with_more_flags_in_the_value()).reason
    assert "running replicas read too" in reason


def other_pod(*, labels: Obj | None = None, namespace: str = "serving", phase: str = "Running", **spec: Any) -> Obj:
    """A pod of Deployment chat."""
    other = pod(9)
    other["metadata"] |= {
        "namespace": namespace,
        "labels": labels or {"app": "chat", "pod-template-hash": "5d8f"},
        "ownerReferences": owner("ReplicaSet", "chat-5d8f", "chat-rs"),
    }
    other["spec"] |= spec
    other["status"]["phase"] = phase
    return other


def sharing(seen: ClusterSnapshot, other: Obj) -> ClusterSnapshot:
    return replace(seen, all_pods=(*seen.all_pods, other))


FROM_MAP = [{"configMapRef": {"name": "vllm-config"}}]
KEY_OF_MAP = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "vllm-config", "key": "seqs"}}}]
VOLUME = [{"name": "c", "configMap": {"name": "vllm-config"}}]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [{"name": "a", "envFrom": FROM_MAP}]}, id="all-variables"),
        pytest.param({"containers": [{"name": "a"}, {"name": "b", "env": KEY_OF_MAP}]}, id="one-variable"),
        pytest.param({"initContainers": [{"name": "a", "env": KEY_OF_MAP}]}, id="init-container"),
        pytest.param({"volumes": VOLUME}, id="volume"),
        pytest.param({"volumes": [{"name": "c", "projected": {"sources": VOLUME}}]}, id="projected-volume"),
    ],
)
def test_a_config_map_that_another_workload_reads_is_left_alone(spec: Obj) -> None:
    seen = made(["vllm", "serve", "m"], ["--max-num-seqs=$(X)"], env=KEY_OF_MAP)
    plan = change(sharing(seen, other_pod(**spec)), seqs(6))
    assert [call.target.kind for call in plan.calls] == ["Deployment"]
    assert Objects.of(seen).after(*plan.calls).container["args"] == ["--max-num-seqs=6"]
    assert (grade(plan, "config_map"), "Deployment chat" in weighed(plan, "config_map")) == ("note", True)


def test_where_only_the_config_map_can_hold_an_edit_its_other_readers_are_a_warning() -> None:
    seen = made(["vllm", "serve"], ["--config", "/etc/vllm/config.yaml"], config=CONFIG)
    plan = change(sharing(seen, other_pod(volumes=VOLUME)), seqs(None))
    assert [call.target.kind for call in plan.calls] == ["ConfigMap", "Deployment"]
    assert (grade(plan, "config_map"), "Deployment chat" in weighed(plan, "config_map")) == ("warning", True)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(other_pod(), id="reads-none"),
        pytest.param(other_pod(volumes=VOLUME, labels={"app": "llm"}), id="a-new-pod-of-the-workload"),
        pytest.param(other_pod(volumes=VOLUME, namespace="chat"), id="in-another-namespace"),
        pytest.param(other_pod(volumes=VOLUME, phase="Succeeded"), id="ended"),
    ],
)
def test_a_config_map_that_no_other_workload_reads_is_edited(other: Obj) -> None:
    seen = made(["vllm", "serve", "m"], ["--max-num-seqs=$(X)"], env=KEY_OF_MAP)
    plan = change(sharing(seen, other), seqs(6))
    assert ([call.target.kind for call in plan.calls], grade(plan, "config_map")) == (
        ["ConfigMap", "Deployment"],
        "note",
    )


def test_that_the_other_readers_of_a_config_map_are_unknown_is_shown() -> None:
    seen = made(["vllm", "serve", "m"], ["--max-num-seqs=$(X)"], env=KEY_OF_MAP)
    plan = change(replace(seen, unreadable={"all_pods": "403 forbidden"}), seqs(6))
    assert "403 forbidden" in weighed(plan, "config_map")


@pytest.mark.parametrize(
    ("config_map", "reason"),
    [
        pytest.param({"immutable": True}, "is immutable", id="immutable"),
        pytest.param(
            {
                "metadata": {
                    "name": "vllm-config",
                    "uid": CONFIG_MAP,
                    "labels": {"kustomize.toolkit.fluxcd.io/name": "serving"},
                }
            },
            "owns ConfigMap vllm-config",
            id="owned",
        ),
    ],
)
def test_a_config_map_that_cannot_be_kept_edited_is_refused(config_map: Obj, reason: str) -> None:
    seen = made(["vllm", "serve"], ["--config", "/etc/vllm/config.yaml"], config=CONFIG)
    seen.config_maps["vllm-config"].update(config_map)
    result = declined("set_flags", {"edits": [seqs(6)]}, seen)
    assert reason in result.reason
    assert result.owners_edit is None  # the file of the workload has no such flag


def test_a_config_map_of_a_helm_release_is_edited_and_its_lines_are_to_commit() -> None:
    seen = made(["vllm", "serve"], ["--config", "/etc/vllm/config.yaml"], config=CONFIG)
    seen.config_maps["vllm-config"]["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    plan = change(seen, seqs(6))
    assert (grade(plan, "owner"), grade(plan, "config_map_owner")) == ("fine", "note")
    assert "# ConfigMap vllm-config: put it into the values of" in plan.commit
    assert "# --max-num-seqs 64 → 6" in plan.commit


def test_flags_variables_and_the_image_change_in_one_plan_line_by_line() -> None:
    env = [{"name": "HF_TOKEN", "value": "hf_abcdefghijk"}, {"name": "OLD", "value": "1"}]
    seen = made(["vllm", "serve", "m"], ["--max-num-seqs=64", "--seed=1"], env=env)
    plan = change(
        seen,
        seqs(6),
        {"flag": "--seed", "value": None},
        {"env": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
        {"env": "OLD", "value": None},
        {"env": "HF_TOKEN", "value": "hf_zyxwvutsrq"},
        {"image": "vllm/vllm-openai:v0.32.1"},
    )
    (call,) = plan.calls
    assert [line.text for line in call.differences] == [
        "image vllm/vllm-openai:v0.32.0 → vllm/vllm-openai:v0.32.1",
        "env VLLM_LOGGING_LEVEL (not set) → DEBUG",
        "env OLD 1 → (not set)",
        f"env HF_TOKEN {MASK} → {MASK}",
        "--max-num-seqs 64 → 6",
        "--seed 1 → (not set)",
    ]
    objects = Objects.of(seen)
    changed = objects.after(call)
    assert changed.container["args"] == ["--max-num-seqs=6"]
    assert changed.container["env"] == [
        {"name": "HF_TOKEN", "value": "hf_zyxwvutsrq"},
        {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
    ]
    assert "hf_z" not in f"{plan.title}{plan.choices}{call.title}"
    assert changed.after(*call.undo) == objects


def test_the_last_variable_takes_its_list_with_it() -> None:
    seen = made(["vllm", "serve", "m"], ["--seed=1"], env=[{"name": "OLD", "value": "1"}])
    (call,) = change(seen, {"env": "OLD", "value": None}).calls
    changed = Objects.of(seen).after(call)
    assert "env" not in changed.container
    assert changed.after(*call.undo) == Objects.of(seen)


@pytest.mark.parametrize(
    ("env", "source", "reason"),
    [
        pytest.param([], "configMapRef", "other comes from ConfigMap vllm-config", id="only-there"),
        pytest.param([{"name": "other", "value": "y"}], "configMapRef", "other comes from ConfigMap", id="there-too"),
        pytest.param([], "secretRef", "the pod template does not set other, and some of its variables", id="unknown"),
    ],
)
def test_a_variable_that_would_stay_set_is_not_called_removed(env: list[Obj], source: str, reason: str) -> None:
    seen = made(["vllm", "serve", "m"], ["--seed=1"], env=env, envFrom=[{source: {"name": "vllm-config"}}])
    found = declined("set_flags", {"edits": [{"env": "other", "value": None}]}, seen)
    assert (found.outcome, reason in found.reason) == ("impossible", True), found


def test_a_variable_of_the_template_is_removed_beside_a_secret_that_is_not_read() -> None:
    env, secret = [{"name": "OLD", "value": "1"}], {"secretRef": {"name": "hf"}}
    plan = change(made(["vllm", "serve", "m"], [], env=env, envFrom=[secret]), {"env": "OLD", "value": None})
    assert [line.text for line in plan.calls[0].differences] == ["env OLD 1 → (not set)"]


def test_of_several_names_of_a_variable_the_one_that_is_set_is_removed_and_named() -> None:
    env, secret = [{"name": "NEW", "value": "1"}], {"secretRef": {"name": "hf"}}
    seen = made(["vllm", "serve", "m"], [], env=env, envFrom=[secret])
    plan = change(seen, {"env": "OLD", "value": None}, {"env": "NEW", "value": None})
    assert [line.text for line in plan.calls[0].differences] == ["env NEW 1 → (not set)"]
    assert ("OLD" in plan.title, plan.choices) == (False, {"edits": {"NEW": "(removed)"}})


def test_a_variable_that_only_the_leaders_have_is_removed_beside_a_secret_that_is_not_read() -> None:
    seen = kueue_groups()
    groups = copy.deepcopy(seen.workload or {})
    for each in groups["spec"]["leaderWorkerTemplate"].values():
        if isinstance(each, dict):
            each["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "hf"}}]
    leader = groups["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    leader["spec"]["containers"][0]["env"].append({"name": "OLD", "value": "1"})
    plan = change(replace(seen, workload=groups), {"env": "OLD", "value": None})
    assert [line.text for line in plan.calls[0].differences] == ["env OLD 1 → (not set)"]


@pytest.mark.parametrize(
    ("image", "edit", "reason"),
    [
        pytest.param("v0.17.0", {"flag": "--watermark", "value": 0.1}, "has no --watermark yet", id="too-early"),
        pytest.param("v0.17.0", {"flag": "--swap-space", "value": 8}, "ignores --swap-space", id="ignored"),
        pytest.param("v0.30.0", {"flag": "--swap-space", "value": 8}, "use --kv-offloading-size", id="removed"),
        pytest.param("v0.32.0", {"flag": "--disable-log-requests", "value": True}, "leave it away", id="log-requests"),
        pytest.param("v0.7.3", {"flag": "--kv-cache-dtype", "value": "nvfp4"}, "takes one of auto", id="choices-then"),
        pytest.param("v0.5.4", {"flag": "--block-size", "value": 64}, "takes one of 8, 16, 32", id="block-size-then"),
        pytest.param("v0.7.3", {"flag": "--enable-prefix-caching", "value": False}, "values already", id="off-then"),
        pytest.param("v0.15.0", {"env": "VLLM_ATTENTION_BACKEND", "value": "X"}, "use --attention-backend", id="env"),
        pytest.param("v0.32.0", {"image": "vllm/vllm-openai:v0.11.0"}, "no --shutdown-timeout yet", id="downgrade"),
        pytest.param("v0.32.0", {"image": "a b"}, "not an image", id="image"),
        pytest.param("v0.32.0", {"env": "A B", "value": "x"}, "not a variable", id="variable"),
        pytest.param("v0.32.0", {"flag": "--config", "value": "/x"}, "edit the flags themselves", id="config"),
        pytest.param("v0.32.0", {"flag": "-cc.mode", "value": 1}, "would replace all of", id="dotted-over-whole"),
        pytest.param("v0.32.0", {"env": "MORE", "value": "--made-up 1"}, "no flag --made-up", id="flag-in-a-variable"),
    ],
)
def test_edits_are_checked_against_the_engines_version(image: str, edit: Obj, reason: str) -> None:
    args = ["--shutdown-timeout=20", "-cc", '{"mode": 3}']
    command = ["sh", "-c", 'vllm serve m "$@" $MORE', "--"]
    seen = made(command, args, image=f"vllm/vllm-openai:{image}", env=[{"name": "MORE", "value": "--seed 1"}])
    result = declined("set_flags", {"edits": [edit]}, seen)
    assert reason in result.reason, result.reason


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        pytest.param(["-tp", "2"], "needs --tensor-parallel-size 1", id="tensor-parallel"),
        pytest.param(['--kv-transfer-config={"kv_connector": "x"}'], "--kv-transfer-config", id="kv-connector"),
        pytest.param(["--enable-sleep-mode"], "--enable-sleep-mode", id="sleep-mode"),
        pytest.param(["-tp", "1"], "", id="one-rank"),
    ],
)
def test_an_allocator_setting_that_stops_the_engine_is_refused(args: list[str], reason: str) -> None:
    edit = {"env": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}
    seen = made(["vllm", "serve", "m"], args)
    if reason:
        assert reason in declined("set_flags", {"edits": [edit]}, seen).reason
    else:
        assert change(seen, edit).calls


def test_a_removed_flag_can_be_taken_away_with_the_new_image() -> None:
    seen = made(["vllm", "serve", "m"], ["--swap-space=4", "--seed=1"], image="vllm/vllm-openai:v0.17.0")
    newer = {"image": "vllm/vllm-openai:v0.32.0"}
    assert "removed in 0.18" in declined("set_flags", {"edits": [newer]}, seen).reason
    changed = Objects.of(seen).after(*change(seen, newer, {"flag": "--swap-space", "value": None}).calls)
    assert changed.container["args"] == ["--seed=1"]


# --- any edit and its undo --------------------------------------------------------------------------------------------

SPELLED = st.sampled_from(
    [
        ["--max-num-seqs=64"],
        ["--max-num-seqs", "64"],
        ["--max_num_seqs", "64"],
        ["--max-num-seqs=1k", "--max_num_seqs", "64"],
        ["--max-num-seqs=$(SEQS)"],
        ["--max-num-seqs", "$(SEQS)"],
        ["--max-num-seq=64"],
        [],
    ]
)
AROUND = st.lists(
    st.sampled_from(
        [
            ["--seed=1"],
            ["-tp", "2"],
            ["--enforce-eager"],
            ["--max-model-len", "-1"],
            ["--unknown", "x"],
            ["-cc.mode", "3"],
        ]
    ),
    max_size=4,
    unique_by=lambda words: words[0],
)
EDITS = st.sampled_from(
    [
        seqs(6),
        seqs(None),
        {"flag": "--max-num-batched-tokens", "value": "8k"},
        {"flag": "--enforce-eager", "value": False},
        {"flag": "--enable-prefix-caching", "value": False},
        {"flag": "--compilation-config.mode", "value": 2},
        {"flag": "--seed", "value": 9},
        {"env": "SEQS", "value": "7"},
        {"env": "NEW", "value": "a b"},
        {"image": "vllm/vllm-openai:v0.32.2"},
    ]
)
PLACES = st.sampled_from(
    ["args", "command", "script", "lines", "script-in-args", "rest", "additional", "split", "file"]
)


def placed(place: str, words: list[str]) -> ClusterSnapshot:
    """The same words in one of the places where flags live."""
    line, env = " ".join(words), [{"name": "SEQS", "value": "64"}]
    match place:
        case "args":
            return made(["vllm", "serve", "m"], words, env=env)
        case "command":
            return made(["vllm", "serve", "m", *words], None, env=env)
        case "script":
            return made(["sh", "-c", f"ulimit -n 9; exec vllm serve m {line} 2>&1"], None, env=env)
        case "lines":
            return made(
                ["bash", "-c", "vllm serve m \\\n  " + " \\\n  ".join(words or ["--port=1"]) + "\n"], None, env=env
            )
        case "script-in-args":
            return made(["sh", "-c"], [f"vllm serve m {line} # served"], env=env)
        case "rest":
            return made(["sh", "-c", 'vllm serve m "$@"', "--"], words or ["--port=1"], env=env)
        case "additional":
            return made(None, None, env=[*env, {"name": "VLLM_ADDITIONAL_ARGS", "value": line}])
        case "split":
            return made(["sh", "-c", "vllm serve m $MORE"], None, env=[*env, {"name": "MORE", "value": f" {line} "}])
    file = "".join(f"{name[2:]}: {value}\n" for name, value in (("--port", "1"), ("--max-num-seqs", "64")))
    return made(["vllm", "serve"], [*words, "--config=/etc/vllm/config.yaml"], env=env, config=file)


@settings(deadline=None)
@given(
    place=PLACES,
    before=AROUND,
    spelled=SPELLED,
    after=AROUND,
    edits=st.lists(EDITS, min_size=1, max_size=4, unique_by=str),
)
def test_any_edit_followed_by_its_undo_gives_back_the_identical_objects(
    place: str, before: list[list[str]], spelled: list[str], after: list[list[str]], edits: list[Obj]
) -> None:
    names = [edit.get("flag") for edit in edits if "flag" in edit]
    if len(set(names)) < len(names):
        edits = edits[:1]
    seen = placed(place, [word for words in (*before, spelled, *after) for word in words])
    result = _planned_or_none(seen, edits)
    if result is None:
        return
    objects = Objects.of(seen)
    changed = objects.after(*result.calls)
    values = changed.flags.values
    for edit in (edit for edit in edits if "flag" in edit):
        assert values.get(edit["flag"]) in _meant(edit["value"]), (edit, changed.container, changed.config)
    touched = {edit.get("flag") for edit in edits} | ({"--max-num-seqs"} if any("env" in e for e in edits) else set())
    untouched = {k: v for k, v in objects.flags.values.items() if k not in touched}
    assert {k: v for k, v in values.items() if k not in touched} == untouched
    assert changed.after(*result.calls[-1].undo) == objects


def _meant(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (value,) if value else (False, None)
    return (None,) if value is None else (str(value), None if value == 0 else str(value))


def _planned_or_none(seen: ClusterSnapshot, edits: list[Obj]) -> Plan | None:
    from bot.domain.changes.planning import plan_change

    result = plan_change("set_flags", {"edits": edits}, seen, CONTEXT)
    assert result.outcome in ("planned", "not_needed"), result.reason
    return result.plan
