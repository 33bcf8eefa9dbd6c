"""set_flags: which settings are edited, how they are written, and when an edit is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import Plan
from bot.domain.cluster.json_patch import PatchError, applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.flags_in_spec import flags_of_template
from bot.domain.signals.scrape import ReplicaLoad
from tests.domain.changes.snapshots import (
    ARGS,
    CONTEXT,
    declined,
    deployment,
    grade,
    load,
    node,
    planned,
    service,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast


def edits(**values: Any) -> dict[str, Any]:
    return {"edits": [{"flag": "--" + name.replace("_", "-"), "value": value} for name, value in values.items()]}


def args_after(plan: Plan, seen: ClusterSnapshot) -> list[str]:
    assert seen.workload is not None
    patched = applied(plan.calls[0].body, seen.workload)
    return list(patched["spec"]["template"]["spec"]["containers"][0].get("args") or [])


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        pytest.param(["--max-num-seqs=64"], edits(max_num_seqs=6.0), ["--max-num-seqs=6"], id="joined"),
        pytest.param(["--max-num-seqs", "64"], edits(max_num_seqs=6), ["--max-num-seqs", "6"], id="two-words"),
        pytest.param(["--max_num_seqs=64"], edits(max_num_seqs=6), ["--max_num_seqs=6"], id="underscores-are-kept"),
        pytest.param(
            ["--max-num-seqs=9", "--max-num-seqs=64"],
            edits(max_num_seqs=6),
            ["--max-num-seqs=9", "--max-num-seqs=6"],
            id="the-last-of-several-is-the-one-that-counts",
        ),
        pytest.param(["--seed=1"], edits(max_num_seqs=6), ["--seed=1", "--max-num-seqs=6"], id="absent-is-appended"),
        pytest.param(
            ["--seed", "1"], edits(max_num_seqs=6), ["--seed", "1", "--max-num-seqs", "6"], id="in-the-author's-form"
        ),
        pytest.param(
            ["--enable-prefix-caching"],
            edits(enable_prefix_caching=False),
            ["--no-enable-prefix-caching"],
            id="switch-off",
        ),
        pytest.param(
            ["--no_enable_prefix_caching"],
            edits(enable_prefix_caching=True),
            ["--enable_prefix_caching"],
            id="switch-on-with-underscores",
        ),
        pytest.param(
            ["--served-model-name", "a", "b", "--max-num-seqs", "64"],
            edits(max_num_seqs=6),
            ["--served-model-name", "a", "b", "--max-num-seqs", "6"],
            id="behind-a-flag-with-several-values",
        ),
        pytest.param(
            ["--device-memory-utilization=0.9"],
            edits(gpu_memory_utilization=0.87),
            ["--device-memory-utilization=0.87"],
            id="alias",
        ),
        pytest.param(
            ["--kv-cache-memory=5G"],
            edits(kv_cache_memory_bytes="6G"),
            ["--kv-cache-memory=6G"],
            id="unique-abbreviation",
        ),
        pytest.param(
            ["--max-model-len", "-1", "--max-num-seqs", "64"],
            edits(max_num_seqs=6),
            ["--max-model-len", "-1", "--max-num-seqs", "6"],
            id="a-negative-number-is-a-value",
        ),
    ],
)
def test_an_edit_keeps_the_authors_spelling(before: list[str], edit: dict[str, Any], after: list[str]) -> None:
    seen = snapshot(workload=deployment(template(*before)))
    assert args_after(planned("set_flags", edit, seen), seen) == after


def test_a_flag_in_the_command_list_is_edited_there() -> None:
    pod_template = template()
    container = pod_template["spec"]["containers"][0]
    container["command"] = ["vllm", "serve", "m", "--max-num-seqs", "64", "--shutdown-timeout", "20"]
    del container["args"]
    seen = snapshot(workload=deployment(pod_template))
    patched = applied(planned("set_flags", edits(max_num_seqs=6), seen).calls[0].body, seen.workload or {})
    assert patched["spec"]["template"]["spec"]["containers"][0]["command"][3:5] == ["--max-num-seqs", "6"]


def test_the_difference_reads_as_people_say_it() -> None:
    (difference,) = planned("set_flags", edits(max_num_seqs=6), snapshot()).calls[0].differences
    assert difference.text == "--max-num-seqs 64 → 6"
    (back,) = planned("set_flags", edits(max_num_seqs=6), snapshot()).calls[0].undo[0].differences
    assert back.text == "--max-num-seqs 6 → 64"


def test_the_patch_tests_uid_container_and_the_old_list() -> None:
    body = planned("set_flags", edits(max_num_seqs=6), snapshot()).calls[0].body
    tests = {op["path"]: op["value"] for op in body if op["op"] == "test"}
    assert tests == {
        "/metadata/uid": "deploy-uid",
        "/spec/template/spec/containers/0/name": "vllm",
        "/spec/template/spec/containers/0/args": list(ARGS),
    }


def test_a_patch_does_not_win_over_somebody_elses_edit() -> None:
    call = planned("set_flags", edits(max_num_seqs=6), snapshot()).calls[0]
    with pytest.raises(PatchError, match="args"):
        applied(call.body, deployment(template("--max-num-seqs=32")))


NOTHING_TO_DO = "these values already"


@pytest.mark.parametrize(
    ("args", "edit", "outcome", "reason"),
    [
        pytest.param(ARGS, edits(max_num_seqs=64), "not_needed", NOTHING_TO_DO, id="same-value"),
        pytest.param(["--max-num-seqs=064"], edits(max_num_seqs=64), "not_needed", NOTHING_TO_DO, id="same-number"),
        pytest.param(
            ["--max-num-batched-tokens=8k"], edits(max_num_batched_tokens=8000), "not_needed", NOTHING_TO_DO, id="8k"
        ),
        pytest.param(ARGS, edits(watermark=0.0), "not_needed", NOTHING_TO_DO, id="default"),
        pytest.param(ARGS, edits(enable_prefix_caching=True), "not_needed", NOTHING_TO_DO, id="on-in-v1-anyway"),
        pytest.param(ARGS, edits(max_num_seqs=0), "impossible", "at least 1", id="below-range"),
        pytest.param(ARGS, edits(gpu_memory_utilization=1.2), "impossible", "at most 1", id="above-range"),
        pytest.param(ARGS, edits(max_num_seqs="many"), "impossible", "whole number", id="not-a-number"),
        pytest.param(ARGS, edits(max_num_seqs=6.5), "impossible", "whole number", id="not-whole"),
        pytest.param(ARGS, edits(enable_prefix_caching="maybe"), "impossible", "true or false", id="not-a-switch"),
        pytest.param(ARGS, edits(kv_cache_dtype="fp7"), "impossible", "takes one of auto", id="not-a-choice"),
        pytest.param(
            ARGS, edits(swap_space=4), "impossible", "removed in 0.18; use --kv-offloading-size", id="removed-flag"
        ),
        pytest.param(
            ["--max-num-batched-tokens=2048"],
            edits(max_num_seqs=4096),
            "impossible",
            "at most",
            id="over-batched-tokens",
        ),
        pytest.param(ARGS, edits(max_num_active_seqs=65), "impossible", "at most", id="active-over-seqs"),
        pytest.param(ARGS, edits(max_num_queued_reqs=10), "impossible", "counts running", id="queue-cap-too-small"),
        pytest.param(
            ["--max-num-seqs=64", "--max-num-active-seqs=6"],
            edits(max_num_queued_reqs=5),
            "impossible",
            "less than the 6 that may run",
            id="queue-cap-below-the-active-cap",
        ),
        pytest.param(
            ["--kv-cache-memory-bytes=5G"], edits(gpu_memory_utilization=0.9), "impossible", "ignored", id="no-effect"
        ),
        pytest.param(
            ["--no-enable-chunked-prefill", "--max-model-len=8192"],
            edits(max_num_batched_tokens=4096),
            "impossible",
            "without chunked prefill",
            id="too-few-tokens-for-a-whole-prompt",
        ),
        pytest.param(ARGS, {"edits": []}, "impossible", "no edits", id="none"),
        pytest.param(ARGS, {"edits": [{"flag": "--seed"}]}, "impossible", "not an edit", id="no-value"),
        pytest.param(ARGS, {"edits": "x"}, "impossible", "no edits", id="not-a-list"),
        pytest.param(["--config", "/c.yaml"], edits(max_num_seqs=6), "impossible", "--config", id="config-file"),
    ],
)
def test_an_edit_that_cannot_be_or_changes_nothing_says_why(
    args: list[str], edit: dict[str, Any], outcome: str, reason: str
) -> None:
    result = declined("set_flags", edit, snapshot(workload=deployment(template(*args))))
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


FIRST_OF = {"edits": [{"first_of": ["--max-num-active-seqs", "--max-num-seqs"], "value": 6}]}


@pytest.mark.parametrize(
    ("image", "flag"),
    [
        pytest.param("vllm/vllm-openai:v0.32.0", "--max-num-active-seqs", id="the-first-that-it-has"),
        pytest.param("vllm/vllm-openai:v0.30.0", "--max-num-seqs", id="the-next-one"),
        pytest.param("registry/vllm:ours", "--max-num-seqs", id="of-an-unknown-version-the-last"),
    ],
)
def test_of_several_flags_the_first_that_the_engine_has_is_edited(image: str, flag: str) -> None:
    seen = snapshot(workload=deployment(template("--max-num-seqs=64", image=image)))
    assert planned("set_flags", FIRST_OF, seen).choices["edits"] == {flag: "6"}


def test_of_several_flags_the_image_that_is_edited_in_decides() -> None:
    seen = snapshot(workload=deployment(template("--max-num-seqs=64", image="vllm/vllm-openai:v0.32.0")))
    to_older = {"edits": [*FIRST_OF["edits"], {"image": "vllm/vllm-openai:v0.30.0"}]}
    assert "--max-num-seqs" in planned("set_flags", to_older, seen).choices["edits"]


def test_a_queue_is_bounded_on_top_of_what_the_lower_cap_lets_run() -> None:
    capped = snapshot(workload=deployment(template("--max-num-seqs=64", "--max-num-active-seqs=6")))
    assert planned("set_flags", edits(max_num_queued_reqs=7), capped).calls


def test_a_misspelled_flag_comes_with_a_suggestion() -> None:
    result = declined("set_flags", edits(max_num_seq_s=6), snapshot())
    assert result.hint == "did you mean --max-num-seqs?"


def test_flags_of_a_script_that_cannot_be_known_are_not_edited() -> None:
    pod_template = template()
    pod_template["spec"]["containers"][0] |= {"command": ["sh", "-c", "vllm serve m $(cat /flags)"], "args": []}
    result = declined("set_flags", edits(max_num_seqs=6), snapshot(workload=deployment(pod_template)))
    assert "may stand for flags" in result.reason
    assert "--max-num-seqs=6" in result.hint


@pytest.mark.parametrize(
    ("tag", "flags", "expected"),
    [
        pytest.param("v0.32.1", {"max_num_seqs": 6}, "fine", id="has-a-table"),
        pytest.param("v0.33.0", {"max_num_active_seqs": 6}, "note", id="known-by-the-history"),
        pytest.param("v0.24.0", {"watermark": 0.05}, "note", id="older-and-known"),
        pytest.param("v0.11.0", {"max_num_seqs": 6, "some_old_flag": 1}, "warning", id="one-flag-is-not-known"),
        pytest.param("v0.40.0", {"max_num_seqs": 6}, "warning", id="newer-than-any-that-was-read"),
        pytest.param("nightly", {"max_num_seqs": 6}, "warning", id="no-version"),
    ],
)
def test_another_engine_version_is_a_warning_only_where_a_flag_is_not_known(
    tag: str, flags: dict[str, float], expected: str
) -> None:
    pod_template = template()
    pod_template["spec"]["containers"][0]["image"] = f"vllm/vllm-openai:{tag}"
    plan = planned("set_flags", edits(**flags), snapshot(workload=deployment(pod_template)))
    assert grade(plan, "flag_table") == expected


@pytest.mark.parametrize(
    ("labels", "annotations", "who"),
    [
        pytest.param({}, {"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:serving/llm"}, "Argo CD", id="argo"),
        pytest.param({"kustomize.toolkit.fluxcd.io/name": "llm"}, {}, "Flux", id="flux"),
        pytest.param({"serving.kserve.io/inferenceservice": "llm"}, {}, "KServe", id="kserve"),
    ],
)
def test_an_owner_gets_the_patch_instead(labels: dict[str, str], annotations: dict[str, str], who: str) -> None:
    workload = deployment()
    workload["metadata"]["labels"] |= labels
    workload["metadata"]["annotations"] |= annotations
    result = declined("set_flags", edits(max_num_seqs=6), snapshot(workload=workload))
    assert result.outcome == "impossible"
    assert who in result.reason
    assert '"--max-num-seqs=6"' in result.hint
    assert result.handed_out == ({"flag": "--max-num-seqs", "value": 6},)
    assert result.owners_edit == OwnersEdit(kind="Deployment", namespace="serving", name="llm", flags=result.handed_out)
    assert "trategy" not in result.hint


FULL = (node(1, gpus=2), node(2, gpus=1))


@pytest.mark.parametrize(
    ("labels", "where"),
    [
        pytest.param({"kustomize.toolkit.fluxcd.io/name": "llm"}, "  strategy:", id="flux"),
        pytest.param({"serving.kserve.io/inferenceservice": "llm"}, "    deploymentStrategy:", id="kserve"),
    ],
)
def test_where_no_surge_pod_fits_the_owners_rollout_is_to_go_in_place_too(labels: dict[str, str], where: str) -> None:
    workload = deployment()
    workload["metadata"]["labels"] |= labels
    result = declined("set_flags", edits(max_num_seqs=6), snapshot(workload=workload, nodes=FULL))
    lines = result.hint.splitlines()
    assert [line.strip() for line in lines[lines.index(where) :][:5]] == [
        where.strip(), 'type: "RollingUpdate"', "rollingUpdate:", "maxSurge: 0", "maxUnavailable: 1",
    ]  # fmt: skip
    assert "put your own strategy back afterwards" in result.hint
    assert result.owners_edit is not None
    assert result.owners_edit.fields == {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    }


def test_what_a_helm_release_is_to_commit_has_no_strategy() -> None:
    workload = deployment()
    workload["metadata"]["labels"] |= {"app.kubernetes.io/managed-by": "Helm"}
    plan = planned("set_flags", edits(max_num_seqs=6), snapshot(workload=workload, nodes=FULL))
    assert "--max-num-seqs=6" in plan.commit
    assert "strategy:" not in plan.commit


def test_a_change_that_is_impossible_for_another_reason_hands_nothing_out() -> None:
    assert (
        declined(
            "set_flags", {"edits": [{"flag": "--no-such", "value": 1, "direction": "lower"}]}, snapshot()
        ).handed_out
        == ()
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(node(3, gpus=9, unschedulable=True), id="cordoned"),
        pytest.param(node(3, gpus=9, is_ready=False), id="not-ready"),
        pytest.param(node(3, gpus=9, taints=[{"key": "x", "effect": "NoSchedule"}]), id="tainted"),
    ],
)
def test_a_gpu_on_a_node_that_takes_no_pods_is_not_free(other: Obj) -> None:
    plan = planned("set_flags", edits(max_num_seqs=6), snapshot(nodes=(node(1, gpus=2), node(2, gpus=1), other)))
    assert "no room for a surge pod" in weighed(plan, "room")


def test_room_that_cannot_be_read_is_a_warning_and_not_a_refusal() -> None:
    plan = planned("set_flags", edits(max_num_seqs=6), snapshot(unreadable={"nodes": "403 forbidden"}))
    assert grade(plan, "room") == "warning"
    assert "403 forbidden" in weighed(plan, "room")


def test_a_strategy_that_gives_capacity_away_is_tightened_in_the_same_call_and_restored_by_its_undo() -> None:
    loose = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    seen = snapshot(workload=deployment(strategy=loose))
    call = planned("set_flags", edits(max_num_seqs=6), seen).calls[0]
    patched = applied(call.body, seen.workload or {})
    assert patched["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": 0}
    assert applied(call.undo[0].body, patched) == seen.workload
    assert "rollout maxUnavailable 25% → 0" in [d.text for d in call.differences]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"strategy": {"type": "Recreate"}}, "recreated, not rolled", id="recreate"),
        pytest.param({"paused": True}, "is paused", id="paused"),
    ],
)
def test_a_workload_that_does_not_roll_is_refused(spec: Obj, reason: str) -> None:
    assert reason in declined("set_flags", edits(max_num_seqs=6), snapshot(workload=deployment(**spec))).reason


def test_a_rollout_under_way_comes_first() -> None:
    workload = deployment()
    workload["status"]["updatedReplicas"] = 2
    assert "2 of 4 updated" in declined("set_flags", edits(max_num_seqs=6), snapshot(workload=workload)).reason


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, "fine", id="native-drain"),
        pytest.param({"lifecycle": {}}, "warning", id="no-prestop"),
        pytest.param({"args": ["--max-num-seqs=64"]}, "warning", id="engine-cuts-on-sigterm"),
    ],
)
def test_cut_streams_are_a_warning_where_no_label_can_empty_a_replica(fields: Obj, expected: str) -> None:
    seen = snapshot(workload=deployment(template(**fields)), services=(service(app="llm"),))
    assert grade(planned("set_flags", edits(max_num_seqs=6), seen), "drain") == expected


def test_the_streams_that_would_be_cut_are_counted() -> None:
    busy = {f"llm-{n}": load(running=10) for n in (1, 2, 3, 4)}
    seen = snapshot(workload=deployment(template(lifecycle={})), services=(service(app="llm"),), load=busy)
    assert "cuts ~40 streams on 4 pods" in weighed(planned("set_flags", edits(max_num_seqs=6), seen), "drain")


def test_queued_requests_are_open_streams_too() -> None:
    busy = {f"llm-{n}": load(running=4, waiting=2) for n in (1, 2, 3, 4)}
    gentle = planned("set_flags", edits(max_num_seqs=6), snapshot(load=busy))
    assert "24 streams are open (8 of them queued) on 4 pods" in weighed(gentle, "drain")
    cut = snapshot(workload=deployment(template(lifecycle={})), services=(service(app="llm"),), load=busy)
    assert "cuts ~24 streams (8 of them queued) on 4 pods" in weighed(
        planned("set_flags", edits(max_num_seqs=6), cut), "drain"
    )
    half = busy | {"llm-1": ReplicaLoad(running=4, waiting=None)}
    assert "an unknown number of streams" in weighed(planned("restart", {}, snapshot(load=half)), "drain")


@pytest.mark.parametrize(
    ("seen", "cut"),
    [
        pytest.param(snapshot(), "any that needs longer than 20 s is cut", id="native-drain"),
        pytest.param(
            snapshot(workload=deployment(template(lifecycle={})), services=(service(app="llm"),)),
            "cuts an unknown number of streams",
            id="no-drain",
        ),
    ],
)
def test_a_rollout_that_cuts_requests_does_not_promise_none(seen: ClusterSnapshot, cut: str) -> None:
    plan = planned("set_flags", edits(max_num_seqs=6), seen)
    assert plan.expected == "4 replicas stay in rotation while they are replaced, one by one"
    assert cut in weighed(plan, "drain")


@pytest.mark.parametrize(
    ("surge", "nodes", "pace"),
    [
        pytest.param(1, (node(9),), "one by one", id="one"),
        pytest.param("100%", (node(8), node(9)), "up to 4 at a time", id="all"),
        pytest.param("100%", (node(9, gpus=3),), "up to 3 at a time", id="as-many-as-fit"),
        pytest.param(30, (node(8), node(9)), "up to 4 at a time", id="more-than-there-are"),
    ],
)
def test_how_many_are_replaced_at_a_time_is_shown(surge: int | str, nodes: tuple[Obj, ...], pace: str) -> None:
    workload = deployment()
    workload["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}}
    plan = planned("restart", {}, snapshot(workload=workload, nodes=nodes, all_pods=()))
    assert plan.expected.endswith(f"while they are replaced, {pace}")


def test_planning_again_gives_the_same_digest_while_only_status_and_load_change() -> None:
    seen, later = snapshot(), snapshot()
    assert later.workload is not None
    later.workload["metadata"] |= {"resourceVersion": "99", "annotations": {"other": "note"}}
    busy = replace(later, at=seen.at + 60, load={"llm-1": load(running=30)})
    edit = edits(max_num_seqs=6)
    assert planned("set_flags", edit, seen).digest == planned("set_flags", edit, busy).digest


def test_the_digest_changes_with_the_value() -> None:
    assert (
        planned("set_flags", edits(max_num_seqs=6), snapshot()).digest
        != planned("set_flags", edits(max_num_seqs=7), snapshot()).digest
    )


NUMBERS = st.integers(min_value=1, max_value=63)
WRITTEN = st.sampled_from(
    [
        ["--max-num-seqs=64"],
        ["--max-num-seqs", "64"],
        ["--max_num_seqs=64"],
        ["--max_num_seqs", "64"],
        ["--max-num-seqs=1000", "--max_num_seqs", "64"],
        [],
    ]
)
AROUND = st.lists(
    st.sampled_from([["--seed=1"], ["-tp", "2"], ["--enforce-eager"], ["--max-model-len", "-1"], ["--unknown", "x"]]),
    max_size=4,
    unique_by=lambda words: words[0],
)


@given(before=AROUND, written=WRITTEN, after=AROUND, value=NUMBERS)
def test_an_edit_and_its_undo_give_the_identical_template(
    before: list[list[str]], written: list[str], after: list[list[str]], value: int
) -> None:
    args = [*(w for words in before for w in words), *written, *(w for words in after for w in words), "--port=8000"]
    seen = snapshot(workload=deployment(template(*args)))
    workload = copy.deepcopy(seen.workload or {})
    call = planned("set_flags", edits(max_num_seqs=value), seen).calls[0]
    patched = applied(call.body, workload)
    flags = flags_of_template(patched["spec"]["template"]).values
    assert flags["--max-num-seqs"] == str(value)
    assert {k: v for k, v in flags.items() if k != "--max-num-seqs"} == {
        k: v for k, v in flags_of_template(workload["spec"]["template"]).values.items() if k != "--max-num-seqs"
    }
    assert applied(call.undo[0].body, patched) == workload


def test_a_choice_of_a_version_without_a_table_is_warned_of_and_not_judged() -> None:
    pod_template = template(*ARGS)
    pod_template["spec"]["containers"][0]["image"] = "vllm/vllm-openai:v0.40.0"
    plan = planned("set_flags", edits(kv_cache_dtype="fp7"), snapshot(workload=deployment(pod_template)))
    assert grade(plan, "flag_table") == "warning"


@pytest.mark.parametrize(("asked", "is_taken"), [("0", True), (None, False)])
def test_swap_space_is_for_the_engine_of_before_v1(asked: str | None, *, is_taken: bool) -> None:
    env = [{"name": "VLLM_USE_V1", "value": asked}] if asked else []
    seen = snapshot(workload=deployment(template("--max-num-seqs=64", image="vllm/vllm-openai:v0.8.5", env=env)))
    edit = {"edits": [{"flag": "--swap-space", "value": 8}]}
    if is_taken:
        assert "--swap-space" in planned("set_flags", edit, seen).title
    else:
        assert "does not swap" in declined("set_flags", edit, seen).reason


@pytest.mark.parametrize("written", ["8192", "8k", "8K"])
def test_a_raise_is_known_as_one_however_the_number_is_written(written: str) -> None:
    args = ("--max-model-len=2048", "--max-num-seqs=64", f"--max-num-batched-tokens={written}")
    seen = snapshot(workload=deployment(template(*args)))
    raises = {"flag": "--max-num-batched-tokens", "value": 16384}
    against = declined("set_flags", {"edits": [raises]}, seen, replace(CONTEXT, against="oom_serving"))
    assert "wrong direction" in against.reason
    assert "is a raise" in declined("set_flags", {"edits": [raises | {"direction": "lower"}]}, seen).reason


def test_the_default_of_a_variable_that_is_set_but_empty_is_replaced() -> None:
    """As `sh` does it, `${MAX_SEQS:-256}` is 256 then."""
    made = template(
        command=["sh", "-c", "vllm serve m --max-num-seqs ${MAX_SEQS:-256} --seed 1"], env=[{"name": "MAX_SEQS"}]
    )
    del made["spec"]["containers"][0]["args"]
    assert flags_of_template(made).values == {"--max-num-seqs": "256", "--seed": "1"}
    seen = snapshot(workload=deployment(made))
    plan = planned("set_flags", {"edits": [{"flag": "--max-num-seqs", "value": 6}]}, seen)
    after = applied(plan.calls[0].body, seen.workload or {})
    assert flags_of_template(after["spec"]["template"]).values == {"--max-num-seqs": "6", "--seed": "1"}
    assert "256" not in after["spec"]["template"]["spec"]["containers"][0]["command"][2]


@pytest.mark.parametrize("env", [[], [{"name": "VLLM_X", "value": "1"}]], ids=["new", "was-set"])
def test_an_empty_variable_is_written_as_the_api_server_stores_it(env: list[Obj]) -> None:
    """It leaves an empty value out; else the rollout would seem to be of another template."""
    seen = snapshot(workload=deployment(template(env=env)))
    plan = planned("set_flags", {"edits": [{"env": "VLLM_X", "value": ""}]}, seen)
    after = applied(plan.calls[0].body, seen.workload or {})
    assert after["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "VLLM_X"}]
    again = snapshot(workload=after)
    assert declined("set_flags", {"edits": [{"env": "VLLM_X", "value": ""}]}, again).outcome == "not_needed"
