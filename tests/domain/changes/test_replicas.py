"""isolate, replace and return one replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import LedgerEntry, Wait
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.objects import seconds_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import (
    budget,
    declined,
    deployment,
    endpoint_slice,
    grade,
    load,
    planned,
    pod,
    service,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
ONE = {"replica": "llm-2"}
NO_DRAIN = template(lifecycle={})


def annotated(obj: Obj) -> Obj:
    return {**obj, "metadata": {"annotations": {}, **obj["metadata"]}}


def isolated_world(**parts: Any) -> ClusterSnapshot:
    """The snapshot after `isolate_replica` of llm-2."""
    out = applied(planned("isolate_replica", ONE, snapshot()).calls[0].body, annotated(pod(2)))
    pods = (pod(1), out, pod(3), pod(4))
    return replace(snapshot(pods=pods, endpoint_slices=(endpoint_slice(pods[0], *pods[2:]),)), **parts)


def test_isolating_changes_the_label_that_only_the_service_selects_by() -> None:
    plan = planned("isolate_replica", ONE, snapshot())
    out = applied(plan.calls[0].body, annotated(pod(2)))
    assert out["metadata"]["labels"] == pod(2)["metadata"]["labels"] | {"serving": "out-of-rotation"}
    assert out["metadata"]["annotations"] == {
        "incident-bot/incident": "INC-42",
        "incident-bot/rotation-label": "serving=active",
    }
    assert [s.condition for s in plan.steps if isinstance(s, Wait)] == ["out_of_rotation", "emptied"]
    assert plan.choices == {"replica": "llm-2", "uid": "llm-2-uid"}


def test_the_undo_of_isolating_gives_the_identical_pod() -> None:
    call = planned("isolate_replica", ONE, snapshot()).calls[0]
    before = annotated(pod(2))
    assert applied(call.undo[0].body, applied(call.body, before)) == before


def returned(*, others: tuple[Obj, ...]) -> tuple[ClusterSnapshot, PlanContext]:
    """The snapshot after `return_replica` of llm-2, and the context of its undo."""
    out = isolated_world()
    call = planned("return_replica", ONE, out).calls[0]
    back = applied(call.body, next(each for each in out.pods if each["metadata"]["name"] == "llm-2"))
    entry = LedgerEntry(
        call_id="INC-42/R2/0", state="s", verb="return_replica", title="", target=call.target, undo=call.undo,
        applied_at=0.0,
    )  # fmt: skip
    return snapshot(pods=(back, *others)), PlanContext(incident_id="INC-42", ledger=(entry,))


def test_the_undo_of_a_return_waits_until_the_replica_is_out_of_rotation_again() -> None:
    plan = planned("undo", {}, *returned(others=(pod(1), pod(3))))
    assert plan.title == "Take llm-2 out of rotation again"
    assert [s.condition for s in plan.steps if isinstance(s, Wait)] == ["out_of_rotation", "emptied"]


def test_the_undo_of_a_return_takes_no_last_replica_out_of_rotation() -> None:
    assert declined("undo", {}, *returned(others=())).reason == "llm-2 is the last replica in rotation"


def test_where_no_replica_serves_the_one_to_isolate_is_not_called_the_last() -> None:
    pods = (pod(1, is_ready=False), pod(2, is_ready=False))
    reason = declined("isolate_replica", ONE, snapshot(pods=pods, endpoint_slices=())).reason
    assert reason == "no replica is in rotation, so llm-2 takes no requests"


SAME_AS_REPLICA_SET = (service(app="llm"),)


@pytest.mark.parametrize(
    ("arguments", "parts", "outcome", "reason"),
    [
        pytest.param(ONE, {"pods": (pod(2),)}, "impossible", "last replica in rotation", id="last"),
        pytest.param(ONE, {"services": ()}, "impossible", "no InferencePool selects it", id="no-service"),
        pytest.param(
            ONE,
            {"services": (service(serving="active"), service("metrics", app="llm"))},
            "impossible",
            "share no label",
            id="a-second-service-would-keep-it-in",
        ),
        pytest.param({}, {}, "impossible", "no replica given", id="none"),
        pytest.param(ONE, {"unreadable": {"endpoint_slices": "403"}}, "unknown", "endpoint slices: 403", id="unknown"),
    ],
)
def test_isolating_that_cannot_be_says_why(
    arguments: dict[str, str], parts: dict[str, Any], outcome: str, reason: str
) -> None:
    result = declined("isolate_replica", arguments, snapshot(**parts))
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def ending(one: Obj) -> Obj:
    return {**one, "metadata": {**one["metadata"], "deletionTimestamp": "2026-11-20T14:00:00Z"}}


@pytest.mark.parametrize("verb", ["isolate_replica", "replace_replica"])
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        pytest.param({"pods": (pod(1), pod(3))}, "does not exist any more", id="gone"),
        pytest.param({"pods": (pod(1), ending(pod(2)), pod(3))}, "is ending already", id="ending"),
    ],
)
def test_a_replica_that_is_gone_needs_no_change(verb: str, parts: dict[str, Any], reason: str) -> None:
    result = declined(verb, ONE, snapshot(**parts))
    assert (result.outcome, reason in result.reason) == ("not_needed", True)


def test_isolating_twice_is_not_needed() -> None:
    assert declined("isolate_replica", ONE, isolated_world()).outcome == "not_needed"


def released_world(*others: Obj, **parts: Any) -> ClusterSnapshot:
    """The snapshot after llm-2 was taken out where the Service selects by the labels of the ReplicaSet."""
    seen = snapshot(services=SAME_AS_REPLICA_SET)
    out = applied(planned("isolate_replica", ONE, seen).calls[0].body, annotated(pod(2)))
    out["metadata"].pop("ownerReferences")
    pods = (pod(1), pod(3), pod(4), *others)
    slices = (endpoint_slice(*pods),)
    return replace(seen, pods=(*pods, out), endpoint_slices=slices, **parts)


@pytest.mark.parametrize(
    "services",
    [
        pytest.param(SAME_AS_REPLICA_SET, id="one-service"),
        pytest.param((service(), service("metrics", app="llm")), id="a-second-one-would-keep-it-in"),
    ],
)
def test_where_no_label_is_free_its_replica_set_lets_it_go_and_the_replacement_is_the_spare(
    services: tuple[Obj, ...],
) -> None:
    plan = planned("isolate_replica", ONE, snapshot(services=services))
    (call,) = plan.calls
    out = applied(call.body, annotated(pod(2)))
    assert out["metadata"]["labels"]["app"] == "out-of-rotation"
    assert out["metadata"]["labels"]["incident-bot/taken-from"] == deployment()["metadata"]["uid"]
    assert (call.undo, bool(call.no_undo)) == ((), True)
    assert [s.condition for s in plan.steps if isinstance(s, Wait)] == ["spare_ready", "out_of_rotation", "emptied"]


def test_without_room_for_the_replacement_it_runs_empty_all_the_same_and_people_are_warned() -> None:
    full = replace(snapshot(services=SAME_AS_REPLICA_SET), nodes=())
    plan = planned("isolate_replica", ONE, full)
    assert [s.condition for s in plan.steps if isinstance(s, Wait)] == ["out_of_rotation", "emptied"]
    assert grade(plan, "room") == "warning"
    assert "until llm-2 has ended" in weighed(plan, "room")


def test_a_stateful_set_lets_no_replica_go() -> None:
    stateful = {**deployment(), "kind": "StatefulSet"}
    result = declined("isolate_replica", ONE, snapshot(workload=stateful, services=SAME_AS_REPLICA_SET))
    assert result.outcome == "impossible"


def test_what_was_let_go_is_ended_and_nobody_scales_for_it() -> None:
    plan = planned("replace_replica", ONE, released_world(pod(5), load={"llm-2": load()}), added_one(snapshot()))
    assert [(call.method, call.target.name) for call in plan.calls] == [("evict", "llm-2")]
    assert plan.risk == "medium"


@pytest.mark.parametrize(
    ("others", "outcome"),
    [pytest.param((), "planned", id="its-replacement-waits"), pytest.param((pod(5),), "impossible", id="it-serves")],
)
def test_what_was_let_go_returns_only_while_its_replacement_does_not_serve(
    others: tuple[Obj, ...], outcome: str
) -> None:
    seen = released_world(*others)
    if outcome == "impossible":
        assert "serves already" in declined("return_replica", ONE, seen).reason
        return
    (call,) = planned("return_replica", ONE, seen).calls
    back = applied(call.body, next(each for each in seen.pods if each["metadata"]["name"] == "llm-2"))
    assert back["metadata"]["labels"] == pod(2)["metadata"]["labels"]


def test_several_are_replaced_one_after_the_other_as_one_disruption() -> None:
    plan = planned("replace_replica", {"replica": "llm-2, llm-3, llm-4"}, snapshot())
    steps = [s.condition if isinstance(s, Wait) else f"{s.method} {s.target.name}" for s in plan.steps]
    assert steps == ["evict llm-2", "replaced", "evict llm-3", "replaced", "evict llm-4", "replaced"]
    assert plan.disruption("R1") == "replica R1", "the breaker counts the request once"
    assert plan.title == "Replace 3 replicas, one after the other: llm-2, llm-3, llm-4"
    assert weighed(plan, "others").startswith("1 of 4 replicas stay")


def test_of_several_those_that_are_gone_need_no_change() -> None:
    two = {"replica": "llm-2, llm-4"}
    (call,) = planned("replace_replica", two, snapshot(pods=(pod(1), pod(2), pod(3)))).calls
    assert call.target.name == "llm-2"
    assert declined("replace_replica", two, snapshot(pods=(pod(1), pod(3)))).outcome == "not_needed"


def test_the_risk_of_replacing_several_is_that_of_all_streams_they_would_cut() -> None:
    seen = snapshot(workload=deployment(NO_DRAIN), load={f"llm-{number}": load() for number in (1, 2, 3, 4)})
    plan = planned("replace_replica", {"replica": "llm-2, llm-3"}, seen)
    assert (plan.risk, grade(plan, "drain")) == ("high", "warning")


def test_all_that_serve_may_be_replaced_one_after_the_other() -> None:
    both = {"replica": "llm-2, llm-1"}
    seen = snapshot(pods=(pod(1), pod(2)), endpoint_slices=(endpoint_slice(pod(1), pod(2)),))
    assert len(planned("replace_replica", both, seen).calls) == 2, "each serves until the one before it is back"


def test_replacing_evicts_by_uid_and_waits_for_the_new_one() -> None:
    plan = planned("replace_replica", ONE, snapshot())
    (call,) = plan.calls
    assert (call.method, call.target.uid, call.stamped, bool(call.no_undo)) == ("evict", "llm-2-uid", False, True)
    wait = plan.steps[1]
    assert isinstance(wait, Wait)
    assert (wait.condition, wait.parameters) == ("replaced", {"uid": "llm-2-uid", "replicas": 4})


@pytest.mark.parametrize(
    ("seen", "risk", "drain"),
    [
        pytest.param(snapshot(), "medium", "fine", id="drains-by-itself"),
        pytest.param(snapshot(workload=deployment(NO_DRAIN)), "high", "warning", id="in-rotation-without-a-drain"),
        pytest.param(
            isolated_world(workload=deployment(NO_DRAIN), load={"llm-2": load()}), "medium", "fine", id="empty"
        ),
        pytest.param(
            isolated_world(workload=deployment(NO_DRAIN), load={}), "high", "warning", id="not-known-to-be-empty"
        ),
    ],
)
def test_the_risk_of_replacing_is_that_of_what_it_would_cut(seen: ClusterSnapshot, risk: str, drain: str) -> None:
    plan = planned("replace_replica", ONE, seen)
    assert (plan.risk, grade(plan, "drain")) == (risk, drain)


@pytest.mark.parametrize(
    ("pdbs", "expected"),
    [
        pytest.param((), "fine", id="none"),
        pytest.param((budget(),), "fine", id="allows"),
        pytest.param((budget(allowed=0, healthy=3),), "warning", id="not-now"),
    ],
)
def test_a_budget_that_says_not_now_is_a_warning(pdbs: tuple[Obj, ...], expected: str) -> None:
    assert grade(planned("replace_replica", ONE, snapshot(pdbs=pdbs)), "disruption_budget") == expected


@pytest.mark.parametrize(
    ("pdbs", "reason"),
    [
        pytest.param((budget(allowed=0, desired=4),), "never allows", id="wants-all"),
        pytest.param((budget(), budget(name="other")), "refuses to evict", id="two-budgets"),
    ],
)
def test_a_budget_that_says_never_makes_it_impossible(pdbs: tuple[Obj, ...], reason: str) -> None:
    result = declined("replace_replica", ONE, snapshot(pdbs=pdbs))
    assert (result.outcome, reason in result.reason) == ("impossible", True), result.reason


def always_allowing() -> Obj:
    """Wants all four, and lets one go that is not Ready."""
    found = budget(allowed=0, healthy=3, desired=4)
    found["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return found


def test_a_replica_that_is_not_ready_may_go_where_its_budget_always_allows_that() -> None:
    crashed = (pod(1), pod(2, is_ready=False), pod(3), pod(4))
    plan = planned("replace_replica", ONE, snapshot(pods=crashed, pdbs=(always_allowing(),)))
    assert weighed(plan, "disruption_budget") == "budget llm allows the eviction of any pod that is not Ready"


@pytest.mark.parametrize(
    ("phase", "healthy", "expected"),
    [
        pytest.param("Running", 3, "fine", id="the-budget-is-met-without-it"),
        pytest.param("Running", 2, "warning", id="the-budget-is-not-met"),
        pytest.param("Pending", 2, "fine", id="it-has-not-started"),
    ],
)
def test_a_replica_that_is_not_ready_may_go_as_the_eviction_api_lets_it(
    phase: str, healthy: int, expected: str
) -> None:
    crashed = pod(2, is_ready=False)
    crashed["status"]["phase"] = phase
    seen = snapshot(pods=(pod(1), crashed, pod(3), pod(4)), pdbs=(budget(allowed=0, healthy=healthy, desired=3),))
    assert grade(planned("replace_replica", ONE, seen), "disruption_budget") == expected


def test_a_replica_that_is_ready_stays_within_such_a_budget() -> None:
    assert "never allows" in declined("replace_replica", ONE, snapshot(pdbs=(always_allowing(),))).reason


def test_a_drained_node_is_held_by_the_budget_of_its_ready_replicas() -> None:
    pods = (pod(1, is_ready=False), pod(2), pod(3), pod(4))
    seen = snapshot(pods=pods, pdbs=(always_allowing(),))
    assert "never allows" in declined("drain_node", {"node": "gpu-node-1"}, seen).reason


def test_the_replacement_may_take_the_gpu_of_the_one_that_leaves() -> None:
    full = tuple(pod(number) for number in (1, 2, 3, 4))
    tight = replace(
        snapshot(pods=full), nodes=tuple({**n, "status": n["status"] | TWO_GPUS} for n in snapshot().nodes[:2])
    )
    assert "room for 1" in weighed(planned("replace_replica", ONE, tight), "room")


TWO_GPUS = {"allocatable": {"nvidia.com/gpu": "1"}}


def test_returning_puts_back_what_the_pod_itself_says_it_had() -> None:
    seen = isolated_world()
    plan = planned("return_replica", ONE, seen)
    back = applied(plan.calls[0].body, seen.pods[1])
    assert back == annotated(pod(2))
    assert (plan.calls[0].restores, plan.risk) == (True, "low")


@pytest.mark.parametrize(
    ("seen", "outcome", "reason"),
    [
        pytest.param(snapshot(), "not_needed", "is in rotation", id="in-rotation"),
        pytest.param(snapshot(pods=(pod(1),)), "not_needed", "nothing to return", id="gone"),
        pytest.param(
            snapshot(endpoint_slices=()),
            "impossible",
            "not taken out of rotation by the bot",
            id="out-for-another-reason",
        ),
    ],
)
def test_returning_what_is_not_out_says_so(seen: ClusterSnapshot, outcome: str, reason: str) -> None:
    result = declined("return_replica", ONE, seen)
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


def added_one(seen: ClusterSnapshot, *, at: float = 0.0, undone_by: str = "") -> PlanContext:
    """The context of an incident that has added a replica to this fleet."""
    (call,) = planned("scale", {"by": 1}, seen).calls
    entry = LedgerEntry(
        call_id="INC-42/R1/0",
        state="more",
        verb="scale",
        title=call.title,
        target=call.target,
        undo=call.undo,
        applied_at=at,
        undone_by=undone_by,
    )
    return PlanContext(incident_id="INC-42", ledger=(entry,))


def test_the_replica_that_was_added_replaces_the_bad_one_and_none_is_left_over() -> None:
    context = added_one(snapshot())
    pods = tuple(pod(number) for number in range(1, 6))
    grown = snapshot(workload=deployment(replicas=5), pods=pods, endpoint_slices=(endpoint_slice(*pods),))
    plan = planned("replace_replica", ONE, grown, context)
    chosen, fewer = plan.calls
    assert chosen.target.name == "llm-2"
    assert (fewer.subresource, fewer.undoes, fewer.ends) == ("scale", "INC-42/R1/0", ("llm-2-uid",))
    assert applied(fewer.body, deployment(replicas=5))["spec"]["replicas"] == 4
    (wait,) = (step for step in plan.steps if isinstance(step, Wait))
    assert (wait.condition, wait.parameters) == ("scaled", {"replicas": 4, "ends": ["llm-2-uid"]})
    assert plan.disruption("INC-42/R2") == "replica llm-2-uid"


@pytest.mark.parametrize(
    ("replicas", "undone_by"),
    [
        pytest.param(4, "", id="somebody-took-it-away-again"),
        pytest.param(6, "", id="somebody-added-another"),
        pytest.param(5, "INC-42/R2/0", id="it-was-undone"),
    ],
)
def test_a_replica_is_evicted_if_the_added_one_is_not_the_only_change(replicas: int, undone_by: str) -> None:
    context = added_one(snapshot(), undone_by=undone_by)
    pods = tuple(pod(number) for number in range(1, replicas + 1))
    seen = snapshot(workload=deployment(replicas=replicas), pods=pods, endpoint_slices=(endpoint_slice(*pods),))
    assert [call.method for call in planned("replace_replica", ONE, seen, context).calls] == ["evict"]


@pytest.mark.parametrize("unready", [5, 4], ids=["the-added-one-starts", "another-one-crashes"])
def test_a_replica_is_evicted_while_the_controller_would_end_another_one_first(unready: int) -> None:
    """A ReplicaSet ends what is not Ready first, whatever its deletion cost."""
    pods = tuple(pod(number, is_ready=number != unready) for number in range(1, 6))
    ready = endpoint_slice(*(each for number, each in enumerate(pods, 1) if number != unready))
    seen = snapshot(workload=deployment(replicas=5), pods=pods, endpoint_slices=(ready,))
    calls = planned("replace_replica", ONE, seen, added_one(snapshot())).calls
    assert [call.method for call in calls] == ["evict"]


def created(number: int, at: str) -> Obj:
    made = pod(number)
    return {**made, "metadata": {**made["metadata"], "creationTimestamp": at}}


BEFORE, LATER = "2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"
ADDED_AT = (seconds_of(LATER) or 0.0) + 1.5
"""The call is recorded after it was answered, and its autoscaler may have created the pod by then."""


def scaler(least: int) -> Obj:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": least, "maxReplicas": 8}
    return {"metadata": {"name": "llm", "namespace": "serving", "uid": "hpa-uid"}, "spec": spec}


def grown_by_its_autoscaler(*later: int, least: int = 5) -> ClusterSnapshot:
    """The fleet of five after the autoscaler's floor was raised; these replicas were created since."""
    pods = tuple(created(number, LATER if number in later else BEFORE) for number in range(1, 6))
    raised = (scaler(least),)
    return snapshot(
        workload=deployment(replicas=5), pods=pods, endpoint_slices=(endpoint_slice(*pods),), autoscalers=raised
    )


def test_an_autoscalers_floor_goes_back_once_the_added_replica_has_replaced_the_bad_one() -> None:
    """Otherwise one more replica stays for each that was moved."""
    context = added_one(snapshot(autoscalers=(scaler(2),)), at=ADDED_AT)
    plan = planned("replace_replica", ONE, grown_by_its_autoscaler(5), context)
    steps = [step.condition if isinstance(step, Wait) else step.method for step in plan.steps]
    assert steps == ["evict", "replaced", "patch"]
    back = plan.calls[-1]
    assert (back.target.kind, back.undoes, back.restores, back.undo) == (
        "HorizontalPodAutoscaler",
        "INC-42/R1/0",
        True,
        (),
    )
    assert applied(back.body, scaler(5))["spec"]["minReplicas"] == 2
    assert "gets its old floor back" in weighed(plan, "autoscaler")
    assert plan.disruption("INC-42/R2") == "replica llm-2-uid"


@pytest.mark.parametrize(
    ("later", "least", "undone_by"),
    [
        pytest.param((), 5, "", id="none-came"),
        pytest.param((4, 5), 5, "", id="several-came-for-relief"),
        pytest.param((5,), 6, "", id="somebody-raised-it-since"),
        pytest.param((5,), 5, "INC-42/R2/0", id="it-was-undone"),
    ],
)
def test_a_floor_that_was_not_raised_for_one_replacement_stays(
    later: tuple[int, ...], least: int, undone_by: str
) -> None:
    context = added_one(snapshot(autoscalers=(scaler(2),)), at=ADDED_AT, undone_by=undone_by)
    plan = planned("replace_replica", ONE, grown_by_its_autoscaler(*later, least=least), context)
    assert [call.method for call in plan.calls] == ["evict"]


def test_a_budget_that_kubernetes_cannot_work_out_says_why() -> None:
    failed = budget(allowed=0, healthy=4, desired=4)
    message = "rayclusters.ray.io does not implement the scale subresource"
    failed["status"]["conditions"] = [
        {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": message}
    ]
    plan = planned("replace_replica", ONE, snapshot(pdbs=(failed,)))
    assert grade(plan, "disruption_budget") == "warning"
    assert f"budget llm allows none while Kubernetes cannot work it out ({message})" in weighed(
        plan, "disruption_budget"
    )
