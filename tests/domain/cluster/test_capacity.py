"""Accelerators that another scheduler counts, or that pods wait for: what is free now."""

import copy
from dataclasses import replace

import pytest

from bot.domain.cluster.capacity import Capacity, capacity_for, capacity_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.cluster.placing import fits, node

pytestmark = pytest.mark.fast
SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20k"}


def asking(limits: dict[str, str]) -> Obj:
    return {"spec": {"containers": [{"name": "vllm", "resources": {"limits": limits}}]}}


def room(limits: dict[str, str], *pods: Obj) -> Capacity | str:
    workload = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"template": asking(limits)}}
    return capacity_of(ClusterSnapshot(at=0.0, workload=workload, nodes=(node("n1", "a"),), all_pods=pods))


def running(limits: dict[str, str], on: str = "n1") -> Obj:
    spec = asking(limits)["spec"] | {"nodeName": on}
    return {"metadata": {"name": "llm-1", "namespace": "serving"}, "spec": spec, "status": {"phase": "Running"}}


def test_a_kind_that_no_node_lists_but_running_pods_hold_is_left_out_of_the_count() -> None:
    found = room(SHARE, running(SHARE))
    assert fits(found) == 3
    assert isinstance(found, Capacity)
    assert found.free == {"n1": 3}
    assert found.explanation == (
        "not counted, so there may be less: no node lists nvidia.com/gpumem, although running pods hold it"
    )


def test_where_nothing_else_can_be_counted_the_room_is_not_known() -> None:
    found = room({"nvidia.com/gpumem": "20k"}, running(SHARE))
    assert found == "no node lists nvidia.com/gpumem, although running pods hold it, so its room is not known"


@pytest.mark.parametrize("pods", [(), (running(SHARE, on="gone"),)], ids=["nobody", "a-pod-of-a-node-that-is-gone"])
def test_a_kind_that_nobody_holds_on_these_nodes_is_not_there(pods: tuple[Obj, ...]) -> None:
    assert fits(room(SHARE, *pods)) == 0


GPUS = {"nvidia.com/gpu": "4"}


def waiting(**spec: list[Obj]) -> Obj:
    made = asking(GPUS)["spec"] | spec
    return {"metadata": {"name": "train-1", "namespace": "jobs"}, "spec": made, "status": {"phase": "Pending"}}


def test_pods_that_the_scheduler_does_not_look_at_take_nothing_first() -> None:
    assert fits(room(GPUS, waiting())) == 0
    found = room(GPUS, waiting(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
    assert fits(found) == 1
    assert isinstance(found, Capacity)
    assert found.explanation == ""


CLAIMED: Obj = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}]}


@pytest.mark.parametrize("limits", [{}, {"rdma/hca": "1"}], ids=["nothing-else", "and-network-cards"])
def test_devices_that_pods_claim_are_not_counted_as_room(limits: dict[str, str]) -> None:
    made = asking(limits)
    made["spec"] |= CLAIMED
    workload = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"template": made}}
    found = capacity_of(ClusterSnapshot(at=0.0, workload=workload, nodes=(node("n1", "a"),)))
    assert found == "its pods claim devices (resourceClaims), which are not counted, so its room is not known"


def test_a_plan_works_out_the_room_of_one_snapshot_once() -> None:
    """A plan asks for it a dozen times, and each count looks at every pod of the cluster."""
    wanted = asking(GPUS)
    workload = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"template": wanted}}
    seen = ClusterSnapshot(at=0.0, workload=workload, nodes=(node("n1", "a"),))
    first = capacity_for(seen, wanted)
    assert capacity_for(seen, copy.deepcopy(wanted)) is first
    assert fits(capacity_for(seen, asking({"nvidia.com/gpu": "1"}))) == 4
    assert fits(capacity_for(replace(seen, nodes=()), wanted)) == 0


@pytest.mark.parametrize(
    ("value", "replicas"),
    [
        pytest.param("40960", 1, id="above"),
        pytest.param("24564", 0, id="below"),
        pytest.param("unknown", 0, id="not-a-number-matches-nothing"),
    ],
)
def test_a_node_whose_label_has_to_be_above_a_number_is_compared_as_the_scheduler_does(
    value: str, replicas: int
) -> None:
    term = {"matchExpressions": [{"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["30000"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    workload: Obj = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"template": asking(GPUS)}}
    workload["spec"]["template"]["spec"]["affinity"] = affinity
    there = node("n1", "a")
    there["metadata"]["labels"]["nvidia.com/gpu.memory"] = value
    assert fits(capacity_of(ClusterSnapshot(at=0.0, workload=workload, nodes=(there,)))) == replicas
