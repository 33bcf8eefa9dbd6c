"""Room for pods that take a port of their node: one pod to a node."""

from typing import Any

import pytest

from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.cluster.placing import fits, node

pytestmark = pytest.mark.fast
SPREAD = {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}


def serving(port: Obj, **spec: Any) -> Obj:
    container = {"name": "vllm", "ports": [port], "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [container], **spec}}


def held(name: str, on: str, port: Obj, phase: str = "Running", **spec: Any) -> Obj:
    made = serving(port, nodeName=on, **spec)
    return {"metadata": {"name": name, "namespace": "other"}, "spec": made["spec"], "status": {"phase": phase}}


def room(wanted: Obj, *pods: Obj) -> Capacity | str:
    workload = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"template": wanted}}
    nodes = (node("n1", "a"), node("n2", "a"))
    return capacity_of(ClusterSnapshot(at=0.0, workload=workload, nodes=nodes, all_pods=pods))


PORT: Obj = {"containerPort": 8000, "hostPort": 8000}
PLAIN: Obj = {"containerPort": 8000}
OTHER: Obj = {"containerPort": 9000, "hostPort": 9000}
SIDECAR: Obj = {"name": "proxy", "ports": [PORT], "restartPolicy": "Always"}


def test_a_node_has_room_for_one_pod_with_a_host_port() -> None:
    assert fits(room(serving(PORT))) == 2
    assert fits(room(serving(PLAIN, hostNetwork=True))) == 2
    assert fits(room(serving(PLAIN))) == 8


def test_a_node_whose_port_is_held_has_no_room_and_is_named() -> None:
    found = room(serving(PORT), held("llm-1", "n1", PORT), held("llm-2", "n2", PORT))
    assert fits(found) == 0
    assert isinstance(found, Capacity)
    assert found.explanation == "n1: port 8000 is held by llm-1; n2: port 8000 is held by llm-2"


@pytest.mark.parametrize(
    ("there", "count"),
    [
        pytest.param(held("x", "n1", PLAIN, hostNetwork=True), 1, id="by-the-network-of-the-node"),
        pytest.param(held("x", "n1", PLAIN), 2, id="only-in-the-pod"),
        pytest.param(held("x", "n1", PORT | {"hostPort": 9000}), 2, id="another-port"),
        pytest.param(held("x", "n1", PORT | {"protocol": "UDP"}), 2, id="another-protocol"),
        pytest.param(held("x", "n1", PORT | {"hostIP": "127.0.0.1"}), 1, id="on-one-address"),
        pytest.param(held("x", "n1", PORT, phase="Failed"), 2, id="it-has-ended"),
        pytest.param(held("x", "n1", OTHER, initContainers=[SIDECAR]), 1, id="by-a-native-sidecar"),
        pytest.param(held("x", "n1", OTHER, initContainers=[{"name": "i", "ports": [PORT]}]), 2, id="before-it-runs"),
    ],
)
def test_what_holds_the_port_of_a_node(there: Obj, count: int) -> None:
    assert fits(room(serving(PORT), there)) == count


def test_ports_of_different_addresses_do_not_clash() -> None:
    there = held("x", "n1", PORT | {"hostIP": "127.0.0.1"})
    assert fits(room(serving(PORT | {"hostIP": "10.0.0.1"}), there)) == 2


def test_a_held_port_leaves_no_room_whatever_rules_are_not_worked_out() -> None:
    found = room(serving(PORT, **SPREAD), held("llm-1", "n1", PORT), held("llm-2", "n2", PORT))
    assert fits(found) == 0
