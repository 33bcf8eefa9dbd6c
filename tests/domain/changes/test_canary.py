"""canary and remove_canary: a canary beside the workload, in its rotation, never in its ReplicaSets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.approvals.announced import cleans_up
from bot.domain.changes.plan import Wait
from bot.domain.cluster.objects import name_of, selects, selects_plainly
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import ReplicaLoad
from tests.domain.changes.snapshots import (
    CANARY,
    CONTEXT,
    declined,
    deployment,
    endpoint_slice,
    node,
    planned,
    pod,
    service,
    snapshot,
    template,
)

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6.0}]}


def canary(body: Obj | None = None, **metadata: Any) -> Obj:
    """The canary as the API gives it back."""
    made = body or planned("canary", EDIT, snapshot()).calls[0].body
    return {**made, "metadata": {**made["metadata"], "uid": "canary-uid", **metadata}}


def canary_pod(**fields: Any) -> Obj:
    made = pod(9)
    made["metadata"]["labels"] |= {"pod-template-hash": "c1", "incident-bot/canary": "inc-42"}
    made["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "c", "uid": "c-rs", "controller": True}]
    return made | fields


def with_canary(**parts: Any) -> ClusterSnapshot:
    pods = (*(pod(number) for number in (1, 2, 3, 4)), canary_pod())
    defaults: dict[str, Any] = {"canary": canary(), "pods": pods, "endpoint_slices": (endpoint_slice(*pods),)}
    return snapshot(**(defaults | parts))


def test_it_is_one_replica_with_the_edited_flags_under_a_fixed_name() -> None:
    call = planned("canary", EDIT, snapshot()).calls[0]
    body = call.body
    assert (call.method, call.target.name, body["metadata"]["name"]) == ("create", CANARY, CANARY)
    assert body["spec"]["replicas"] == 1
    assert "--max-num-seqs=6" in body["spec"]["template"]["spec"]["containers"][0]["args"]
    assert body["metadata"]["annotations"]["incident-bot/incident"] == "INC-42"


@pytest.mark.parametrize("startup_seconds", [300.0, 7200.0])
def test_its_deadline_is_beyond_the_wait_for_it_and_the_same_each_time(startup_seconds: float) -> None:
    slow = deployment(progressDeadlineSeconds=600)
    plan = planned("canary", EDIT, snapshot(workload=slow), replace(CONTEXT, startup_seconds=startup_seconds))
    wait = plan.steps[-1]
    assert isinstance(wait, Wait)
    assert plan.calls[0].body["spec"]["progressDeadlineSeconds"] > wait.within_seconds
    assert plan.digest == planned("canary", EDIT, snapshot()).digest, "a start time that is measured anew asks nobody"


def test_it_notes_the_flag_that_was_chosen_of_several() -> None:
    several = {"edits": [{"first_of": ["--max-num-active-seqs", "--max-num-seqs"], "value": 6.0, "direction": "lower"}]}
    body = planned("canary", several, snapshot()).calls[0].body
    (noted,) = json.loads(body["metadata"]["annotations"]["incident-bot/edits"])
    assert noted == {"flag": "--max-num-active-seqs", "value": 6.0, "direction": "lower"}


def test_its_pods_are_in_the_services_rotation_and_no_selector_claims_what_is_not_its_own() -> None:
    body = planned("canary", EDIT, snapshot()).calls[0].body
    labels, selector = body["spec"]["template"]["metadata"]["labels"], body["spec"]["selector"]
    assert selects_plainly(service()["spec"]["selector"], labels)
    assert selects(selector, labels)
    assert not selects(selector, pod(1)["metadata"]["labels"])
    # The workload's own ReplicaSets select by the hash of their template, which these pods do not have.
    assert not selects(snapshot().replica_sets[1]["spec"]["selector"], labels)


def test_it_does_not_inherit_the_owner_of_the_workload() -> None:
    workload = deployment()
    workload["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    workload["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = "llm:apps/Deployment:serving/llm"
    metadata = planned("canary", EDIT, snapshot(workload=workload)).calls[0].body["metadata"]
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "incident-bot"
    assert "argocd.argoproj.io/tracking-id" not in metadata["annotations"]


def test_a_long_workload_name_leaves_room_for_the_suffixes_of_its_pods() -> None:
    workload = deployment()
    workload["metadata"]["name"] = "a-very-long-workload-name-that-somebody-chose-in-good-faith"
    name = planned("canary", EDIT, snapshot(workload=workload)).calls[0].target.name
    assert len(name) <= 52
    assert name.endswith("-incident-bot-canary-inc-42")


@pytest.mark.parametrize(
    ("parts", "outcome", "reason"),
    [
        pytest.param({"canary": canary()}, "not_needed", "runs these flags already", id="there-already"),
        pytest.param(
            {
                "canary": canary(
                    planned("canary", {"edits": [{"flag": "--seed", "value": 1}]}, snapshot()).calls[0].body
                )
            },
            "impossible",
            "other flags",
            id="another-one",
        ),
        pytest.param({"canary": canary(deletionTimestamp="now")}, "impossible", "going away", id="still-ending"),
        pytest.param({"nodes": (node(1, gpus=2), node(2, gpus=1))}, "impossible", "the canary cannot be", id="no-gpu"),
        pytest.param({"unreadable": {"canary": "403"}}, "unknown", "canary: 403", id="unreadable"),
        pytest.param({"workload": None}, "impossible", "does not exist", id="no-workload"),
    ],
)
def test_a_canary_that_cannot_be_started_says_why(parts: dict[str, Any], outcome: str, reason: str) -> None:
    result = declined("canary", EDIT, snapshot(**parts))
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def test_a_canary_that_drains_by_itself_is_deleted_by_its_uid() -> None:
    plan = planned("remove_canary", {}, with_canary())
    assert [step.condition if isinstance(step, Wait) else step.method for step in plan.steps] == ["delete", "gone"]
    assert (plan.calls[0].target.uid, plan.calls[0].restores, plan.risk) == ("canary-uid", True, "low")


def test_a_canary_without_a_drain_leaves_rotation_and_runs_empty_first() -> None:
    made = canary()
    made["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {}
    plan = planned("remove_canary", {}, with_canary(canary=made))
    steps = [step.condition if isinstance(step, Wait) else step.method for step in plan.steps]
    assert steps == ["patch", "out_of_rotation", "emptied", "delete", "gone"]


def test_a_canary_that_is_not_in_rotation_is_deleted_at_once() -> None:
    made = canary()
    made["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {}
    plan = planned("remove_canary", {}, with_canary(canary=made, endpoint_slices=()))
    assert [call.method for call in plan.calls] == ["delete"]


CRASHES = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "False"}],
    "containerStatuses": [{"name": "vllm", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
}


@pytest.mark.parametrize("pods", [(), (canary_pod(status=CRASHES),)], ids=["no-pod", "it-crashes"])
def test_the_removal_of_a_canary_that_never_served_is_announced(pods: tuple[Obj, ...]) -> None:
    made = canary()
    made["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {}
    plan = planned("remove_canary", {}, with_canary(canary=made, pods=(pod(1), *pods), endpoint_slices=()))
    assert cleans_up(plan, ())


def test_the_removal_of_a_canary_that_still_runs_requests_is_asked_about() -> None:
    made = canary()
    made["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {}
    seen = with_canary(canary=made, endpoint_slices=())
    load = {name_of(each): ReplicaLoad(running=2.0, waiting=0.0) for each in seen.pods}
    assert not cleans_up(planned("remove_canary", {}, replace(seen, load=load)), ())


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        pytest.param({"canary": None}, "not_needed", id="none"),
        pytest.param({"canary": canary(deletionTimestamp="now")}, "not_needed", id="ending"),
        pytest.param({"canary": canary(annotations={})}, "impossible", id="not-ours"),
    ],
)
def test_only_our_own_canary_is_removed(parts: dict[str, Any], outcome: str) -> None:
    assert declined("remove_canary", {}, with_canary(**parts)).outcome == outcome


@pytest.mark.parametrize("source", ["pods", "services", "endpoint_slices"])
def test_a_canary_whose_streams_cannot_be_seen_is_not_removed_as_if_it_had_none(source: str) -> None:
    result = declined("remove_canary", {}, with_canary(**{source: ()}, unreadable={source: "503 for now"}))
    assert (result.outcome, "503 for now" in result.reason) == ("unknown", True)


def test_the_canaries_pods_do_not_count_as_replicas_of_the_workload() -> None:
    seen = with_canary(pods=(pod(1), canary_pod()))
    result = declined("isolate_replica", {"replica": "llm-1"}, replace(seen, workload=deployment(template())))
    assert "last replica" in result.reason


@pytest.mark.parametrize(
    ("image", "flag"),
    [
        ("vllm/vllm-openai:v0.32.0", "--max-num-active-seqs"),
        ("vllm/vllm-openai:v0.30.0", "--max-num-seqs"),
        ("example/engine:latest", "--max-num-seqs"),
    ],
    ids=["the-engine-has-the-first", "only-the-last", "an-unknown-version"],
)
def test_of_several_flags_the_first_that_the_engine_has_is_edited_and_kept_for_the_rollout(
    image: str, flag: str
) -> None:
    edits = [{"first_of": ["--max-num-active-seqs", "--max-num-seqs"], "direction": "lower", "value": 6}]
    workload = deployment(template("--max-num-seqs=64", image=image))
    body = planned("canary", {"edits": edits}, snapshot(workload=workload)).calls[0].body
    kept = json.loads(body["metadata"]["annotations"]["incident-bot/edits"])
    assert kept == [{"flag": flag, "direction": "lower", "value": 6}]
    assert f"{flag}=6" in body["spec"]["template"]["spec"]["containers"][0]["args"]
