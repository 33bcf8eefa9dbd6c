"""Pods of lower priority: for a pod that finds no room the scheduler ends them, also if they belong to another team."""

from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import declined, node, planned, pod, snapshot, weighed
from tests.domain.cluster.test_node_autoscaler import status

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
FIRST = "may end pods of lower priority for it"


def ranked(made: Obj, priority: int, **spec: Any) -> Obj:
    return made | {"spec": made["spec"] | {"priority": priority} | spec}


def training(number: int, *, priority: int = 0, on: str = "gpu-node-2", **spec: Any) -> Obj:
    made = ranked(pod(9), priority, nodeName=on, **spec)
    metadata = {"name": f"train-{number}", "namespace": "research", "uid": f"train-{number}-uid"}
    return made | {"metadata": made["metadata"] | metadata}


def world(*others: Obj, priority: int = 1000, grows: bool = True, **spec: Any) -> ClusterSnapshot:
    """Every GPU is taken: two by ours, on the first node, and two on the second."""
    ours = tuple(ranked(pod(number), priority, nodeName="gpu-node-1", **spec) for number in (1, 2))
    parts: dict[str, Any] = {"autoscaler_status": status()} if grows else {}
    nodes = (node(1, gpus=2), node(2, gpus=2))
    return snapshot(pods=ours, all_pods=(*ours, *others), nodes=nodes, **parts)


@pytest.mark.parametrize(("verb", "arguments"), [("canary", EDIT), ("scale", {"by": 1})], ids=["canary", "scale"])
def test_a_request_names_the_pods_that_the_scheduler_may_end_for_it(verb: str, arguments: dict[str, Any]) -> None:
    room = weighed(planned(verb, arguments, world(training(1), training(2))), "room")
    assert f"the scheduler {FIRST}: research/train-1, research/train-2" in room
    assert "8 to 12 minutes" in room


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(world(training(1, priority=1000), training(2, priority=2000)), id="none-is-lower"),
        pytest.param(world(training(1), training(2), preemptionPolicy="Never"), id="ours-never-preempt"),
        pytest.param(world(training(1, on="gpu-node-9"), training(2, priority=1000), training(3, priority=1000)),
                     id="on-no-node-that-takes-it"),
    ],
)  # fmt: skip
def test_nothing_is_said_where_no_pod_has_to_end(seen: ClusterSnapshot) -> None:
    assert FIRST not in weighed(planned("canary", EDIT, seen), "room")


def test_pods_end_only_where_that_makes_enough_room() -> None:
    """A replica of two GPUs gets none from a node on which only one is held by a lower pod."""
    both = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    seen = world(training(1), training(2, priority=1000))
    container = seen.workload["spec"]["template"]["spec"]["containers"][0]  # type: ignore[index]
    container |= both
    assert FIRST not in weighed(planned("canary", EDIT, seen), "room")


def test_a_refusal_names_them_too() -> None:
    result = declined("canary", EDIT, world(training(1), training(2), grows=False))
    assert "pods of lower priority hold some: research/train-1, research/train-2" in result.hint
