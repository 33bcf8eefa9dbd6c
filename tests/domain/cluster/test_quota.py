"""ResourceQuotas: planning respects them, and a pod that they refuse ends the wait with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.quota import QuotaRoom, quota_room
from bot.domain.cluster.refused_pods import not_created
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.ledgers import entry, with_ledger
from tests.domain.changes.numbered import member, numbered_world, stateful_set
from tests.domain.changes.snapshots import (
    NOW,
    STAMP,
    declined,
    deployment,
    grade,
    planned,
    pod,
    replica_set,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
REFUSAL = 'pods "llm-h2-x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4'


def quota(hard: dict[str, str], used: dict[str, str], name: str = "team", **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used}}


GPUS = "requests.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("quotas", "fits", "text"),
    [
        pytest.param((), 8, "", id="none"),
        pytest.param((quota({"pods": "100"}, {"pods": "4"}),), 8, "", id="wide"),
        pytest.param(
            (quota({"pods": "5"}, {"pods": "4"}),), 1, "ResourceQuota team admits 1 more (pods: 4 of 5", id="1"
        ),
        pytest.param((quota({"count/pods": "4"}, {"count/pods": "4"}),), 0, "(count/pods: 4 of 4 used)", id="full"),
        pytest.param((quota({GPUS: "6"}, {GPUS: "4"}),), 2, f"({GPUS}: 4 of 6 used)", id="gpus"),
        pytest.param((quota({"limits.example.com/mem": "1k"}, {"limits.example.com/mem": "0"}),), 8, "", id="other"),
        pytest.param(
            (quota({"pods": "8"}, {"pods": "4"}), quota({GPUS: "7"}, {GPUS: "4"}, "gpus")),
            3,
            "gpus admits 3",
            id="least",
        ),
        pytest.param((quota({"pods": "3"}, {"pods": "4"}),), 0, "admits 0 more", id="over"),
    ],
)
def test_a_quota_bounds_how_many_replicas_fit(quotas: tuple[Obj, ...], fits: int, text: str) -> None:
    found = capacity_of(snapshot(quotas=quotas))
    assert isinstance(found, Capacity)
    assert (found.replicas_that_fit, text in found.explanation) == (fits, True)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        pytest.param(snapshot(unreadable={"quotas": "403"}), "cannot be read: 403", id="unreadable"),
        pytest.param(snapshot(quotas=(quota({"pods": "5"}, {}),)), "is used is not known yet", id="not-counted-yet"),
        pytest.param(
            snapshot(quotas=(quota({"limits.memory": "1Ti"}, {"limits.memory": "0"}),)),
            "does not set",
            id="not-in-template",
        ),
        pytest.param(
            snapshot(quotas=(quota({"pods": "5"}, {"pods": "4"}, scopes=["BestEffort"]),)), "has scopes", id="scopes"
        ),
        pytest.param(snapshot(quotas=(quota({"pods": "many"}, {"pods": "4"}),)), "cannot be counted", id="no-quantity"),
    ],
)
def test_a_quota_that_is_not_understood_is_a_warning(seen: ClusterSnapshot, text: str) -> None:
    plan = planned("scale", {"by": 1}, seen)
    assert (grade(plan, "room"), text in weighed(plan, "room")) == ("warning", True), weighed(plan, "room")


def test_more_replicas_than_a_quota_admits_are_not_proposed() -> None:
    result = declined("scale", {"by": 2}, snapshot(quotas=(quota({"pods": "5"}, {"pods": "4"}),)))
    assert (result.outcome, "ResourceQuota team admits" in result.reason) == ("impossible", True), result.reason


def test_a_rollout_for_whose_surge_a_quota_has_no_room_goes_in_place() -> None:
    edits = {"edits": [{"flag": "--max-num-seqs", "value": 32.0}]}
    plan = planned("set_flags", edits, snapshot(quotas=(quota({"pods": "4"}, {"pods": "4"}),)))
    assert grade(plan, "room") == "warning"
    assert weighed(plan, "room").startswith("no room for a surge pod")


def test_without_accelerators_the_quota_still_counts() -> None:
    plain = template(resources={"requests": {"cpu": "500m"}})
    seen = snapshot(workload=deployment(plain), quotas=(quota({"requests.cpu": "3"}, {"requests.cpu": "2"}),))
    assert "admits 2 more (requests.cpu: 2 of 3 used), 3 needed" in declined("scale", {"by": 3}, seen).reason


def refused(since: str = STAMP) -> Obj:
    found = deployment(replicas=5)
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": REFUSAL}
    found["status"] |= dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), 4)
    found["status"]["conditions"] = [condition | {"lastTransitionTime": since}]
    return found


@pytest.mark.parametrize(
    ("later", "state", "text"),
    [
        pytest.param(10.0, "pending", "4 of 5 replicas Ready", id="soon"),
        pytest.param(60.0, "failed", f"a pod cannot be created: {REFUSAL}", id="lasting"),
    ],
)
def test_a_scale_out_that_a_quota_refuses_fails_with_that_reason(later: float, state: str, text: str) -> None:
    wait = planned("scale", {"by": 1}, snapshot()).steps[-1]
    assert isinstance(wait, Wait)
    found = progress(wait, replace(snapshot(workload=refused()), at=NOW + later))
    assert (found.state, found.text) == (state, text)


def test_a_refusal_from_before_does_not_fail_what_is_complete() -> None:
    wait = planned("scale", {"by": 1}, snapshot(workload=deployment(replicas=3))).steps[-1]
    assert isinstance(wait, Wait)
    present = refused()
    present["spec"]["replicas"] = 4
    assert progress(wait, replace(snapshot(workload=present), at=NOW + 60)).state == "done"


def test_a_rollout_whose_first_new_pod_is_refused_fails_with_that_reason() -> None:
    edit = {"edits": [{"flag": "--max-num-seqs", "value": 32.0}]}
    plan = planned("set_flags", edit, snapshot())
    (wait,) = [step for step in plan.steps if isinstance(step, Wait) and step.condition == "rolled_out"]
    (call,) = plan.calls
    present = applied(call.body, refused() | {"spec": deployment()["spec"]})
    present["status"]["updatedReplicas"] = 0
    sets = (*snapshot().replica_sets, replica_set(3, present["spec"]["template"]))
    found = progress(wait, replace(snapshot(workload=present, replica_sets=sets), at=NOW + 60))
    assert (found.state, found.text) == ("failed", f"a pod cannot be created: {REFUSAL}")


def test_the_undo_of_a_scale_that_never_took_marks_no_healthy_pod() -> None:
    plan = planned("scale", {"by": 1}, snapshot())
    context = with_ledger(entry(plan.calls[0], verb="scale"))
    back = planned("undo", {"of": "last"}, snapshot(workload=refused()), context)
    assert [call.subresource for call in back.calls] == ["scale"]
    five = (*snapshot().pods, pod(5))
    took = planned("undo", {"of": "last"}, snapshot(workload=deployment(replicas=5), pods=five), context)
    assert [call.target.kind for call in took.calls] == ["Pod", "Deployment"]


# --- a refusal that only events show, as of a StatefulSet's pods ------------------------------------------------------

FULL_QUOTA = quota({"pods": "3"}, {"pods": "3"})
ABOUT_SET = {"kind": "StatefulSet", "name": "llm", "uid": "sts-uid"}
SET_REFUSAL = (
    'create Pod llm-3 in StatefulSet llm failed error: pods "llm-3" is forbidden: exceeded quota: team, used: 3'
)


def at(seconds: float) -> str:
    """A time so many seconds before `NOW`."""
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(last: float, *, first: float = 3000, about: Obj = ABOUT_SET, **fields: Any) -> Obj:
    times = {"firstTimestamp": at(first), "lastTimestamp": at(last)}
    return {"metadata": {"namespace": "serving"}, "involvedObject": about, "message": SET_REFUSAL, **times, **fields}


def made(number: int, ago: float) -> Obj:
    one = member(number)
    return {**one, "metadata": one["metadata"] | {"creationTimestamp": at(ago)}}


def lacking_one(*events: Obj, **parts: Any) -> ClusterSnapshot:
    """A StatefulSet with three of four pods."""
    found = stateful_set(replicas=4)
    pods = tuple(made(number, 9000) for number in range(3))
    return numbered_world(found, **({"quotas": (FULL_QUOTA,), "failed_creates": events, "pods": pods} | parts))


REFUSED = f"a pod cannot be created: {SET_REFUSAL}"
WIDER = quota({"pods": "9"}, {"pods": "3"})
NAMELESS_TIMES: dict[str, Any] = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": at(3000)}


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        pytest.param(lacking_one(event(10)), REFUSED, id="a-moment-ago"),
        pytest.param(lacking_one(event(900)), REFUSED, id="the-controller-pauses-for-a-quarter-of-an-hour"),
        pytest.param(lacking_one(event(1800)), "", id="it-would-have-tried-again-since"),
        pytest.param(lacking_one(event(900), quotas=(WIDER,)), "", id="the-quota-has-room-by-now"),
        pytest.param(lacking_one(event(900), quotas=()), REFUSED, id="another-reason-than-a-known-quota"),
        pytest.param(lacking_one(event(900), unreadable={"quotas": "403"}), REFUSED, id="quotas-unreadable"),
        pytest.param(
            lacking_one(event(900), pods=(made(0, 9000), made(1, 9000), made(2, 300))), "", id="a-pod-was-made-since"
        ),
        pytest.param(
            lacking_one(event(2000, first=2000), event(10, first=10)), "", id="the-old-one-is-over-the-new-one-fresh"
        ),
        pytest.param(lacking_one(event(10, first=10), event(900)), REFUSED, id="several-of-one-refusal"),
        pytest.param(
            lacking_one(event(0, **NAMELESS_TIMES, series={"lastObservedTime": at(600), "count": 9})),
            REFUSED,
            id="a-series",
        ),
        pytest.param(lacking_one(event(10, about=ABOUT_SET | {"uid": "other"})), "", id="of-another"),
    ],
)
def test_a_refusal_lasts_until_something_newer_shows_its_end(seen: ClusterSnapshot, text: str) -> None:
    assert not_created(seen.workload or {}, seen) == text


def of_storage(requested: str) -> Obj:
    """A refusal for what a LimitRange gave the pod: its template does not say it."""
    counts = f"requested: {requested}, used: requests.ephemeral-storage=30Gi, limited: requests.ephemeral-storage=30Gi"
    return event(900, message=f"forbidden: exceeded quota: team, {counts}")


@pytest.mark.parametrize(
    ("used", "requested", "is_refused"),
    [
        pytest.param("30Gi", "requests.ephemeral-storage=10Gi", True, id="nothing-left"),
        pytest.param("25Gi", "requests.ephemeral-storage=10Gi", True, id="too-little-left"),
        pytest.param("20Gi", "requests.ephemeral-storage=10Gi", False, id="enough-left"),
        pytest.param("30Gi", "pods=1,requests.ephemeral-storage=10Gi", True, id="one-of-two"),
        pytest.param("20Gi", "requests.ephemeral-storage=lots", True, id="no-amount"),
        pytest.param("30Gi", "limits.ephemeral-storage=10Gi", False, id="not-limited-any-more"),
    ],
)
def test_a_quota_admits_again_only_what_the_refusal_says_was_asked_for(
    used: str, requested: str, *, is_refused: bool
) -> None:
    name = "requests.ephemeral-storage"
    seen = lacking_one(of_storage(requested), quotas=(quota({"pods": "9", name: "30Gi"}, {"pods": "3", name: used}),))
    assert bool(not_created(seen.workload or {}, seen)) is is_refused


class Counted(tuple[Obj, ...]):
    """Pods that count how often all of them are looked at."""

    passes = 0

    def __iter__(self) -> Iterator[Obj]:
        self.passes += 1
        return super().__iter__()


def test_the_pods_of_the_cluster_are_looked_at_once_for_many_refusals() -> None:
    """A controller repeats a refusal with other numbers, and each poll of a wait reads all of those."""
    pods = Counted(made(number, 9000) for number in range(3))
    seen = lacking_one(*(event(10 + number) for number in range(30)), all_pods=pods)
    assert (not_created(seen.workload or {}, seen), pods.passes) == (REFUSED, 1)


def test_a_deployment_whose_quota_was_widened_is_waited_for() -> None:
    seen = snapshot(workload=refused(at(900)), quotas=(quota({"pods": "9"}, {"pods": "4"}),))
    assert not_created(seen.workload or {}, seen) == ""
    full = replace(seen, quotas=(quota({"pods": "4"}, {"pods": "4"}),))
    assert not_created(full.workload or {}, full) == f"a pod cannot be created: {REFUSAL}"


# --- what a whole pod counts for --------------------------------------------------------------------------------------


def asking(name: str, cpu: str, *, gpus: str = "", **fields: Any) -> Obj:
    return {"name": name, "resources": {"requests": {"cpu": cpu} | ({"nvidia.com/gpu": gpus} if gpus else {})}} | fields


def of_parts(containers: list[Obj], init: list[Obj], **spec: Any) -> Obj:
    made = template()
    return {**made, "spec": made["spec"] | {"containers": containers, "initContainers": init} | spec}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("parts", "cpu"),
    [
        pytest.param(of_parts([asking("vllm", "2")], [asking("proxy", "1", **SIDECAR)]), 3, id="a-sidecar-stays"),
        pytest.param(of_parts([asking("vllm", "2")], [asking("download", "1")]), 2, id="an-init-container-ends"),
        pytest.param(of_parts([asking("vllm", "2")], [asking("download", "5")]), 5, id="the-most-at-any-time"),
        pytest.param(
            of_parts([asking("vllm", "2")], [asking("proxy", "1", **SIDECAR), asking("download", "5")]),
            6,
            id="beside-the-sidecars-before-it",
        ),
        pytest.param(
            of_parts([asking("vllm", "2")], [asking("download", "5"), asking("proxy", "1", **SIDECAR)]),
            5,
            id="not-beside-those-after-it",
        ),
        pytest.param(of_parts([asking("vllm", "2")], [], overhead={"cpu": "1"}), 3, id="its-runtime-class-adds"),
        pytest.param(
            of_parts([asking("vllm", "2")], [], resources={"requests": {"cpu": "4"}}), 4, id="set-for-the-whole-pod"
        ),
    ],
)
def test_a_pod_counts_with_its_sidecars_and_its_largest_init_container(parts: Obj, cpu: int) -> None:
    limit = quota({"requests.cpu": "60"}, {"requests.cpu": "0"})
    room = quota_room(snapshot(workload=deployment(parts), quotas=(limit,), pods=()), [(parts, 1)])
    assert isinstance(room, QuotaRoom)
    assert room.replicas == 60 // cpu


def test_a_sidecar_on_a_gpu_takes_one_of_the_node_too() -> None:
    parts = of_parts([asking("vllm", "2", gpus="1")], [asking("draft-model", "1", gpus="1", **SIDECAR)])
    found = capacity_of(snapshot(workload=deployment(parts), all_pods=()))
    assert isinstance(found, Capacity)
    assert found.replicas_that_fit == 6, "two of each node's four"


def test_a_quota_that_one_container_of_several_says_nothing_about_is_not_worked_out() -> None:
    silent = {"name": "exporter", "resources": {}}
    parts = of_parts([asking("vllm", "2"), silent], [])
    limit = quota({"requests.cpu": "10"}, {"requests.cpu": "0"})
    room = quota_room(snapshot(workload=deployment(parts), quotas=(limit,), pods=()), [(parts, 1)])
    assert room == "ResourceQuota team counts requests.cpu, which container exporter of the pod template does not set"


def test_what_was_added_at_admission_is_known_from_a_running_pod() -> None:
    """A LimitRange fills in what a container does not set, and an injected proxy counts too."""
    parts = of_parts([{"name": "vllm", "resources": {}}], [])
    running = pod(1)
    filled = [asking("vllm", "2"), asking("istio-proxy", "1")]
    running = {**running, "spec": running["spec"] | {"containers": filled}}
    limit = quota({"requests.cpu": "10"}, {"requests.cpu": "3"})
    seen = snapshot(workload=deployment(parts), quotas=(limit,), pods=(running,))
    room = quota_room(seen, [(parts, 1)])
    assert isinstance(room, QuotaRoom)
    assert room.replicas == 2, "each counts for three"
    old = {**running, "metadata": pod(1, revision=1)["metadata"]}
    assert isinstance(quota_room(replace(seen, pods=(old,)), [(parts, 1)]), str), "a pod of another template"
