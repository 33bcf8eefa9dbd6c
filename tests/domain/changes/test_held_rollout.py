"""Engines that do not empty themselves: which replicas are terminated, in which order, and by which call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Call, Plan, Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.domain.changes.snapshots import (
    CONTEXT,
    declined,
    deployment,
    grade,
    load,
    node,
    planned,
    pod,
    service,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
HELD, ROUND = 30 * 86400, "/spec/strategy/rollingUpdate/maxUnavailable"


def emptied_by_label(count: int = 4, **parts: Any) -> ClusterSnapshot:
    """No preStop: the label `serving` takes a replica out."""
    made = deployment(template(lifecycle={}), replicas=count)
    pods = tuple(pod(number) for number in range(1, count + 1))
    return snapshot(workload=made, pods=pods, **parts)


def steps_of(plan: Plan) -> list[str]:
    return [step.title if isinstance(step, Call) else step.condition for step in plan.steps]


@pytest.mark.parametrize(("verb", "arguments"), [("set_flags", EDIT), ("restart", {}), ("rollback", {})])
def test_each_replica_leaves_rotation_and_is_empty_before_the_call_that_ends_it(verb: str, arguments: Any) -> None:
    plan = planned(verb, arguments, emptied_by_label(2))
    assert steps_of(plan)[1:] == [
        "surge_ready",
        "Choose llm-1 as the replica that ends",
        "out_of_rotation",
        "emptied",
        "Let llm-1 end, which is empty",
        "released",
        "surge_ready",
        "Choose llm-2 as the replica that ends",
        "out_of_rotation",
        "emptied",
        "Let llm-2 end, which is empty, and the rollout go",
        "rolled_out",
    ]
    assert [call.ends for call in plan.calls if call.ends] == [("llm-1-uid",), ("llm-2-uid",)]
    assert grade(plan, "drain") == "fine"
    assert "cut" not in plan.expected


def test_the_rollout_is_held_from_its_first_call_and_let_go_as_it_was() -> None:
    seen = emptied_by_label(3)
    workload = seen.workload or {}
    patches = [call for call in planned("set_flags", EDIT, seen).calls if call.target.kind == "Deployment"]
    unavailable = []
    for call in patches:
        workload = applied(call.body, workload)
        spec = workload["spec"]
        unavailable.append((spec.get("minReadySeconds"), spec["strategy"]["rollingUpdate"]["maxUnavailable"]))
    assert unavailable == [(HELD, 0), (HELD, 1), (HELD, 2), (None, 0)]
    assert workload["spec"].keys() - {"progressDeadlineSeconds"} == (seen.workload or {})["spec"].keys()


def test_more_replicas_than_can_be_emptied_one_by_one_are_a_warning() -> None:
    plan = planned("set_flags", EDIT, emptied_by_label(21, nodes=(node(1, gpus=40),)))
    assert (len(plan.calls), grade(plan, "drain")) == (1, "warning")


@pytest.mark.parametrize(
    ("verb", "arguments"), [("restart", {}), ("scale", {"to": 1}), ("drain_node", {"node": "gpu-node-2"})]
)
def test_a_replica_that_hangs_is_named_before_the_approval_for_what_ends_it(verb: str, arguments: Any) -> None:
    loads = {f"llm-{n}": replace(load(running=n), has_moved=n != 2) for n in (1, 2, 3, 4)}
    plan = planned(verb, arguments, emptied_by_label(load=loads))
    text = "nothing moves on llm-2 (2 requests) now: if that stays so, it ends with its requests"
    assert (text in weighed(plan, "drain"), grade(plan, "drain")) == (True, "fine")
    assert "llm-2 has finished its requests and gets no new ones, or it hangs" in [step.title for step in plan.steps]


def test_planning_again_gives_the_same_digest() -> None:
    busy = {f"llm-{n}": load(running=n) for n in (1, 2, 3, 4)}
    plan = planned("restart", {}, emptied_by_label())
    assert planned("restart", {}, emptied_by_label(load=busy)).digest == plan.digest


def test_each_restart_of_an_incident_has_a_mark_of_its_own() -> None:
    call = planned("restart", {}, snapshot()).calls[0]
    (edit,) = (op for op in call.body if op["op"] == "replace")
    assert edit["value"]["annotations"] == {"incident-bot/restart": "INC-42/1"}
    assert applied(call.undo[0].body, applied(call.body, deployment())) == deployment()


@pytest.mark.parametrize(
    ("marked", "mark"),
    [
        pytest.param("INC-42/1", "INC-42/2", id="applied-and-in-no-ledger"),
        pytest.param("INC-41/7", "INC-42/1", id="of-another-incident"),
        pytest.param("yesterday", "INC-42/1", id="of-a-person"),
    ],
)
def test_a_restart_whose_answer_was_lost_is_not_repeated_with_its_mark(marked: str, mark: str) -> None:
    """The template would stay as it is, and nothing would restart."""
    workload = deployment()
    workload["spec"]["template"]["metadata"]["annotations"] = {"incident-bot/restart": marked}
    (edit,) = (op for op in planned("restart", {}, snapshot(workload=workload)).calls[0].body if op["op"] == "replace")
    assert edit["value"]["annotations"] == {"incident-bot/restart": mark}


def test_a_restart_waits_for_the_rollout_that_is_under_way() -> None:
    workload = deployment()
    workload["status"]["updatedReplicas"] = 2
    assert "not finished" in declined("restart", {}, snapshot(workload=workload)).reason


def released(*pods: Any) -> ClusterSnapshot:
    return snapshot(pods=pods)


RELEASED = Wait(
    condition="released",
    about=planned("isolate_replica", {"replica": "llm-1"}, snapshot()).calls[0].target,
    parameters={"uid": "llm-1-uid", "stay": ["llm-2-uid", "llm-3-uid"]},
    within_seconds=60,
    title="gone",
)
GOING = {**pod(1), "metadata": {**pod(1)["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}}


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        pytest.param(released(pod(1), pod(2), pod(3)), "pending", "have not ended llm-1 yet", id="not-yet"),
        pytest.param(released(GOING, pod(2), pod(3)), "pending", "llm-1 is ending", id="holds-its-gpu-still"),
        pytest.param(released(pod(2), pod(3)), "done", "llm-1 is gone", id="gone"),
        pytest.param(released(pod(1), pod(3)), "failed", "another replica ended instead", id="another-one"),
    ],
)
def test_the_chosen_replica_ends_and_no_other(seen: ClusterSnapshot, state: str, text: str) -> None:
    found = progress(RELEASED, seen)
    assert (found.state, text in found.text) == (state, True), found.text


def test_a_scale_in_that_ended_another_replica_has_failed() -> None:
    wait = planned("scale", {"by": -1}, snapshot()).steps[-1]
    assert isinstance(wait, Wait)
    kept = snapshot(workload=deployment(replicas=3), pods=(pod(1), pod(2), pod(3)))
    other = progress(wait, kept)
    assert (other.state, "llm-1 should have ended" in other.text) == ("failed", True)
    right = snapshot(workload=deployment(replicas=3), pods=(pod(2), pod(3), pod(4)))
    assert progress(wait, right).state == "done"


def test_requests_that_go_on_arriving_over_kept_connections_are_reported_and_then_asked_about() -> None:
    steps = planned("isolate_replica", {"replica": "llm-1"}, snapshot()).steps
    wait = next(step for step in steps if isinstance(step, Wait) and step.condition == "emptied")
    out = snapshot(pods=(pod(1, serving="out-of-rotation"), pod(2)), load={"llm-1": load(running=3, arrivals=9)})
    early, late = progress(wait, out, waited_seconds=30), progress(wait, out, waited_seconds=121)
    assert (early.state, late.state) == ("pending", "failed")
    assert early.text == "3 requests left on llm-1; 9 more arrived in the last 60 s, over kept connections"


# --- the canary -------------------------------------------------------------------------------------------------------


def canary(*, ready: bool = True, **arguments: str) -> ClusterSnapshot:
    body = planned("canary", EDIT | arguments, snapshot()).calls[0].body
    made = {**body, "metadata": {**body["metadata"], "uid": "canary-uid"}}
    labels = body["spec"]["template"]["metadata"]["labels"]
    one = pod(9, is_ready=ready, **labels)
    one["metadata"]["ownerReferences"] = []
    one["metadata"]["annotations"] = body["spec"]["template"]["metadata"].get("annotations") or {}
    return snapshot(canary=made, pods=(*snapshot().pods, one))


def test_a_canary_out_of_rotation_is_born_with_a_label_that_no_service_selects() -> None:
    template_made = planned("canary", EDIT | {"rotation": "out"}, snapshot()).calls[0].body["spec"]["template"]
    assert template_made["metadata"]["labels"]["serving"] == "out-of-rotation"


def test_where_service_and_workload_share_a_label_a_canary_can_still_be_kept_out() -> None:
    seen = snapshot(services=(service(app="llm"),))
    body = planned("canary", EDIT | {"rotation": "out"}, seen).calls[0].body
    assert body["spec"]["template"]["metadata"]["labels"]["app"] == "out-of-rotation"


def test_entering_rotation_is_a_change_of_its_own() -> None:
    plan = planned("rotate_canary", {"rotation": "in"}, canary(rotation="out"))
    (call,) = plan.calls
    assert (call.differences[0].text, call.restores, plan.risk) == (
        "llm-9: label serving out-of-rotation → active",
        False,
        "medium",
    )


def test_a_canary_that_serves_already_needs_no_rotation() -> None:
    assert declined("rotate_canary", {"rotation": "in"}, canary()).outcome == "not_needed"


def test_promote_writes_what_the_canary_was_started_with() -> None:
    plan = planned("promote", {}, canary(rotation="out"))
    assert plan.digest != planned("set_flags", EDIT, snapshot()).digest
    assert plan.calls[0].body == planned("set_flags", EDIT, snapshot()).calls[0].body
    assert (plan.verb, plan.risk, "has answered nobody" in weighed(plan, "canary")) == ("promote", "high", True)


def deployed_since(**parts: Any) -> ClusterSnapshot:
    """The canary, and a workload that somebody else gave another image, which the canary does not have."""
    image = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "vllm/vllm-openai:v0.32.1"}
    return replace(canary(), workload=applied([image], deployment()), **parts)


def edited_by_hand() -> ClusterSnapshot:
    seen = canary()
    args = {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--block-size=32"}
    return replace(seen, canary=applied([args], seen.canary or {}))


@pytest.mark.parametrize(
    ("seen", "difference"),
    [
        pytest.param(
            deployed_since(), "image vllm/vllm-openai:v0.32.0 → vllm/vllm-openai:v0.32.1", id="deployed-since"
        ),
        pytest.param(edited_by_hand(), "--block-size 32 → ", id="canary-edited-by-hand"),
    ],
)
def test_promote_warns_of_what_the_canary_does_not_run(seen: ClusterSnapshot, difference: str) -> None:
    plan = planned("promote", {}, seen)
    assert grade(plan, "canary") == "warning"
    assert difference in weighed(plan, "canary")


def test_a_deploy_after_the_approval_of_a_rollout_asks_again() -> None:
    approved, now = planned("promote", {}, canary()), planned("promote", {}, deployed_since())
    assert now.is_worse_than(approved) == (weighed(now, "canary"),)


def test_a_restart_of_the_workload_does_not_make_its_canary_another() -> None:
    restarted = deployment()
    restarted["spec"]["template"]["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "2027-01-15"}
    assert grade(planned("promote", {}, replace(canary(), workload=restarted)), "canary") == "fine"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        pytest.param(snapshot(), "there is no canary", id="none"),
        pytest.param(canary(ready=False), "not Ready", id="not-ready"),
    ],
)
def test_a_canary_that_shows_nothing_is_not_promoted(seen: ClusterSnapshot, reason: str) -> None:
    assert reason in declined("promote", {}, seen).reason


def test_a_canary_of_another_incident_is_not_promoted() -> None:
    assert "not ours" in declined("promote", {}, canary(), replace(CONTEXT, incident_id="INC-7")).reason


def test_rotation_is_in_or_out() -> None:
    assert "'in' or 'out'" in declined("canary", EDIT | {"rotation": "maybe"}, snapshot()).reason


@pytest.mark.parametrize(
    ("replicas", "free", "batches"),
    [
        pytest.param(4, 8, [1, 1, 1, 1], id="a-quarter-of-four"),
        pytest.param(20, 8, [5, 5, 5, 5], id="a-quarter-of-twenty"),
        pytest.param(20, 3, [3, 3, 3, 3, 3, 3, 2], id="as-many-as-fit"),
        pytest.param(10, 8, [2, 2, 2, 2, 2], id="a-quarter-rounded-down"),
    ],
)
def test_up_to_a_quarter_is_replaced_at_a_time_where_so_many_new_ones_fit(
    replicas: int, free: int, batches: list[int]
) -> None:
    made = deployment(template("--tensor-parallel-size=1", lifecycle={}), replicas=replicas)
    pods = tuple(pod(number) for number in range(1, replicas + 1))
    room = node(99)
    room["status"]["allocatable"]["nvidia.com/gpu"] = str(free)
    plan = planned("set_flags", EDIT, snapshot(workload=made, pods=pods, nodes=(room,), all_pods=()))
    ends = [call.ends for call in plan.calls if call.ends and call.target.kind == "Deployment"]
    assert [len(batch) for batch in ends] == batches
    assert len({uid for batch in ends for uid in batch}) == replicas
    held = applied(plan.calls[0].body, made)["spec"]["strategy"]["rollingUpdate"]
    assert held == {"maxSurge": max(batches), "maxUnavailable": 0}
    pace = "one by one" if max(batches) == 1 else f"up to {max(batches)} at a time"
    assert plan.expected.endswith(f"stay in rotation while they are replaced, {pace}")
    assert f"runs empty before it ends, {pace};" in weighed(plan, "drain")


def test_a_rollout_that_is_turned_round_says_that_it_goes_one_by_one() -> None:
    """Six of nine run the old template, with the surge pod."""
    made = deployment(template("--tensor-parallel-size=1", lifecycle={}), replicas=8)
    pods = (*(pod(number, revision=1) for number in range(1, 7)), *(pod(number) for number in (7, 8, 9)))
    plan = planned("rollback", {}, snapshot(workload=made, pods=pods, nodes=(node(99, gpus=8),), all_pods=()))
    ends = [call.ends for call in plan.calls if call.ends and call.target.kind == "Deployment"]
    assert [len(batch) for batch in ends] == [1, 1, 1]
    assert "runs empty before it ends, one by one;" in weighed(plan, "drain")
