"""How a replica can be drained: drain modes, the label that removes it from rotation, and missing data."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.changes.drain import drain_mode
from bot.domain.cluster.capacity import Capacity, capacity_for
from bot.domain.cluster.rotation import Rotation, RotationKey, rotation_key, rotation_of
from bot.domain.cluster.snapshot import Obj
from tests.domain.changes.snapshots import deployment, endpoint_slice, node, pod, service, snapshot, template

pytestmark = pytest.mark.fast
NO_HOOK: Obj = {"lifecycle": {}}


def with_grace(seconds: int | None, **fields: Any) -> Obj:
    made = template(**fields)
    made["spec"]["terminationGracePeriodSeconds"] = seconds
    return made


def hook(*command: str) -> Obj:
    return {"lifecycle": {"preStop": {"exec": {"command": list(command)}}}}


@pytest.mark.parametrize(
    ("pod_template", "services", "mode", "text"),
    [
        pytest.param(template(), (service(),), "native", "preStop 10 s, then up to 20 s", id="native"),
        pytest.param(template(**hook("sh", "-c", "sleep 15")), (service(),), "native", "preStop 15 s", id="exec-sleep"),
        pytest.param(template(**hook("/drain.sh")), (service(),), "label", "preStop sleeps not at all", id="a-script"),
        pytest.param(
            template(lifecycle={"preStop": {"sleep": {"seconds": 5}}}), (service(),), "label", "sleeps 5 s", id="short"
        ),
        pytest.param(template("--max-num-seqs=64"), (service(),), "label", "--shutdown-timeout is 0", id="engine-cuts"),
        pytest.param(with_grace(30), (service(),), "label", "grace 30 s is shorter", id="grace-too-short"),
        pytest.param(with_grace(45), (service(),), "native", "grace 45 s", id="grace-just-enough"),
        pytest.param(with_grace(None), (service(),), "label", "grace 30 s", id="default-grace"),
        pytest.param(template(**NO_HOOK), (service(app="llm"),), "orphan", "its ReplicaSet lets it go", id="orphan"),
        pytest.param(template(**NO_HOOK), (), "none", "no Service and no InferencePool selects it", id="none"),
    ],
)
def test_the_drain_mode_follows_from_spec_and_selectors(
    pod_template: Obj, services: tuple[Obj, ...], mode: str, text: str
) -> None:
    found = drain_mode(snapshot(workload=deployment(pod_template), services=services))
    assert (found.mode, text in found.text) == (mode, True), found.text


def test_only_a_native_drain_ends_a_replica_without_cutting_its_streams() -> None:
    assert not drain_mode(snapshot()).cuts_streams
    assert drain_mode(snapshot(workload=deployment(template(**NO_HOOK)))).cuts_streams


def test_the_label_is_one_that_every_service_and_no_replica_set_selects_by() -> None:
    seen = snapshot(services=(service(), service("other", serving="active", app="llm")))
    assert rotation_key(seen, pod(1)["metadata"]["labels"]) == RotationKey("serving", "active")


def test_rotation_is_unknown_when_it_cannot_be_read() -> None:
    assert rotation_of(snapshot(unreadable={"endpoint_slices": "403"})) is None


def test_rotation_counts_what_the_slices_list() -> None:
    seen = snapshot(endpoint_slices=(endpoint_slice(pod(1), pod(3)),))
    assert rotation_of(seen) == Rotation(("llm-1", "llm-3"), ("llm-1", "llm-2", "llm-3", "llm-4"), wanted=4)


def test_an_endpoint_that_is_not_ready_is_out_of_rotation() -> None:
    seen = endpoint_slice(pod(1), pod(2))
    seen["endpoints"][0]["conditions"]["ready"] = False
    found = rotation_of(snapshot(endpoint_slices=(seen,)))
    assert found is not None
    assert found.in_rotation == ("llm-2",)


def on(**spec: Any) -> Obj:
    made = template()
    made["spec"] |= spec
    return made


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-node-3"]}]}
            ]
        }
    }
}
TAINTED = node(3, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("pod_template", "nodes", "fit"),
    [
        pytest.param(template(), (node(1), node(2), node(3)), 8, id="all-nodes"),
        pytest.param(on(nodeSelector={"kubernetes.io/hostname": "gpu-node-1"}), (node(1), node(2)), 2, id="selector"),
        pytest.param(on(affinity=AFFINITY), (node(1), node(2), node(3)), 3, id="affinity"),
        pytest.param(template(), (TAINTED,), 0, id="taint"),
        pytest.param(on(tolerations=[{"key": "gpu", "operator": "Exists"}]), (TAINTED,), 3, id="tolerated-key"),
        pytest.param(on(tolerations=[{"key": "gpu", "value": "yes"}]), (TAINTED,), 3, id="tolerated-value"),
        pytest.param(on(tolerations=[{"key": "gpu", "value": "no"}]), (TAINTED,), 0, id="other-value"),
        pytest.param(
            template(resources={"limits": {"nvidia.com/gpu": "3"}}), (node(1), node(2), node(3)), 2, id="whole-sets"
        ),
    ],
)
def test_room_is_counted_on_nodes_that_would_take_the_pod(pod_template: Obj, nodes: tuple[Obj, ...], fit: int) -> None:
    # Replicas hold 2, 1 and 1 accelerators of the three nodes.
    room = capacity_for(snapshot(nodes=nodes), pod_template)
    assert isinstance(room, Capacity)
    assert room.replicas_that_fit == fit


def test_room_without_accelerators_is_not_known() -> None:
    assert "asks for no accelerator" in str(capacity_for(snapshot(), template(resources={})))
