"""Room for pods with anti-affinity: no claim that the scheduler would refuse, and unknowns are reported."""

from typing import Any

import pytest

from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.cluster.placing import HOST, ZONE, fits, node

pytestmark = pytest.mark.fast


def term(app: str = "llm", key: str = HOST, **more: Any) -> Obj:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def apart(*terms: Obj) -> Obj:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def pod(name: str, node: str, *, app: str = "other", namespace: str = "serving", gpus: int = 1, **spec: Any) -> Obj:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"nodeName": node, **template(gpus, **spec)["spec"]},
        "status": {"phase": "Running"},
    }


def template(gpus: int = 1, **spec: Any) -> Obj:
    container = {"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [container], **spec}}


def room(*pods: Obj, **spec: Any) -> Capacity | str:
    workload = {"metadata": {"name": "llm", "namespace": "serving"}, "spec": {"template": template(**spec)}}
    nodes = (node("n1", "a"), node("n2", "a"), node("n3", "b"))
    return capacity_of(ClusterSnapshot(at=0.0, workload=workload, nodes=nodes, all_pods=pods))


def test_replicas_that_shun_each_other_get_one_node_each() -> None:
    assert fits(room()) == 12
    assert fits(room(**apart(term()))) == 3


def test_a_node_with_a_pod_that_they_shun_has_no_room_and_is_named() -> None:
    found = room(pod("llm-a", "n1", app="llm"), **apart(term()))
    assert fits(found) == 2
    assert isinstance(found, Capacity)
    assert found.explanation == "n1: its pods must be apart from llm-a"


@pytest.mark.parametrize(
    ("there", "count"),
    [
        pytest.param(pod("x", "n1", **apart(term())), 8, id="by-host"),
        pytest.param(pod("x", "n1", **apart(term(key=ZONE))), 4, id="by-zone"),
        pytest.param(pod("x", "n1", namespace="far", **apart(term())), 11, id="of-another-namespace"),
        pytest.param(
            pod("x", "n1", namespace="far", **apart(term(namespaceSelector={}))), 8, id="that-reaches-our-namespace"
        ),
        pytest.param(pod("x", "n1", **apart(term("somebody"))), 11, id="about-others"),
    ],
)
def test_the_rule_of_a_pod_that_is_there_keeps_new_ones_away_too(there: Obj, count: int) -> None:
    assert fits(room(there)) == count


NOT_WORKED_OUT = [
    pytest.param(
        {"topologySpreadConstraints": [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
        f"its pods must spread over {ZONE}",
        id="spread",
    ),
    pytest.param(apart(term(key=ZONE)), f"apart from others by {ZONE}", id="by-zone"),
    pytest.param(apart(term(matchLabelKeys=["pod-template-hash"])), f"apart from others by {HOST}", id="by-keys"),
    pytest.param(
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("cache")]}}},
        "its pods must be near other pods",
        id="near",
    ),
]


@pytest.mark.parametrize(("spec", "reason"), NOT_WORKED_OUT)
def test_what_is_not_worked_out_makes_room_unknown(spec: Obj, reason: str) -> None:
    found = room(**spec)
    assert isinstance(found, str)
    assert reason in found
    assert found.endswith("so its room is not known")


@pytest.mark.parametrize(("spec", "reason"), NOT_WORKED_OUT)
def test_where_no_accelerator_is_free_no_rule_makes_room(spec: Obj, reason: str) -> None:
    full = [pod(f"llm-{name}", name, app="llm", gpus=4, **spec) for name in ("n1", "n2", "n3")]
    assert fits(room(*full, **spec)) == 0, reason


def test_rules_that_are_not_worked_out_are_not_taken_for_a_lack_of_room() -> None:
    """Only pods of the same revision must be apart, so that a new revision fits beside them."""
    rule = apart(term(matchLabelKeys=["pod-template-hash"]))
    taken = [pod(f"llm-{name}", name, app="llm", **rule) for name in ("n1", "n2", "n3")]
    assert isinstance(room(*taken, **rule), str)


def test_a_wish_is_no_rule() -> None:
    wished = {"topologySpreadConstraints": [{"topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}]}
    assert fits(room(**wished)) == 12
