"""Node autoscalers: a pod may be Pending while a node is added, and a refusal ends the wait at once with the reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.progress import Progress, progress
from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.missing_pods import waits_for
from bot.domain.cluster.node_autoscaler import growth_of, scale_up_answer
from bot.domain.cluster.objects import name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import NOW, declined, deployment, grade, node, planned, pod, snapshot, weighed

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
FULL = (node(1, gpus=2), node(2, gpus=1), node(3, gpus=1))
"""As many accelerators as the four replicas hold."""
NO_ROOM = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
TRIGGERED = "pod triggered scale-up: [{gpu-nodes 1->2 (max: 4)}]"
AT_MAX = "pod didn't trigger scale-up: 1 max node group size reached"
KARPENTERS = "Failed to schedule pod, no instance type has enough resources"


def stamp(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(reason: str, message: str, *, ago: float = 60, first: float | None = None, about: str = "llm-5") -> Obj:
    name = "llm-6b7f9c-abcde" if about == "llm-5" else about
    about_pod = {"kind": "Pod", "namespace": "serving", "name": name, "uid": f"{about}-uid"}
    times = {"firstTimestamp": stamp(ago if first is None else first), "lastTimestamp": stamp(ago)}
    return {"involvedObject": about_pod, "reason": reason, "message": message, **times}


def status(seconds_ago: float = 10) -> Obj:
    at = datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%d %H:%M:%S")
    note = {"cluster-autoscaler.kubernetes.io/last-updated": f"{at}.123456 +0000 UTC"}
    return {"metadata": {"name": "cluster-autoscaler-status", "annotations": note}}


def karpenters_node() -> Obj:
    made = node(1)
    made["metadata"]["labels"]["karpenter.sh/nodepool"] = "gpu"
    return made


def pending(*, for_seconds: float) -> Obj:
    made = pod(5, is_ready=False)
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}
    made["spec"].pop("nodeName", None)
    made["metadata"] |= {"name": "llm-5", "uid": "llm-5-uid"}
    made["status"] = {"phase": "Pending", "conditions": [{**scheduled, "lastTransitionTime": stamp(for_seconds)}]}
    return made


def five(for_seconds: float, *events: Obj, **parts: Any) -> ClusterSnapshot:
    """Scaled to five on a full cluster; the fifth pod cannot be scheduled."""
    pods = (*(pod(number) for number in (1, 2, 3, 4)), pending(for_seconds=for_seconds))
    workload = deployment(replicas=5)
    workload["status"] |= {"replicas": 5, "updatedReplicas": 5}
    given = {"nodes": FULL, "autoscaler_status": status(), **parts}
    return snapshot(workload=workload, pods=pods, all_pods=pods, scale_up_events=events, **given)


def waited(seen: ClusterSnapshot) -> Progress:
    plan = planned("scale", {"by": 1}, snapshot(nodes=FULL, autoscaler_status=status()))
    wait = next(step for step in plan.steps if isinstance(step, Wait))
    return progress(wait, seen)


@pytest.mark.parametrize(
    ("parts", "by", "may"),
    [
        pytest.param({}, "", False, id="none"),
        pytest.param({"autoscaler_status": status()}, "Cluster Autoscaler", True, id="its-status"),
        pytest.param({"autoscaler_status": status(3600)}, "", False, id="its-status-is-old"),
        pytest.param({"nodes": (karpenters_node(),)}, "Karpenter", True, id="nodes-of-karpenter"),
        pytest.param(
            {"scale_up_events": (event("TriggeredScaleUp", TRIGGERED, about="other-1"),)},
            "a node autoscaler",
            True,
            id="seen-at-work",
        ),
        pytest.param({"unreadable": {"autoscaler_status": "403"}}, "", None, id="not-readable"),
        pytest.param(
            {"autoscaler_status": status(), "scale_up_events": (event("NotTriggerScaleUp", AT_MAX),)},
            "Cluster Autoscaler",
            False,
            id="it-refused-just-now",
        ),
        pytest.param(
            {"autoscaler_status": status(), "scale_up_events": (event("NotTriggerScaleUp", AT_MAX, ago=900),)},
            "Cluster Autoscaler",
            True,
            id="it-refused-long-ago",
        ),
        pytest.param(
            {"autoscaler_status": status(), "scale_up_events": (event("NotTriggerScaleUp", AT_MAX, about="web-1"),)},
            "Cluster Autoscaler",
            True,
            id="it-refused-others",
        ),
        pytest.param(
            {
                "autoscaler_status": status(),
                "scale_up_events": (event("NotTriggerScaleUp", AT_MAX, about="llm-embed-6b7f9c-abcde"),),
            },
            "Cluster Autoscaler",
            True,
            id="it-refused-a-workload-whose-name-begins-alike",
        ),
    ],
)
def test_whether_a_node_may_come_is_read_from_what_the_cluster_shows(
    parts: dict[str, Any], by: str, may: bool | None
) -> None:
    growth = growth_of(snapshot(**parts))
    assert (growth.by, growth.is_possible) == (by, may)


@pytest.mark.parametrize(
    ("events", "state", "text"),
    [
        pytest.param([], None, "", id="nothing"),
        pytest.param([event("TriggeredScaleUp", TRIGGERED, ago=180)], "coming", "requested 3 minutes ago", id="asked"),
        pytest.param([event("Nominated", "Pod should schedule on: nodeclaim/a")], "coming", "nodeclaim/a", id="karp"),
        pytest.param([event("NotTriggerScaleUp", AT_MAX)], "refused", "max node group size", id="refused"),
        pytest.param([event("FailedScheduling", KARPENTERS)], "refused", "no instance type", id="karpenter-refuses"),
        pytest.param([event("FailedScheduling", "volcano says no")], None, "", id="another-scheduler"),
        pytest.param(
            [event("NotTriggerScaleUp", AT_MAX, ago=90), event("TriggeredScaleUp", TRIGGERED, ago=30)],
            "coming",
            "1->2",
            id="asked-after-a-refusal",
        ),
        pytest.param(
            [event("TriggeredScaleUp", TRIGGERED, ago=300), event("NotTriggerScaleUp", AT_MAX, ago=5)],
            "refused",
            "max node group size",
            id="refused-after-all",
        ),
        pytest.param(
            [event("Nominated", "Pod should schedule on: nodeclaim/a", ago=20, first=960)],
            "late",
            "has not come",
            id="late-although-repeated",
        ),
        pytest.param(
            [event("Nominated", f"Pod should schedule on: nodeclaim/{n}", ago=60 + 240 * n) for n in range(4)],
            "coming",
            "requested 1 minutes ago (4 requests, the first 13 minutes ago)",
            id="no-capacity-again-and-again",
        ),
        pytest.param([event("TriggeredScaleUp", TRIGGERED, about="llm-6")], None, "", id="another-pod"),
    ],
)
def test_the_newest_event_about_a_pod_counts(events: list[Obj], state: str | None, text: str) -> None:
    answer = scale_up_answer(pending(for_seconds=60), snapshot(scale_up_events=tuple(events)))
    assert (answer.state if answer else None) == state
    assert text in (answer.text if answer else "")


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        pytest.param(five(30), "pending", "4 of 5", id="just-now"),
        pytest.param(five(90), "pending", "4 of 5", id="the-autoscaler-has-not-looked-yet"),
        pytest.param(five(90, autoscaler_status=None), "failed", "Insufficient", id="no-autoscaler"),
        pytest.param(five(180), "failed", "Insufficient", id="it-says-nothing"),
        pytest.param(
            five(600, event("TriggeredScaleUp", TRIGGERED, ago=590)),
            "pending",
            "llm-5 is Pending: a node is being added, requested 10 minutes ago",
            id="for-ten-minutes",
        ),
        pytest.param(five(5, event("NotTriggerScaleUp", AT_MAX, ago=1)), "failed", AT_MAX, id="refused-at-once"),
        pytest.param(
            five(960, event("TriggeredScaleUp", TRIGGERED, ago=950)), "failed", "has not come", id="it-never-came"
        ),
    ],
)
def test_a_pod_may_be_pending_while_a_node_is_added(seen: ClusterSnapshot, state: str, text: str) -> None:
    found = waited(seen)
    assert (found.state, text in found.text) == (state, True), found.text


def test_a_canary_waits_for_its_node_beyond_its_progress_deadline() -> None:
    plan = planned("canary", EDIT, snapshot(nodes=FULL, autoscaler_status=status()))
    wait = next(step for step in plan.steps if isinstance(step, Wait))
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    canary = {**plan.calls[0].body, "status": {"conditions": [late]}}
    canary["metadata"] = {**canary["metadata"], "uid": "c"}
    waiting = pending(for_seconds=660)
    waiting["metadata"]["labels"] |= {"incident-bot/canary": "inc-42"}
    asked = event("TriggeredScaleUp", TRIGGERED, ago=650)
    seen = snapshot(canary=canary, pods=(*(pod(n) for n in (1, 2, 3, 4)), waiting), scale_up_events=(asked,))
    found = progress(wait, seen)
    assert (found.state, "requested 11 minutes ago" in found.text) == ("pending", True), found.text


@pytest.mark.parametrize("verb", ["scale", "canary"])
def test_no_free_accelerator_is_a_warning_where_a_node_may_come(verb: str) -> None:
    arguments = {"by": 1} if verb == "scale" else EDIT
    assert "cannot be scheduled" in declined(verb, arguments, snapshot(nodes=FULL)).reason
    plan = planned(verb, arguments, snapshot(nodes=FULL, autoscaler_status=status()))
    assert grade(plan, "room") == "warning", "so nothing that was approved ahead covers the price of a node"
    assert "Cluster Autoscaler may add a node" in weighed(plan, "room")
    assert "Pending for 8 to 12 minutes" in weighed(plan, "room")


def test_after_a_refusal_the_same_is_not_tried_again() -> None:
    seen = snapshot(
        nodes=FULL,
        autoscaler_status=status(),
        scale_up_events=(event("NotTriggerScaleUp", AT_MAX, about="llm-6b7f9c-9zx4q"),),
    )
    assert AT_MAX in declined("scale", {"by": 1}, seen).reason


def test_the_platform_decides_about_another_node_too() -> None:
    plan = planned("scale", {"by": 1}, snapshot(nodes=FULL, autoscaler_status=status()))
    assert plan.approved_by == ("serving", "platform")
    assert "a node has to be added" in weighed(plan, "last_room")


def test_a_quota_that_refuses_the_pod_lets_no_node_come() -> None:
    quota = {
        "metadata": {"name": "team"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "4"}},
        "status": {"hard": {"requests.nvidia.com/gpu": "4"}, "used": {"requests.nvidia.com/gpu": "4"}},
    }
    room = capacity_of(snapshot(nodes=FULL, autoscaler_status=status(), quotas=(quota,)))
    assert isinstance(room, Capacity)
    assert room.growth.is_possible is False


def test_the_wait_has_time_for_another_node_only_if_one_is_needed() -> None:
    def within(**parts: Any) -> float:
        plan = planned("scale", {"by": 1}, snapshot(autoscaler_status=status(), **parts))
        return next(step.within_seconds for step in plan.steps if isinstance(step, Wait))

    assert within(nodes=FULL) == within() + 900


def test_the_digest_is_the_same_with_and_without_room() -> None:
    wanted = [planned("canary", EDIT, snapshot(autoscaler_status=status(), **parts)) for parts in ({}, {"nodes": FULL})]
    assert wanted[0].digest == wanted[1].digest


@pytest.mark.parametrize(
    ("events", "kind"),
    [([event("TriggeredScaleUp", TRIGGERED)], "node"), ([event("NotTriggerScaleUp", AT_MAX)], "gpu"), ([], "gpu")],
)
def test_what_a_missing_replica_waits_for_follows_from_the_event(events: list[Obj], kind: str) -> None:
    found, text = waits_for(five(600, *events))
    assert found == kind
    assert all(str(each["message"]) in text for each in events)


def test_a_replica_for_which_the_scheduler_makes_room_waits_for_its_start() -> None:
    seen = five(600, event("NotTriggerScaleUp", AT_MAX))
    seen.pods[-1]["status"]["nominatedNodeName"] = "gpu-node-1"
    assert waits_for(seen) == (
        "start",
        f"{name_of(seen.pods[-1])} waits for the room that the scheduler makes on gpu-node-1",
    )
    assert waited(seen).state == "pending"
