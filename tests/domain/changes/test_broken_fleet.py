"""Changes of a fleet whose replicas crash or wait for room, while nothing is being rolled out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.ledgers import after, entry, with_ledger
from tests.domain.changes.numbered import numbered_world, stateful_set
from tests.domain.changes.snapshots import (
    declined,
    deployment,
    endpoint_slice,
    grade,
    node,
    planned,
    pod,
    replica_set,
    snapshot,
    template,
    weighed,
)
from tests.domain.changes.test_in_place import BUSY, EDIT, FULL, strategies
from tests.domain.changes.test_progress import ending, unscheduled

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
    ("workload", "reason"),
    [
        pytest.param(half_way(), "3 of 4 updated", id="an-old-replica-is-there"),
        pytest.param(unseen(), "has not seen its last change", id="the-controller-is-behind"),
        pytest.param(fleet(3, progressing=ROLLING), "3 available", id="the-last-new-one-starts"),
    ],
)
def test_a_rollout_under_way_is_waited_for_whatever_its_replicas_do(workload: Obj, reason: str) -> None:
    assert reason in declined("set_flags", EDIT, with_crashes(1, workload=workload)).reason


@pytest.mark.parametrize(("current", "is_rolling"), [("llm-b", False), ("llm-a", True)])
def test_a_stateful_set_whose_revision_is_the_current_one_is_not_rolling(current: str, is_rolling: bool) -> None:
    workload = stateful_set()
    workload["status"] |= {"availableReplicas": 2, "readyReplicas": 2, "currentRevision": current}
    seen = numbered_world(workload)
    if is_rolling:
        assert "not finished" in declined("set_flags", EDIT, seen).reason
    else:
        planned("set_flags", EDIT, seen)


# --- a quota --------------------------------------------------------------------------------------------------------

REFUSED = {
    "type": "ReplicaFailure",
    "status": "True",
    "lastTransitionTime": "2027-01-15T07:00:00Z",
    "message": "exceeded quota: gpus",
}
THREE = {
    "metadata": {"name": "gpus"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "3"}},
    "status": {"used": {"requests.nvidia.com/gpu": "3"}},
}


def refused(template_of_pods: Obj | None = None, **parts: Any) -> ClusterSnapshot:
    """Somebody asked for four replicas, and a quota admits three."""
    workload = deployment(template_of_pods)
    workload["status"] |= dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), 3)
    workload["status"]["conditions"] = [ROLLING, REFUSED]
    return snapshot(**{"workload": workload, "pods": snapshot().pods[:3], "quotas": (THREE,), "load": BUSY} | parts)


def with_pods(seen: ClusterSnapshot, *pods: Obj) -> ClusterSnapshot:
    workload = seen.workload or {}
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), len(pods))
    return replace(seen, workload={**workload, "status": workload["status"] | counts}, pods=pods, all_pods=pods)


@pytest.mark.parametrize("drains_itself", [True, False])
@pytest.mark.parametrize(("verb", "arguments"), [("set_flags", EDIT), ("restart", {}), ("rollback", {})])
def test_a_rollout_beside_replicas_that_a_quota_refuses_ends_when_the_others_run_it(
    verb: str, arguments: Any, drains_itself: bool
) -> None:
    seen = refused(None if drains_itself else template(lifecycle={}))
    plan = planned(verb, arguments, seen)
    workload = seen.workload or {}
    for call in plan.calls:
        workload = applied(call.body, workload) if call.target.kind == "Deployment" else workload
    newest = replica_set(3, workload["spec"]["template"])
    done = replace(seen, workload=workload, replica_sets=(*seen.replica_sets, newest))
    waits = [step for step in plan.steps if isinstance(step, Wait)]
    ready = [wait.parameters["ready"] for wait in waits if wait.condition == "surge_ready"]
    assert ready == ([] if drains_itself else [1, 2, 3])
    (rolled,) = [wait for wait in waits if wait.condition == "rolled_out"]
    two = with_pods(done, *(pod(number, revision=3) for number in (5, 6)))
    three = with_pods(done, *(pod(number, revision=3) for number in (5, 6, 7)))
    assert progress(rolled, two).state == "pending"
    assert progress(rolled, three).state == "done"
    assert progress(rolled, three).text == "3 of 4 replicas run the new template, 1 refused as before"


@pytest.mark.parametrize(
    ("verb", "arguments"), [("replace_replica", {"replica": "llm-2"}), ("drain_node", {"node": "gpu-node-2"})]
)
def test_a_replica_is_replaced_although_a_quota_refuses_another(verb: str, arguments: Any) -> None:
    seen = refused()
    wait = next(
        step for step in planned(verb, arguments, seen).steps if isinstance(step, Wait) and step.condition == "replaced"
    )
    # Its successor has not been made yet, or the quota was refilled by somebody else.
    assert progress(wait, with_pods(seen, pod(1), pod(3))).state == "pending"
    done = progress(wait, with_pods(seen, pod(1), pod(3), pod(5)))
    assert (done.state, done.text) == ("done", "3 of 4 replicas Ready, 1 refused as before, llm-2 is gone")


def test_fewer_replicas_may_still_be_more_than_a_quota_admits() -> None:
    seen = refused(workload=(refused().workload or {}) | {"spec": deployment(replicas=6)["spec"]})
    (wait,) = [step for step in planned("scale", {"to": 4}, seen).steps if isinstance(step, Wait)]
    scaled = progress(wait, refused())
    assert (scaled.state, scaled.text) == ("done", "3 of 4 replicas Ready, 1 refused as before")


def test_what_a_node_drain_evicts_makes_room_in_the_quota() -> None:
    full = {"metadata": {"name": "gpus"}, "spec": {"hard": {"pods": "4"}}, "status": {"used": {"pods": "4"}}}
    assert grade(planned("drain_node", {"node": "gpu-node-2"}, snapshot(quotas=(full,))), "room") == "fine"


def test_a_stateful_set_replaces_no_replica_while_one_is_refused() -> None:
    workload = stateful_set(replicas=4)
    about = {"kind": "StatefulSet", "name": "llm", "uid": "sts-uid"}
    times = {"firstTimestamp": "2027-01-15T07:00:00Z", "lastTimestamp": "2027-01-15T07:59:30Z"}
    event = {"involvedObject": about, "message": "exceeded quota: gpus", **times}
    seen = numbered_world(workload, quotas=(THREE,), failed_creates=(event,))
    reason = declined("set_flags", EDIT, seen).reason
    assert "3 of 4 updated, 3 available; a pod cannot be created: exceeded quota: gpus" in reason


def test_a_rollout_that_a_quota_holds_up_says_so() -> None:
    workload = refused().workload or {}
    half = {**workload, "status": workload["status"] | {"updatedReplicas": 1}}
    reason = declined("set_flags", EDIT, refused(workload=half)).reason
    assert "1 of 4 updated, 3 available; a pod cannot be created: exceeded quota: gpus" in reason


# --- in place ---------------------------------------------------------------------------------------------------------


def without_surge(unavailable: int) -> Obj:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": unavailable}}


def test_in_place_as_many_more_may_be_missing_as_no_node_takes() -> None:
    """Their successors are Pending too: with one unavailable, the first of these would stop the rollout."""
    plan = planned("set_flags", EDIT, with_two_pending())
    assert strategies(plan, fleet(4, replicas=6)) == [without_surge(3), deployment()["spec"]["strategy"]]
    assert plan.calls[0].differences[-1].text == (
        "in place: no surge, one replica at a time ends before its successor starts; the 2 without a node end with the"
        " first"
    )


def test_what_a_rollout_in_place_costs_is_counted_from_the_replicas_that_serve() -> None:
    plan = planned("set_flags", EDIT, with_two_pending())
    assert "3 of 6 serve meanwhile, each with 33% more; 30 requests run on each now, then up to 40" in weighed(
        plan, "room"
    )
    assert plan.expected.startswith(
        "3 of 6 replicas serve until 4 have started, one after the other: 50% of the capacity is missing, 33% already"
    )
    assert "at most 3 replicas less" in weighed(plan, "disruption_budget")


def test_a_crashed_replica_ends_first_and_makes_room_so_nothing_more_is_lost() -> None:
    seen = with_crashes(1, nodes=FULL, load=BUSY)
    plan = planned("set_flags", EDIT, seen)
    assert strategies(plan, fleet(3))[0] == without_surge(1)
    assert "3 of 4 serve meanwhile, as now; 40 requests run on each now; 48 wait" in weighed(plan, "room")


def test_where_no_replica_serves_a_rollout_in_place_costs_nothing() -> None:
    plan = planned("set_flags", EDIT, with_crashes(4, nodes=FULL))
    assert "none serves meanwhile" in weighed(plan, "room")
    assert "no replica serves now, until one has started again" in plan.expected


def test_with_a_surge_only_the_replicas_that_serve_are_counted_as_staying() -> None:
    assert "the 3 of 4 replicas that serve stay in rotation" in planned("set_flags", EDIT, with_crashes(1)).expected


def test_the_only_replica_is_replaced_in_place_once_it_is_down() -> None:
    pods = (pod(1, is_ready=False),)
    down = snapshot(workload=fleet(0, replicas=1), pods=pods, nodes=(node(1, gpus=1),), endpoint_slices=())
    assert strategies(planned("set_flags", EDIT, down), fleet(0, replicas=1))[0] == without_surge(1)


def test_replicas_without_a_node_end_with_the_first_that_was_emptied() -> None:
    seen = with_two_pending(workload=fleet(4, replicas=6, pod_template=template(lifecycle={})))
    plan = planned("set_flags", EDIT, seen)
    assert [one["rollingUpdate"]["maxUnavailable"] for one in strategies(plan, seen.workload or {})] == [3, 4, 5, 6, 0]
    assert [set(call.ends) for call in plan.calls if call.ends] == [
        {"llm-5-uid", "llm-6-uid", "llm-1-uid"},
        {"llm-2-uid"},
        {"llm-3-uid"},
        {"llm-4-uid"},
    ]
    ready = [step.parameters["ready"] for step in plan.steps if isinstance(step, Wait) and "ready" in step.parameters]
    assert ready == [1, 2, 3, 4]


def rolled(*pods: Obj, ready: int, nodes: tuple[Obj, ...] = FULL) -> ClusterSnapshot:
    """After `set_flags` on six replicas, four of which have room."""
    workload = applied(planned("set_flags", EDIT, with_two_pending()).calls[0].body, fleet(4, replicas=6))
    workload["status"] |= {"availableReplicas": ready}
    sets = (*snapshot().replica_sets, replica_set(3, workload["spec"]["template"]))
    return with_two_pending(workload=workload, pods=pods, replica_sets=sets, nodes=nodes)


NEW = tuple(pod(number, revision=3) for number in (11, 12, 13, 14))
WAITING = tuple(pending(number, revision=3) for number in (15, 16, 17))


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        pytest.param(
            rolled(*NEW, *WAITING[:2], ready=4),
            "done",
            "4 of 6 replicas run the new template, 2 without room on a node",
            id="all-that-have-room",
        ),
        pytest.param(rolled(*NEW[:3], *WAITING[:2], pod(4), ready=4), "pending", "3 of 6", id="an-old-one-serves"),
        pytest.param(rolled(*NEW[:3], *WAITING, ready=3), "pending", "3 of 6", id="the-last-one-gets-the-room-soon"),
        pytest.param(
            rolled(*NEW[:3], *WAITING, ready=3, nodes=(node(1, gpus=1), node(2, gpus=1))),
            "failed",
            "cannot be scheduled",
            id="one-more-has-no-room",
        ),
    ],
)
def test_replicas_that_had_no_node_before_may_stay_pending(seen: ClusterSnapshot, state: str, text: str) -> None:
    wait = next(step for step in planned("set_flags", EDIT, with_two_pending()).steps if isinstance(step, Wait))
    assert wait.title == "4 of 6 replicas of llm run it and are Ready"
    found = progress(wait, seen)
    assert (found.state, text in found.text) == (state, True), found.text


def left_pending(ready: int = 4, *, progressing: Obj = ROLLING, **parts: Any) -> ClusterSnapshot:
    """After a rollout in place of six replicas, four of which have room."""
    pods = (*(pod(number, is_ready=number <= ready) for number in (1, 2, 3, 4)), pending(5), pending(6))
    slices = (endpoint_slice(*pods[:ready]),)
    workload = fleet(ready, replicas=6, progressing=progressing)
    return with_two_pending(**{"workload": workload, "pods": pods, "endpoint_slices": slices} | parts)


GAVE_UP = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(left_pending(), id="at-once"),
        pytest.param(left_pending(3, progressing=GAVE_UP), id="when-a-replica-crashes-later"),
    ],
)
def test_after_a_rollout_beside_replicas_without_room_the_next_one_is_planned(seen: ClusterSnapshot) -> None:
    assert planned("set_flags", EDIT, seen)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(left_pending(3), id="the-last-one-with-room-starts"),
        pytest.param(left_pending(nodes=(node(1, gpus=4), node(2, gpus=4))), id="room-is-there-by-now"),
        pytest.param(
            left_pending(pods=(*left_pending().pods, ending(pod(7, revision=1)))), id="an-old-one-releases-its-room"
        ),
    ],
)
def test_a_rollout_whose_last_replicas_get_room_soon_is_not_over(seen: ClusterSnapshot) -> None:
    assert "not finished" in declined("set_flags", EDIT, seen).reason


# --- Recreate ---------------------------------------------------------------------------------------------------------


def recreated(crashing: int) -> ClusterSnapshot:
    """A full cluster, so that neither a surge nor a replica after the other would be possible."""
    return with_crashes(crashing, workload=fleet(4 - crashing, strategy={"type": "Recreate"}), nodes=FULL)


@pytest.mark.parametrize(("verb", "arguments"), [("rollback", {}), ("set_flags", EDIT), ("restart", {})])
def test_a_recreated_fleet_of_which_nothing_is_available_loses_nothing(verb: str, arguments: Any) -> None:
    plan = planned(verb, arguments, recreated(4))
    assert strategies(plan, recreated(4).workload or {}) == [{"type": "Recreate"}]
    assert "no replica serves now, until one has started again" in plan.expected
    assert weighed(plan, "capacity") == "Recreate ends all 4 replicas before the first new one starts; 0 serve now"
    assert "no room is needed" in weighed(plan, "room")
    assert "at most 4 replicas less" in weighed(plan, "disruption_budget")


@pytest.mark.parametrize(("verb", "arguments"), [("rollback", {}), ("set_flags", EDIT), ("restart", {})])
def test_a_recreated_fleet_that_serves_would_be_down_at_once(verb: str, arguments: Any) -> None:
    assert "every replica would be down at once" in declined(verb, arguments, recreated(3)).reason


def test_taking_a_recreated_fleet_back_says_that_all_replicas_are_down_meanwhile() -> None:
    done = planned("rollback", {}, recreated(4))
    serves = replace(after(recreated(4), done), pods=tuple(pod(number, revision=1) for number in (5, 6, 7, 8)))
    plan = planned("undo", {}, serves, with_ledger(entry(done.calls[0])))
    assert plan.expected.startswith("all of it, until a replica has started again")
    assert "4 serve now" in weighed(plan, "capacity")
