"""Changes of a fleet whose replicas crash or wait for room, while nothing is being rolled out."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import (
    declined,
    deployment,
    endpoint_slice,
    node,
    planned,
    pod,
    replica_set,
    snapshot,
    template,
    weighed,
)
from tests.domain.changes.test_in_place import BUSY, EDIT, FULL, strategies
from tests.domain.changes.test_kinds import member, numbered_world, stateful_set
from tests.domain.changes.test_progress import unscheduled

pytestmark = pytest.mark.fast
ROLLED = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
ROLLING = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}


def fleet(available: int, *, replicas: int = 4, progressing: Obj = ROLLED, **spec: Any) -> Obj:
    made = deployment(replicas=replicas, **spec)
    made["status"] |= {"availableReplicas": available, "readyReplicas": available, "conditions": [progressing]}
    return made


def with_crashes(crashing: int, **parts: Any) -> ClusterSnapshot:
    """The last `crashing` of four replicas are not Ready; each holds its GPU."""
    pods = tuple(pod(number, is_ready=number <= 4 - crashing) for number in (1, 2, 3, 4))
    slices = (endpoint_slice(*pods[: 4 - crashing]),)
    return snapshot(**{"workload": fleet(4 - crashing), "pods": pods, "endpoint_slices": slices} | parts)


def pending(number: int, *, revision: int = 2, since: float = 120) -> Obj:
    waits = pod(number, revision=revision, is_ready=False)
    del waits["spec"]["nodeName"]
    return waits | {"status": unscheduled(since)}


def with_two_pending(**parts: Any) -> ClusterSnapshot:
    """Somebody asked for six replicas, and there are GPUs for four."""
    pods = (*snapshot().pods, pending(5), pending(6))
    given = {"workload": fleet(4, replicas=6), "pods": pods, "nodes": FULL, "load": BUSY}
    return snapshot(**given | parts)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(with_crashes(1), id="one-crashes"),
        pytest.param(with_crashes(4), id="all-crash"),
        pytest.param(with_two_pending(), id="two-wait-for-room"),
    ],
)
@pytest.mark.parametrize(("verb", "arguments"), [("set_flags", EDIT), ("restart", {})])
def test_replicas_that_crash_or_wait_for_room_are_no_rollout(verb: str, arguments: Any, seen: ClusterSnapshot) -> None:
    planned(verb, arguments, seen)


def half_way() -> Obj:
    made = fleet(3)
    made["status"] |= {"updatedReplicas": 3}
    return made


def unseen() -> Obj:
    made = fleet(3)
    made["metadata"]["generation"] = 4
    return made


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        pytest.param(half_way(), "3 of 4 updated", id="an-old-replica-is-there"),
        pytest.param(unseen(), "has not seen its last change", id="the-controller-is-behind"),
        pytest.param(fleet(3, progressing=ROLLING), "3 available", id="the-last-new-one-starts"),
    ],
)
def test_a_rollout_under_way_is_waited_for_whatever_its_replicas_do(workload: Obj, said: str) -> None:
    assert said in declined("set_flags", EDIT, with_crashes(1, workload=workload)).reason


@pytest.mark.parametrize(("current", "is_rolling"), [("llm-b", False), ("llm-a", True)])
def test_a_stateful_set_whose_revision_is_the_current_one_is_not_rolling(current: str, is_rolling: bool) -> None:
    workload = stateful_set()
    workload["status"] |= {"availableReplicas": 2, "readyReplicas": 2, "currentRevision": current}
    seen = numbered_world(workload)
    if is_rolling:
        assert "not finished" in declined("set_flags", EDIT, seen).reason
    else:
        planned("set_flags", EDIT, seen)
