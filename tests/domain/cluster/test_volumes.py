"""Volumes of one node or one pod: a pod that another node takes would wait for them without end."""

from typing import Any

import pytest

from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import declined, deployment, node, planned, pod, snapshot, template, weighed
from tests.domain.cluster.placing import fits
from tests.domain.cluster.test_node_autoscaler import status

pytestmark = pytest.mark.fast
VOLUMES: dict[str, Any] = {"volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}]}
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}


def claim(*modes: str, name: str = "weights") -> Obj:
    return {"metadata": {"name": name, "namespace": "serving"}, "spec": {"accessModes": list(modes)}}


def using(on: str, *, name: str = "llm-1", namespace: str = "serving", phase: str = "Running") -> Obj:
    made = pod(1)
    made["metadata"] |= {"name": name, "namespace": namespace}
    return made | {"spec": made["spec"] | VOLUMES | {"nodeName": on}, "status": made["status"] | {"phase": phase}}


def world(*claims: Obj, pods: tuple[Obj, ...] = (using("gpu-node-1"),), **parts: Any) -> ClusterSnapshot:
    made = template()
    made["spec"] |= VOLUMES
    nodes = parts.pop("nodes", tuple(node(number) for number in (1, 2, 3)))
    workload = parts.pop("workload", deployment(made, replicas=len(pods)))
    return snapshot(workload=workload, claims=claims, pods=pods, all_pods=pods, nodes=nodes, **parts)


ONCE, ONE_POD = claim("ReadWriteOnce"), claim("ReadWriteOncePod")


@pytest.mark.parametrize(
    ("seen", "room"),
    [
        pytest.param(world(ONCE), 3, id="only-on-its-node"),
        pytest.param(world(ONE_POD), 0, id="only-for-that-pod"),
        pytest.param(world(claim("ReadWriteMany")), 11, id="on-every-node"),
        pytest.param(world(claim("ReadWriteOnce", "ReadOnlyMany")), 11, id="read-on-every-node"),
        pytest.param(world(ONCE, pods=(using("gpu-node-1"), using("gpu-node-2", name="llm-2"))), 10, id="used-on-two"),
        pytest.param(world(ONCE, pods=(using("gpu-node-1"), using("gpu-node-2", name="llm-2", phase="Pending"))), 3,
                     id="another-pod-waits-for-it"),
        pytest.param(world(claim("ReadWriteOnce", name="other")), 11, id="not-its-own"),
        pytest.param(
            world(ONCE, pods=(using("gpu-node-1", namespace="other"),)), 11, id="a-claim-of-that-name-elsewhere"
        ),
        pytest.param(world(ONCE, pods=(using("gpu-node-1", phase="Failed"),)), 12, id="the-pod-has-ended"),
    ],
)  # fmt: skip
def test_a_pod_fits_where_its_volumes_can_be_attached(seen: ClusterSnapshot, room: int) -> None:
    assert fits(capacity_of(seen)) == room


def test_a_canary_that_its_volume_keeps_off_the_free_nodes_is_refused_with_the_reason() -> None:
    full = world(ONCE, nodes=(node(1, gpus=1), node(2)))
    result = declined("canary", EDIT, full)
    assert result.outcome == "impossible"
    assert "gpu-node-2: volume claim weights is attached to gpu-node-1 only" in result.reason


def test_no_node_is_waited_for_that_the_volume_cannot_be_attached_to() -> None:
    full = world(ONCE, nodes=(node(1, gpus=1), node(2)), autoscaler_status=status())
    assert "volume claim weights" in declined("canary", EDIT, full).reason


def test_a_rollout_goes_in_place_where_no_surge_pod_gets_the_volume() -> None:
    pods = (using("gpu-node-1"), using("gpu-node-1", name="llm-2"))
    plan = planned("set_flags", EDIT, world(ONCE, pods=pods, nodes=(node(1, gpus=2), node(2))))
    assert weighed(plan, "room").startswith("no room for a surge pod")


def test_a_node_is_drained_of_the_only_pod_that_uses_a_volume() -> None:
    idle = using("gpu-node-1")
    idle["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert planned("drain_node", {"node": "gpu-node-1"}, world(ONCE, pods=(idle,), endpoint_slices=()))


def test_a_claim_that_could_not_be_read_is_no_gap_in_silence() -> None:
    found = capacity_of(world(unreadable={"claims": "no role grants it"}))
    assert isinstance(found, Capacity)
    assert "where weights can be attached could not be read: no role grants it" in found.explanation
