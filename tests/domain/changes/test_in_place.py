"""Rollouts where not one more pod fits: each replica ends before its successor starts, one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.approvals.announced import covered
from bot.domain.approvals.grant import Covered
from bot.domain.changes.plan import Call, Plan
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests import builders
from tests.domain.changes.ledgers import after, entry, with_ledger
from tests.domain.changes.snapshots import (
    declined,
    deployment,
    endpoint_slice,
    grade,
    load,
    node,
    planned,
    pod,
    snapshot,
    template,
    weighed,
)
from tests.domain.changes.test_canary import with_canary
from tests.domain.changes.test_rollback_and_undo import stuck

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
FULL = (node(1, gpus=2), node(2, gpus=1), node(3, gpus=1))
BUSY = {f"llm-{number}": load(running=30, waiting=12) for number in (1, 2, 3, 4)}
ONE_AT_A_TIME = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
NO_MORE = {
    "metadata": {"name": "gpus"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "4"}},
    "status": {"used": {"requests.nvidia.com/gpu": "4"}},
}


def full(**parts: Any) -> ClusterSnapshot:
    return snapshot(**{"nodes": FULL, "load": BUSY} | parts)


def labelled(count: int = 2, **parts: Any) -> ClusterSnapshot:
    """Replicas without preStop, which a label takes out of rotation."""
    made = deployment(template(lifecycle={}), replicas=count)
    pods = tuple(pod(number) for number in range(1, count + 1))
    nodes = tuple(node(number, gpus=len(pods[number - 1 :: 3])) for number in (1, 2, 3))
    return full(workload=made, pods=pods, nodes=nodes, **parts)


def strategies(plan: Plan, workload: Obj) -> list[Any]:
    """The strategy of the workload after each of the calls that change it."""
    found = []
    for call in plan.calls:
        if call.target.kind == "Deployment":
            workload = applied(call.body, workload)
            found.append(workload["spec"]["strategy"])
    return found


@pytest.mark.parametrize(("verb", "arguments"), [("set_flags", EDIT), ("restart", {}), ("rollback", {})])
def test_a_full_cluster_is_changed_in_place_and_keeps_its_strategy(verb: str, arguments: Any) -> None:
    seen = full()
    plan = planned(verb, arguments, seen)
    assert strategies(plan, seen.workload or {}) == [ONE_AT_A_TIME, deployment()["spec"]["strategy"]]
    assert [step.title if isinstance(step, Call) else step.condition for step in plan.steps][1:] == [
        "rolled_out",
        "Put the rollout strategy of llm back",
    ]
    # Between the two it is listed as left over: each later rollout would cost capacity.
    assert [call.holds for call in plan.calls] == [True, False]


def test_the_request_shows_what_is_lost_meanwhile_and_the_load_on_the_others() -> None:
    plan = planned("set_flags", EDIT, full())
    assert grade(plan, "room") == "warning"
    assert weighed(plan, "room") == (
        "no room for a surge pod (0 free accelerators on schedulable nodes): 3 of 4 serve meanwhile, each with 33% more"
        "; 30 requests run on each now, then up to 40; 48 wait"
    )
    assert plan.expected.startswith("3 of 4 replicas serve until 4 have started")
    assert "25% of the capacity is missing" in plan.expected
    assert "at most 1 replicas less" in weighed(plan, "disruption_budget")


def with_the_last_gpu(**parts: Any) -> ClusterSnapshot:
    """A canary that serves has taken the only GPU that was free."""
    seen = with_canary(nodes=(node(1, gpus=2), node(2, gpus=1), node(3, gpus=2)))
    return replace(seen, all_pods=seen.pods, load={**BUSY, "llm-9": load(running=30)}, **parts)


def test_a_canary_that_serves_replaces_the_replica_that_is_down_meanwhile() -> None:
    plan = planned("promote", {}, with_the_last_gpu())
    assert grade(plan, "room") == "note"
    assert weighed(plan, "room").endswith(
        "3 of 4 serve meanwhile beside the canary, each with 25% more; 30 requests run on each now, then up to 38;"
        " 48 wait"
    )
    assert plan.expected == "3 of 4 replicas and the canary serve while the replicas are replaced one by one"


def test_a_canary_that_serves_nobody_replaces_none() -> None:
    plan = planned("promote", {}, with_the_last_gpu(endpoint_slices=(endpoint_slice(*snapshot().pods),)))
    assert grade(plan, "room") == "warning"
    assert "25% of the capacity is missing" in plan.expected


def test_an_approval_of_the_canary_and_its_rollout_covers_a_rollout_in_place_beside_it() -> None:
    rollout = Covered(state="roll", verb="promote", title="Roll it out", risk="high")
    shown = planned("canary", EDIT, snapshot()).model_copy(update={"risk": "high"})
    request = builders.request(plan=shown, status="granted", covers=(rollout,))
    assert covered(planned("promote", {}, with_the_last_gpu()), "high", "roll", [request]) == "R1 covers it"


def test_a_load_that_is_not_known_is_shown_as_such() -> None:
    assert "how many requests run now is not known" in weighed(planned("set_flags", EDIT, full(load={})), "room")


@pytest.mark.parametrize(
    ("load", "text"),
    [
        pytest.param(BUSY, "30 requests run now; 12 wait", id="busy"),
        pytest.param({}, "how many requests run now is not known", id="not-known"),
    ],
)
@pytest.mark.parametrize(("verb", "arguments"), [("rollback", {}), ("set_flags", EDIT)])
def test_where_a_quota_refuses_the_other_replicas_nobody_carries_the_load_meanwhile(
    verb: str, arguments: Any, load: Any, text: str
) -> None:
    seen = snapshot(pods=(pod(1),), workload=deployment(replicas=2), quotas=(NO_MORE,), load=load)
    plan = planned(verb, arguments, seen)
    assert weighed(plan, "room").endswith(f"): none serves meanwhile; {text}")
    assert plan.expected.startswith("all of it, until a replica has started again")


@pytest.mark.parametrize("there", [(pod(1, revision=1),), ()], ids=["it-runs-the-earlier-one", "none-is-there"])
def test_a_rollback_for_which_no_replica_has_to_end_costs_nothing(there: tuple[Obj, ...]) -> None:
    plan = planned("rollback", {}, snapshot(pods=there, workload=deployment(replicas=2), quotas=(NO_MORE,)))
    assert weighed(plan, "room").endswith("4 of 4 used)), and no replica has to end")
    assert plan.expected == "none: no replica has to end"


def test_a_quota_that_admits_no_surge_pod_is_named() -> None:
    plan = planned("set_flags", EDIT, snapshot(quotas=(NO_MORE,), load=BUSY))
    assert "ResourceQuota gpus admits 0 more (requests.nvidia.com/gpu: 4 of 4 used)" in weighed(plan, "room")
    assert len(plan.calls) == 2


def test_the_only_replica_is_never_replaced_in_place() -> None:
    alone = full(workload=deployment(replicas=1), pods=(pod(1),), nodes=(node(1, gpus=1),))
    assert "cannot be scheduled" in declined("set_flags", EDIT, alone).reason


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"nodes": (*FULL, node(4, gpus=1))}, id="one-free"),
        pytest.param({"unreadable": {"nodes": "403"}}, id="not-known"),
    ],
)
def test_where_a_surge_pod_fits_or_that_is_not_known_no_capacity_is_given_up(parts: Any) -> None:
    assert len(planned("set_flags", EDIT, full(**parts)).calls) == 1


def test_each_replica_is_empty_before_it_ends_and_its_successor_starts() -> None:
    plan = planned("set_flags", EDIT, labelled())
    assert [step.title if isinstance(step, Call) else step.condition for step in plan.steps] == [
        "Choose llm-1 as the replica that ends",
        "out_of_rotation",
        "emptied",
        "Set --max-num-seqs 6 on llm",
        "released",
        "surge_ready",
        "Choose llm-2 as the replica that ends",
        "out_of_rotation",
        "emptied",
        "Let llm-2 end, which is empty",
        "released",
        "surge_ready",
        "Let the rollout go",
        "rolled_out",
    ]
    assert [call.ends for call in plan.calls if call.ends] == [("llm-1-uid",), ("llm-2-uid",)]
    assert [call.holds for call in plan.calls if call.holds is not None] == [True, True, False]


def test_a_held_rollout_in_place_lets_exactly_one_more_end_at_a_time() -> None:
    seen = labelled(3)
    rounds = [one["rollingUpdate"] for one in strategies(planned("set_flags", EDIT, seen), seen.workload or {})]
    assert rounds == [
        *({"maxSurge": 0, "maxUnavailable": number} for number in (1, 2, 3)),
        {"maxSurge": 1, "maxUnavailable": 0},
    ]


@pytest.mark.parametrize("seen", [full(), labelled(4)], ids=["native", "label"])
def test_taking_it_back_goes_in_place_too(seen: ClusterSnapshot) -> None:
    plan = planned("set_flags", EDIT, seen)
    calls = [call for call in plan.calls if call.target.kind == "Deployment"]
    changed = after(seen, plan.model_copy(update={"steps": tuple(calls)}))
    ledger = with_ledger(*(entry(call, number) for number, call in enumerate(calls)))
    undo = planned("undo", {"of": "last"}, changed, ledger)
    workload = changed.workload or {}
    assert strategies(undo, workload)[0]["rollingUpdate"]["maxSurge"] == 0
    for call in undo.calls:
        workload = applied(call.body, workload) if call.target.kind == "Deployment" else workload
    assert workload["spec"] == (seen.workload or {})["spec"]


def test_a_surge_pod_that_crashes_makes_room_by_ending() -> None:
    """The replicas that serve already run the template: nothing has to start, so none of them has to end first."""
    seen = replace(stuck(), nodes=(node(1, gpus=2), node(2, gpus=2), node(3, gpus=1)))
    assert len(planned("rollback", {}, seen).calls) == 1


def test_with_a_rule_that_is_not_worked_out_a_full_cluster_is_full() -> None:
    spread = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]
    spreading = template()
    spreading["spec"]["topologySpreadConstraints"] = spread
    seen = full(workload=deployment(spreading))
    assert strategies(planned("set_flags", EDIT, seen), seen.workload or {})[0] == ONE_AT_A_TIME
    assert "cannot be scheduled: 0 free accelerators" in declined("canary", EDIT, seen).reason
