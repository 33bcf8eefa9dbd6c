"""The result of a wait: done, pending, or failed for a reason that more time will not fix."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Plan, Wait
from bot.domain.changes.progress import CHECKS, progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import ReplicaLoad
from tests.domain.changes.snapshots import (
    NOW,
    STAMP,
    declined,
    deployment,
    endpoint_slice,
    load,
    node,
    planned,
    pod,
    replica_set,
    service,
    snapshot,
    template,
)

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
ONE = {"replica": "llm-2"}


def wait_of(plan: Plan, condition: str) -> Wait:
    return next(step for step in plan.steps if isinstance(step, Wait) and step.condition == condition)


ROLLED_OUT = wait_of(planned("set_flags", EDIT, snapshot()), "rolled_out")


def new_pod(number: int, *, is_ready: bool = False, status: Obj | None = None) -> Obj:
    made = pod(number, revision=3, is_ready=is_ready)
    made["status"] |= status or {}
    return made


def ending(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": STAMP}}


def rolling(*pods: Obj, updated: int = 0, total: int = 5, seen: bool = True, **parts: Any) -> ClusterSnapshot:
    """While `set_flags` rolls out as revision 3."""
    workload = applied(planned("set_flags", EDIT, snapshot()).calls[0].body, deployment())
    workload["metadata"]["generation"] = 4
    workload["status"] = {
        "observedGeneration": 4 if seen else 3,
        "replicas": total,
        "updatedReplicas": updated,
        "availableReplicas": 4,
    }
    sets = (*snapshot().replica_sets, replica_set(3, copy.deepcopy(workload["spec"]["template"])))
    return replace(snapshot(workload=workload, pods=pods), replica_sets=sets, **parts)


def container(**status: Any) -> Obj:
    return {"containerStatuses": [{"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "restartCount": 0} | status]}


def unscheduled(since: float) -> Obj:
    stamp = "2027-01-15T08:00:00Z" if since == 0 else "2027-01-15T07:58:00Z"
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "lastTransitionTime": stamp,
    }
    return {"phase": "Pending", "conditions": [scheduled]}


OLD = tuple(pod(number) for number in (1, 2, 3, 4))
ENDED_FAST = {"exitCode": 2, "startedAt": "2027-01-15T07:59:50Z", "finishedAt": "2027-01-15T07:59:57Z"}
ENDED_SLOWLY = {"exitCode": 1, "reason": "Error", "startedAt": STAMP, "finishedAt": STAMP}


def test_the_stamp_used_here_is_now() -> None:
    assert snapshot().at == NOW


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        pytest.param(rolling(*OLD, seen=False), "pending", "not seen the change", id="not-observed"),
        pytest.param(
            rolling(*OLD, new_pod(5), updated=1), "pending", "0 of 4 replicas run the new template, llm-5 is starting",
            id="first-one-starting",
        ),
        pytest.param(
            rolling(new_pod(5, is_ready=True), *OLD[1:], ending(OLD[0]), updated=1),
            "pending", "1 of 4 replicas run the new template, 1 old one finishing",
            id="an-old-one-drains",
        ),
        pytest.param(
            rolling(*(new_pod(n, is_ready=True) for n in (5, 6, 7, 8)), ending(OLD[0]), updated=4, total=4),
            "pending", "1 old one finishing",
            id="all-new-but-an-old-one-still-drains",
        ),
        pytest.param(
            rolling(*(new_pod(n, is_ready=True) for n in (5, 6, 7, 8)), updated=4, total=4),
            "done", "4 of 4 replicas run the new template",
            id="done",
        ),
        pytest.param(rolling(*OLD, new_pod(5, status=unscheduled(0))), "pending", "not scheduled yet", id="just-now"),
        pytest.param(
            rolling(*OLD, new_pod(5, status=unscheduled(120)), nodes=()), "failed", "Insufficient nvidia.com/gpu",
            id="unschedulable",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=unscheduled(120) | {"nominatedNodeName": "gpu-node-1"}), nodes=()),
            "pending", "llm-5 waits for the room that the scheduler makes on gpu-node-1",
            id="pods-of-a-lower-priority-end-for-it",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=unscheduled(120))), "pending", "not scheduled yet",
            id="free-meanwhile-the-scheduler-has-yet-to-look",
        ),
        pytest.param(
            rolling(*OLD[1:], ending(pod(1)), new_pod(5, status=unscheduled(120)), nodes=()), "pending",
            "not scheduled yet", id="room-is-coming-from-one-that-ends",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=container(state={"waiting": {"reason": "ErrImagePull"}}))),
            "pending", "llm-5 is starting",
            id="first-pull-failed",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=container(state={"waiting": {"reason": "ImagePullBackOff"}}))),
            "failed", "cannot be pulled",
            id="image",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=container(lastState={"terminated": ENDED_FAST}, restartCount=1))),
            "failed", "exit code 2 after 7 s: the engine refuses its command line",
            id="bad-flag",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=container(lastState={"terminated": ENDED_SLOWLY}, restartCount=1))),
            "pending", "llm-5 is starting",
            id="one-crash-may-heal",
        ),
        pytest.param(
            rolling(*OLD, new_pod(5, status=container(lastState={"terminated": ENDED_SLOWLY}, restartCount=2))),
            "failed", "crashed 2 times (exit code 1, Error)",
            id="crash-loop",
        ),
        pytest.param(replace(rolling(*OLD), workload=None), "failed", "was deleted", id="deleted"),
        pytest.param(replace(rolling(*OLD), workload=deployment()), "failed", "somebody else", id="overwritten"),
        pytest.param(
            rolling(*OLD, unreadable={"pods": "403"}), "pending", "cannot be read now: pods (403)", id="unreadable"
        ),
    ],
)  # fmt: skip
def test_a_rollout_is_judged_by_its_pods(seen: ClusterSnapshot, state: str, text: str) -> None:
    found = progress(ROLLED_OUT, seen)
    assert (found.state, text in found.text) == (state, True), found.text


def in_init(**status: Any) -> Obj:
    waits = {"name": "vllm", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
    init = {"name": "fetch", "image": "fetch:v1", "restartCount": 0} | status
    return {"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": [waits]}


BACK_OFF: Obj = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("status", "state", "text"),
    [
        (
            in_init(state={"waiting": {"reason": "ImagePullBackOff"}}),
            "failed",
            "llm-5: init container fetch: image fetch:v1 cannot be pulled (ImagePullBackOff)",
        ),
        (
            in_init(state=BACK_OFF, lastState={"terminated": ENDED_SLOWLY}, restartCount=2),
            "failed",
            "llm-5: init container fetch: crashed 2 times (exit code 1, Error)",
        ),
        (in_init(state=BACK_OFF, lastState={"terminated": ENDED_SLOWLY}, restartCount=1), "pending", "is starting"),
        (
            in_init(state={"running": {}}, lastState={"terminated": ENDED_SLOWLY}, restartCount=2),
            "pending",
            "is starting",
        ),
        (in_init(state={"terminated": {"exitCode": 0}}, restartCount=2), "pending", "is starting"),
    ],
)
def test_a_new_replica_whose_init_container_fails_is_not_waited_for(status: Obj, state: str, text: str) -> None:
    found = progress(ROLLED_OUT, rolling(*OLD, new_pod(5, status=status)))
    assert (found.state, text in found.text) == (state, True), found.text


def test_a_sidecar_that_ends_at_once_is_no_engine_that_refuses_its_command_line() -> None:
    new = new_pod(5, status=container(name="proxy", lastState={"terminated": ENDED_FAST}, restartCount=1))
    new["spec"]["containers"] = [*new["spec"]["containers"], {"name": "proxy"}]
    assert progress(ROLLED_OUT, rolling(*OLD, new)).state == "pending"


def test_a_waiting_pod_does_not_take_its_own_room_away() -> None:
    waiting = new_pod(5, status=unscheduled(120))
    waiting["spec"].pop("nodeName", None)
    seen = rolling(*OLD, waiting, nodes=(node(9, gpus=1),))
    wait = planned("set_flags", EDIT, snapshot()).steps[-1]
    assert isinstance(wait, Wait)
    assert progress(wait, seen).state == "pending"


@pytest.mark.parametrize(
    ("new", "state"),
    [
        pytest.param((), "failed", id="nothing-starts"),
        pytest.param((new_pod(5),), "pending", id="one-starts-for-longer-than-the-deadline"),
        pytest.param((new_pod(5, is_ready=True),), "failed", id="the-new-one-is-ready-and-no-other-starts"),
    ],
)
def test_a_deadline_that_the_controller_gave_up_on_fails_a_rollout_in_which_nothing_starts(
    new: tuple[Obj, ...], state: str
) -> None:
    seen = rolling(*OLD, *new, updated=len(new))
    assert seen.workload is not None
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    seen.workload["status"]["conditions"] = [condition]
    assert progress(ROLLED_OUT, seen).state == state


@pytest.mark.parametrize(
    ("gave_up_at", "state"),
    [
        pytest.param("2027-01-15T07:50:00Z", "pending", id="before-the-new-one-was-ready"),
        pytest.param("2027-01-15T08:10:00Z", "failed", id="since-then"),
    ],
)
def test_a_new_replica_that_is_ready_after_the_deadline_is_progress_that_the_controller_has_yet_to_see(
    gave_up_at: str, state: str
) -> None:
    new = new_pod(5, status={"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STAMP}]})
    seen = rolling(*OLD, new, updated=1)
    assert seen.workload is not None
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    seen.workload["status"]["conditions"] = [condition | {"lastTransitionTime": gave_up_at}]
    assert progress(ROLLED_OUT, seen).state == state


EMPTIED = wait_of(planned("isolate_replica", ONE, snapshot()), "emptied")


@pytest.mark.parametrize(
    ("loads", "state", "text"),
    [
        pytest.param({}, "pending", "not known", id="unknown"),
        pytest.param({"llm-2": load(running=3, waiting=2)}, "pending", "5 requests left", id="busy"),
        pytest.param({"llm-2": ReplicaLoad(0.0, None)}, "pending", "not known", id="half-known"),
        pytest.param({"llm-2": load(arrivals=None)}, "pending", "watching", id="arrivals-not-known"),
        pytest.param({"llm-2": load(arrivals=4)}, "pending", "4 in the last 60 s", id="clients-keep-sending"),
        pytest.param({"llm-2": ReplicaLoad(0.0, 0.0, 0.0, 12.0)}, "pending", "watching", id="not-watched-long-enough"),
        pytest.param({"llm-2": load()}, "done", "is empty", id="empty"),
    ],
)
def test_a_replica_is_empty_only_when_it_is_known_to_be(loads: dict[str, ReplicaLoad], state: str, text: str) -> None:
    found = progress(EMPTIED, snapshot(load=loads))
    assert (found.state, text in found.text) == (state, True), found.text


def test_a_replica_that_ended_by_itself_was_not_emptied() -> None:
    assert progress(EMPTIED, snapshot(pods=(pod(1),))).state == "failed"


@pytest.mark.parametrize(
    ("condition", "slices", "state"),
    [
        pytest.param("out_of_rotation", (endpoint_slice(pod(1), pod(2)),), "pending", id="still-in"),
        pytest.param("out_of_rotation", (endpoint_slice(pod(1)),), "done", id="out"),
    ],
)
def test_rotation_is_what_the_endpoint_slices_say(condition: str, slices: tuple[Obj, ...], state: str) -> None:
    wait = wait_of(planned("isolate_replica", ONE, snapshot()), condition)
    assert progress(wait, snapshot(endpoint_slices=slices)).state == state


REPLACED = wait_of(planned("replace_replica", ONE, snapshot()), "replaced")


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        pytest.param((OLD[0], ending(OLD[1]), OLD[2], OLD[3]), "pending", id="ending"),
        pytest.param((OLD[0], OLD[2], OLD[3], pod(5, is_ready=False)), "pending", id="new-one-starting"),
        pytest.param((OLD[0], OLD[2], OLD[3], pod(5)), "done", id="replaced"),
    ],
)
def test_a_replica_is_replaced_when_the_old_one_is_gone_and_all_are_ready(pods: tuple[Obj, ...], state: str) -> None:
    assert progress(REPLACED, snapshot(pods=pods)).state == state


SPARE = wait_of(planned("isolate_replica", ONE, snapshot(services=(service(app="llm"),))), "spare_ready")
LET_GO = {**OLD[1], "metadata": {k: v for k, v in OLD[1]["metadata"].items() if k != "ownerReferences"}}


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        pytest.param(OLD, "pending", id="not-let-go-yet"),
        pytest.param((OLD[0], LET_GO, OLD[2], OLD[3]), "pending", id="not-replaced-yet"),
        pytest.param((OLD[0], LET_GO, OLD[2], OLD[3], pod(5, is_ready=False)), "pending", id="starting"),
        pytest.param((OLD[0], LET_GO, OLD[2], OLD[3], pod(5)), "done", id="ready"),
    ],
)
def test_a_spare_is_ready_when_as_many_serve_without_the_one_that_was_let_go(pods: tuple[Obj, ...], state: str) -> None:
    assert progress(SPARE, snapshot(pods=pods)).state == state


SCALED = wait_of(planned("scale", {"by": 1}, snapshot()), "scaled")


@pytest.mark.parametrize(
    ("workload", "pods", "state"),
    [
        pytest.param(deployment(replicas=5), (*OLD, pod(5)), "done", id="done"),
        pytest.param(deployment(replicas=5, paused=None), OLD, "pending", id="pod-not-there"),
        pytest.param(deployment(replicas=3), OLD, "failed", id="somebody-else-scaled"),
        pytest.param(None, OLD, "failed", id="deleted"),
    ],
)
def test_a_scale_is_seen_in_its_pods(workload: Obj | None, pods: tuple[Obj, ...], state: str) -> None:
    assert progress(SCALED, snapshot(workload=workload, pods=pods)).state == state


def restarted(times: int, since: str, *, is_ready: bool) -> Obj:
    """The first replica, which ran out of memory `times` times and runs since then."""
    made, ended = pod(1, is_ready=is_ready), {"exitCode": 137, "reason": "OOMKilled", "finishedAt": since}
    status = container(restartCount=times, state={"running": {"startedAt": since}}, lastState={"terminated": ended})
    made["status"] |= status
    return made


@pytest.mark.parametrize(
    ("before", "now", "since", "state"),
    [
        pytest.param(2, 2, "2027-01-08T07:59:00Z", "pending", id="a-week-ago"),
        pytest.param(2, 2, STAMP, "pending", id="right-before-the-change"),
        pytest.param(2, 3, STAMP, "pending", id="once-more"),
        pytest.param(2, 4, STAMP, "failed", id="twice-since"),
        pytest.param(0, 2, STAMP, "failed", id="twice-and-never-before"),
    ],
)
def test_crashes_of_before_a_change_do_not_fail_it(before: int, now: int, since: str, state: str) -> None:
    """A replica that is overloaded is not Ready for a moment, and its restarts are on its status for ever."""
    wait = wait_of(
        planned("scale", {"by": 1}, snapshot(pods=(restarted(before, since, is_ready=True), *OLD[1:]))), "scaled"
    )
    pods = (restarted(now, since, is_ready=False), *OLD[1:], pod(5, is_ready=False))
    assert progress(wait, snapshot(workload=deployment(replicas=5), pods=pods)).state == state


CREATED = planned("canary", EDIT, snapshot()).calls[0].body
READY_CANARY = {
    **CREATED,
    "metadata": {**CREATED["metadata"], "uid": "c", "generation": 1},
    "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
}
CANARY_READY = wait_of(planned("canary", EDIT, snapshot()), "canary_ready")
GONE = wait_of(
    planned("remove_canary", {}, snapshot(canary=READY_CANARY)),
    "gone",
)


def canary_pod(**fields: Any) -> Obj:
    made = pod(9, **fields)
    made["metadata"]["labels"] |= {"pod-template-hash": "c1", "incident-bot/canary": "inc-42"}
    return made


@pytest.mark.parametrize(
    ("canary", "pods", "state"),
    [
        pytest.param(READY_CANARY, (canary_pod(),), "done", id="ready"),
        pytest.param({**READY_CANARY, "status": {}}, (canary_pod(is_ready=False),), "pending", id="starting"),
        pytest.param({**READY_CANARY, "status": {}}, (), "pending", id="no-pod-yet"),
        pytest.param(None, (), "failed", id="gone"),
        pytest.param(
            READY_CANARY,
            ({**canary_pod(is_ready=False), "status": container(lastState={"terminated": ENDED_FAST})},),
            "failed",
            id="bad-flag",
        ),
    ],
)
def test_a_canary_is_ready_when_its_pod_is(canary: Obj | None, pods: tuple[Obj, ...], state: str) -> None:
    assert progress(CANARY_READY, snapshot(canary=canary, pods=(*OLD, *pods))).state == state


@pytest.mark.parametrize(
    ("canary", "pods", "state"),
    [
        pytest.param(READY_CANARY, (canary_pod(),), "pending", id="there"),
        pytest.param(None, (ending(canary_pod()),), "pending", id="its-pod-is-draining"),
        pytest.param(None, (), "done", id="gone"),
    ],
)
def test_a_canary_is_gone_when_its_pods_are(canary: Obj | None, pods: tuple[Obj, ...], state: str) -> None:
    assert progress(GONE, snapshot(canary=canary, pods=(*OLD, *pods))).state == state


def test_every_wait_of_every_verb_has_a_check() -> None:
    plans = [
        planned("set_flags", EDIT, snapshot()),
        planned("scale", {"by": 1}, snapshot()),
        planned("canary", EDIT, snapshot()),
        planned("remove_canary", {}, snapshot(canary=READY_CANARY)),
        planned("isolate_replica", ONE, snapshot()),
        planned("replace_replica", ONE, snapshot()),
        planned("restart", {}, snapshot()),
        planned("restart", {}, snapshot(workload=deployment(template(lifecycle={})))),
        planned("cordon_node", ONE, snapshot()),
        planned("drain_node", {"node": "gpu-node-1"}, snapshot()),
    ]
    assert {s.condition for plan in plans for s in plan.steps if isinstance(s, Wait)} <= CHECKS.keys()
    assert declined("reboot", {}, snapshot()).outcome == "impossible"
