"""cordon, uncordon, drain: which pods move, which are skipped, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Call, Wait
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.machine.changing import takes_back
from bot.domain.incidents.run import ActiveChange
from tests import builders
from tests.domain.changes.snapshots import (
    CONTEXT,
    declined,
    deployment,
    endpoint_slice,
    grade,
    node,
    owner,
    planned,
    pod,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
NODE = {"node": "gpu-node-1"}


def other(name: str, kind: str = "ReplicaSet", **annotations: str) -> Obj:
    metadata: Obj = {"name": name, "namespace": "batch", "uid": f"{name}-uid", "annotations": annotations}
    if kind:
        metadata["ownerReferences"] = owner(kind, f"{name}-owner", "x")
    return {"metadata": metadata, "spec": {"nodeName": "gpu-node-1"}, "status": {"phase": "Running"}}


def with_others(*others: Obj, **parts: Any) -> ClusterSnapshot:
    seen = snapshot(**parts)
    return replace(seen, all_pods=(*seen.all_pods, *others))


def cordoned(**annotations: str) -> ClusterSnapshot:
    found = node(1, unschedulable=True)
    found["metadata"]["annotations"] = annotations
    return snapshot(nodes=(found, node(2), node(3)))


def test_a_node_is_cordoned_by_its_name_or_by_one_of_its_replicas() -> None:
    by_name, by_replica = (
        planned("cordon_node", NODE, snapshot()),
        planned("cordon_node", {"replica": "llm-1"}, snapshot()),
    )
    assert by_name.digest == by_replica.digest
    after = applied(
        by_name.calls[0].body,
        snapshot().nodes[0] | {"metadata": {**snapshot().nodes[0]["metadata"], "annotations": {}}},
    )
    assert (after["spec"]["unschedulable"], after["metadata"]["annotations"]) == (
        True,
        {"incident-bot/incident": "INC-42"},
    )


def test_a_cordoned_node_needs_no_cordon() -> None:
    assert declined("cordon_node", NODE, cordoned()).outcome == "not_needed"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({"incident-bot/incident": "INC-42"}, "fine", id="ours"),
        pytest.param({"incident-bot/incident": "INC-7"}, "warning", id="of-another-incident"),
        pytest.param({}, "warning", id="of-somebody-else"),
    ],
)
def test_uncordoning_what_somebody_else_cordoned_is_a_warning(annotations: dict[str, str], expected: str) -> None:
    assert grade(planned("uncordon_node", NODE, cordoned(**annotations)), "cordon") == expected


@pytest.mark.parametrize(
    ("annotations", "is_back"),
    [
        pytest.param({"incident-bot/incident": "INC-42"}, True, id="ours"),
        pytest.param({"incident-bot/incident": "INC-7"}, True, id="of-another-incident"),
        pytest.param({}, False, id="of-somebody-else"),
    ],
)
def test_an_uncordon_takes_back_only_what_the_bot_cordoned(annotations: dict[str, str], *, is_back: bool) -> None:
    plan = planned("uncordon_node", NODE, cordoned(**annotations))
    change = ActiveChange(state="uncordon", verb="uncordon_node")
    assert takes_back(change, plan) == is_back
    assert takes_back(change, None)


@pytest.mark.parametrize("verb", ["cordon_node", "drain_node"])
def test_what_a_cordon_takes_from_the_fleet_is_weighed(verb: str) -> None:
    seen = snapshot(nodes=(node(1), node(2, unschedulable=True), node(3)))
    text = "1 of 3 nodes still take pods; 1 cordoned already; 8 of 12 GPUs would be cordoned"
    assert weighed(planned(verb, NODE, seen), "nodes") == text


def test_the_platform_team_decides_what_puts_a_node_back_and_nobody_special_what_is_only_ours() -> None:
    assert planned("uncordon_node", NODE, cordoned()).approved_by == ("platform",)
    assert planned("drain_node", {**NODE, "others": "evict"}, snapshot()).approved_by == ()
    assert planned("cordon_node", NODE, snapshot()).approved_by == ()


def test_a_cordon_and_its_undo_leave_the_node_as_it_was() -> None:
    before = cordoned()
    plan = planned("uncordon_node", NODE, before)
    after = applied(plan.calls[0].body, before.nodes[0])
    assert applied(plan.calls[0].undo[0].body, after) == before.nodes[0]


def test_the_undo_of_a_cordon_uncordons_and_says_that_pods_may_come_back() -> None:
    call = planned("cordon_node", NODE, snapshot()).calls[0]
    entry = builders.ledger_entry(call_id="INC-42/R1/0", verb="cordon_node", target=call.target, undo=call.undo)
    seen = cordoned(**{"incident-bot/incident": "INC-42"})
    plan = planned("undo", {}, seen, replace(CONTEXT, ledger=(entry,)))
    assert applied(plan.calls[0].body, seen.nodes[0])["spec"] == {}
    assert plan.expected == "new pods can start on gpu-node-1 again, whatever is wrong there"


def test_the_undo_of_an_uncordon_says_what_a_cordon_says() -> None:
    call = planned("uncordon_node", NODE, cordoned()).calls[0]
    entry = builders.ledger_entry(call_id="INC-42/R1/0", verb="uncordon_node", target=call.target, undo=call.undo)
    plan = planned("undo", {}, snapshot(), replace(CONTEXT, ledger=(entry,)))
    assert (plan.title, plan.expected) == ("Cordon node gpu-node-1 again", "none: pods that run there keep running")


def test_a_drain_cordons_first_then_moves_each_of_ours_and_waits_for_its_replacement() -> None:
    plan = planned("drain_node", NODE, snapshot(nodes=(node(1), node(2), node(3), node(4))))
    steps = [f"{s.method} {s.target.name}" if isinstance(s, Call) else s.condition for s in plan.steps]
    assert steps == ["patch gpu-node-1", "cordoned", "evict llm-1", "replaced", "evict llm-4", "replaced"]


def test_a_replica_that_does_not_empty_itself_is_emptied_before_it_is_evicted() -> None:
    seen = snapshot(workload=deployment(template(lifecycle={})), nodes=(node(1), node(2), node(3)))
    steps = planned("drain_node", NODE, seen).steps
    assert [s.condition for s in steps if isinstance(s, Wait)][:4] == [
        "cordoned",
        "out_of_rotation",
        "emptied",
        "replaced",
    ]


def test_pods_of_others_are_listed_with_their_owners_and_left_unless_asked_for() -> None:
    seen = with_others(
        other("train-1"), other("proxy", "DaemonSet"), other("static", "", **{"kubernetes.io/config.mirror": "x"})
    )
    plan = planned("drain_node", NODE, seen)
    assert "train" not in " ".join(call.target.name for call in plan.calls)
    assert weighed(plan, "others_pods") == "1 pod of others: 1 of ReplicaSet batch/train-1-owner is left where it is"
    assert weighed(plan, "staying") == "passed by: 1 mirror pods, 1 of DaemonSets"


def test_asked_for_pods_of_others_are_evicted_last_and_that_is_a_warning() -> None:
    plan = planned("drain_node", {**NODE, "others": "evict"}, with_others(other("train-1"), other("bare", "")))
    assert (plan.calls[-1].target.name, plan.calls[-1].method) == ("train-1", "evict")
    assert (grade(plan, "others_pods"), plan.risk) == ("warning", "high")
    assert plan.approved_by == ("platform", "serving")
    assert "without a controller" in weighed(plan, "staying")


def test_a_node_whose_pods_find_no_room_elsewhere_is_not_drained() -> None:
    seen = snapshot(nodes=(node(1), node(2, gpus=1), node(3, gpus=1)))
    assert "cannot be scheduled" in declined("drain_node", NODE, seen).reason


def test_the_last_replica_in_rotation_is_not_drained_away() -> None:
    seen = snapshot(pods=(pod(1),), workload=deployment(replicas=1))
    assert "last replica in rotation" in declined("drain_node", NODE, seen).reason


def serving(*pods: Obj, besides: tuple[Obj, ...] = ()) -> ClusterSnapshot:
    """These serve, and those besides do not."""
    every = (*pods, *besides)
    slices = (endpoint_slice(*pods),)
    return snapshot(pods=every, endpoint_slices=slices, workload=deployment(replicas=len(every)))


def test_the_only_replica_that_serves_is_not_drained_away_among_broken_ones() -> None:
    seen = serving(pod(1), besides=(pod(4, is_ready=False),))
    assert "llm-1 is the last replica in rotation" in declined("drain_node", NODE, seen).reason


def test_a_lone_replica_that_serves_nothing_is_drained() -> None:
    plan = planned("drain_node", NODE, serving(besides=(pod(1, is_ready=False),)))
    assert [call.target.name for call in plan.calls if call.method == "evict"] == ["llm-1"]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(serving(pod(1), pod(2), besides=(pod(4, is_ready=False),)), id="another-serves-elsewhere"),
        pytest.param(serving(pod(1), pod(7), besides=(pod(4, is_ready=False),)), id="two-serve-on-the-node"),
    ],
)
def test_replicas_that_do_not_serve_leave_the_node_first(seen: ClusterSnapshot) -> None:
    plan = planned("drain_node", NODE, seen)
    evicted = [call.target.name for call in plan.calls if call.method == "evict"]
    assert (evicted[0], set(evicted[1:]) <= {"llm-1", "llm-7"}) == ("llm-4", True), evicted


@pytest.mark.parametrize(
    ("verb", "arguments", "reason"),
    [
        pytest.param("cordon_node", {}, "no node given", id="nothing"),
        pytest.param("cordon_node", {"node": "x"}, "there is no node x", id="unknown"),
        pytest.param("drain_node", {**NODE, "others": "kill"}, "'leave' or 'evict'", id="others"),
    ],
)
def test_a_node_verb_without_a_clear_object_says_so(verb: str, arguments: dict[str, str], reason: str) -> None:
    assert reason in declined(verb, arguments, snapshot()).reason


def test_an_empty_node_needs_no_drain() -> None:
    assert declined("drain_node", {"node": "gpu-node-3"}, snapshot(pods=(pod(1), pod(2)))).outcome == "not_needed"


@pytest.mark.parametrize("verb", ["cordon_node", "drain_node"])
@pytest.mark.parametrize("label", ["app.kubernetes.io/name", "app"])
def test_a_descheduler_may_evict_what_a_cordon_leaves_running(verb: str, label: str) -> None:
    """A cordon is a taint to it. It may be a CronJob, of which only ended pods are there."""
    runs = other("descheduler-1", "Job")
    runs["metadata"]["labels"], runs["status"] = {label: "descheduler"}, {"phase": "Succeeded"}
    seen = snapshot()
    plan = planned(verb, NODE, replace(seen, all_pods=(*seen.all_pods, runs)))
    assert grade(plan, "descheduler") == "warning"
    assert "may evict every pod from a cordoned node" in weighed(plan, "descheduler")
    assert all(each.name != "descheduler" for each in planned(verb, NODE, seen).circumstances)
