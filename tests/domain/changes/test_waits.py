"""Each wait, path by path: its result, and the exact text shown meanwhile.

`done` sends the next call and `failed` ends the change, so every step between the two is a decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.progress import CHECKS, COVERED, HANGS_SECONDS, OVERDUE_SECONDS, STICKY_SECONDS, progress
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.missing_pods import waits_for
from bot.domain.cluster.objects import ObjectRef, is_ready
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import ReplicaLoad
from tests.domain.changes.snapshots import (
    NOW,
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
from tests.domain.changes.test_progress import (
    CANARY_READY,
    EDIT,
    EMPTIED,
    ENDED_FAST,
    GONE,
    OLD,
    READY_CANARY,
    REPLACED,
    ROLLED_OUT,
    SCALED,
    canary_pod,
    container,
    ending,
    new_pod,
    rolling,
    unscheduled,
    wait_of,
)
from tests.domain.changes.test_scale import scaled_object, scaler

pytestmark = pytest.mark.fast
DEPLOYMENT = ObjectRef(kind="Deployment", namespace="serving", name="llm", uid="deploy-uid")
SECOND = ObjectRef(kind="Pod", namespace="serving", name="llm-2", uid="llm-2-uid")
NODE = ObjectRef(kind="Node", name="gpu-node-1", uid="gpu-node-1-uid")
REFUSED = container(lastState={"terminated": ENDED_FAST}, restartCount=1)
WHY_REFUSED = "llm-5: exit code 2 after 7 s: the engine refuses its command line"
STUCK = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


def wait(condition: str, about: ObjectRef, **parameters: Any) -> Wait:
    return Wait(condition=condition, about=about, parameters=parameters, within_seconds=60, title="")


def case(case_id: str, seen: ClusterSnapshot, state: str, text: str) -> Any:
    return pytest.param(seen, state, text, id=case_id)


def progress_of(condition: Wait, seen: ClusterSnapshot, *, waited_seconds: float = 0.0) -> tuple[str, str]:
    found = progress(condition, seen, waited_seconds=waited_seconds)
    return found.state, found.text


def other_uid(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "uid": "another"}}


def with_conditions(seen: ClusterSnapshot, *conditions: Obj, **status: Any) -> ClusterSnapshot:
    assert seen.workload is not None
    workload = {**seen.workload, "status": seen.workload["status"] | status | {"conditions": list(conditions)}}
    return replace(seen, workload=workload)


def gated(number: int) -> Obj:
    """A new pod whose containers are ready, and which a readiness gate holds back."""
    made = new_pod(number)
    message = 'the status of pod readiness gate "target-health" is not "True", but False'
    gate = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": message}
    return {**made, "status": {**made["status"], "conditions": [gate]}}


def test_everything_that_cannot_be_read_is_named_with_its_reason() -> None:
    seen = snapshot(unreadable={"replica_sets": "403", "pods": "timed out", "nodes": "403"})
    assert progress_of(SCALED, seen) == ("pending", "cannot be read now: replica sets (403), pods (timed out)")


READ_BY = {
    "rolled_out": ("replica_sets", "pods"),
    "observed": (),
    "surge_ready": ("replica_sets", "pods"),
    "released": ("replica_sets", "pods"),
    "canary_ready": ("canary", "pods"),
    "scaled": ("replica_sets", "pods"),
    "grown": ("replica_sets", "pods"),
    "out_of_rotation": ("pods", "endpoint_slices"),
    "in_rotation": ("pods", "endpoint_slices"),
    "emptied": ("pods",),
    "replaced": ("replica_sets", "pods"),
    "spare_ready": ("replica_sets", "pods"),
    "gone": ("canary", "pods"),
    "cordoned": ("nodes",),
    "pod_gone": ("all_pods",),
    "job_ended": ("jobs", "all_pods"),
}


@pytest.mark.parametrize(("condition", "source"), [(name, one) for name, many in READ_BY.items() for one in many])
def test_what_a_wait_rests_on_has_to_be_readable(condition: str, source: str) -> None:
    seen = snapshot(unreadable={source: "403"})
    text = f"cannot be read now: {source.replace('_', ' ')} (403)"
    assert progress_of(wait(condition, DEPLOYMENT), seen) == ("pending", text)


def test_every_condition_is_in_the_table_of_what_it_rests_on() -> None:
    assert {name: sources for name, (_, sources) in CHECKS.items()} == READ_BY


# --- rollouts ---------------------------------------------------------------------------------------------------------

ALL_NEW = tuple(new_pod(number, is_ready=True) for number in (5, 6, 7, 8))
DELETED, OVERWRITTEN = "Deployment serving/llm was deleted", "somebody else changed the template while it rolled out"


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("another-of-its-name", replace(rolling(*OLD), workload=other_uid(deployment())), "failed", DELETED),
        case("deleted", replace(rolling(*OLD), workload=None), "failed", DELETED),
        case(
            "no-replica-set-of-it-yet",
            replace(rolling(*OLD), replica_sets=snapshot().replica_sets),
            "pending",
            "the Deployment controller has not seen the change yet",
        ),
        case("given-up", with_conditions(rolling(*OLD), STUCK), "failed", "no progress: timed out"),
        case(
            "slow-and-not-given-up",
            with_conditions(rolling(*OLD), STUCK | {"reason": "ReplicaSetUpdated"}),
            "pending",
            "0 of 4 replicas run the new template",
        ),
        case(
            "given-up-before-and-going-on-again",
            with_conditions(rolling(*OLD), STUCK | {"status": "True"}),
            "pending",
            "0 of 4 replicas run the new template",
        ),
        case(
            "one-that-a-load-balancer-does-not-take",
            rolling(*OLD[:3], gated(8)),
            "pending",
            "0 of 4 replicas run the new template, llm-8 is not Ready although its containers are:"
            ' the status of pod readiness gate "target-health" is not "True", but False',
        ),
        case(
            "two-starting-and-two-ending",
            rolling(*map(ending, OLD[:2]), *OLD[2:], new_pod(5), new_pod(6)),
            "pending",
            "0 of 4 replicas run the new template, 2 starting, 2 old ones finishing",
        ),
        case(
            "all-new-and-the-controller-not-through",
            rolling(*ALL_NEW, updated=3, total=4),
            "pending",
            "4 of 4 replicas run the new template",
        ),
        case(
            "all-there-and-one-lost-its-readiness",
            rolling(*ALL_NEW[:3], new_pod(8), updated=4, total=4),
            "pending",
            "3 of 4 replicas run the new template, llm-8 is starting",
        ),
    ],
)
def test_a_rollout_says_how_far_it_is(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(ROLLED_OUT, seen) == (state, text)


OBSERVED = ROLLED_OUT.model_copy(update={"condition": "observed"})


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("deleted", replace(rolling(*OLD), workload=None), "failed", DELETED),
        case("another-of-its-name", replace(rolling(*OLD), workload=other_uid(deployment())), "failed", DELETED),
        case("overwritten", replace(rolling(*OLD), workload=deployment()), "failed", OVERWRITTEN),
        case("not-yet", rolling(*OLD, seen=False), "pending", "the Deployment controller has not seen the change yet"),
        case("seen", rolling(*OLD), "done", "the Deployment controller has seen the change"),
    ],
)
def test_a_change_is_observed_when_its_controller_says_so(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(OBSERVED, seen) == (state, text)


SURGE = ROLLED_OUT.model_copy(update={"condition": "surge_ready", "parameters": ROLLED_OUT.parameters | {"ready": 1}})


def held(*pods: Obj, available: int | None = None, **parts: Any) -> ClusterSnapshot:
    """While one new replica is there beside the old ones."""
    seen = rolling(*pods, **parts)
    *older, newest = seen.replica_sets
    status = {} if available is None else {"status": {"availableReplicas": available}}
    return replace(seen, replica_sets=(*older, {**newest, **status}))


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("deleted", replace(held(*OLD), workload=None), "failed", DELETED),
        case("another-of-its-name", replace(held(*OLD), workload=other_uid(deployment())), "failed", DELETED),
        case("overwritten", replace(held(*OLD), workload=deployment()), "failed", OVERWRITTEN),
        case(
            "no-replica-set-of-it-yet",
            replace(held(*OLD), replica_sets=snapshot().replica_sets),
            "pending",
            "the Deployment controller has not seen the change yet",
        ),
        case("hopeless", held(*OLD, new_pod(5, status=REFUSED)), "failed", WHY_REFUSED),
        case(
            "counted-as-available",
            held(*OLD, new_pod(5, is_ready=True), available=1),
            "pending",
            "the ReplicaSet controller has not seen yet that the rollout is held",
        ),
        case("starting", held(*OLD, new_pod(5)), "pending", "0 of 4 replicas run the new template, llm-5 is starting"),
        case(
            "ready",
            held(*OLD, new_pod(5, is_ready=True), available=0),
            "done",
            "1 of 4 replicas run the new template",
        ),
    ],
)
def test_an_old_replica_may_leave_once_a_new_one_is_ready(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(SURGE, seen) == (state, text)


RELEASED = wait("released", SECOND, uid="llm-2-uid", stay=["llm-1-uid", "llm-3-uid"])


@pytest.mark.parametrize(
    ("pods", "state", "text"),
    [
        pytest.param((OLD[0], OLD[2]), "done", "llm-2 is gone", id="gone"),
        pytest.param((OLD[0], ending(OLD[1]), OLD[2]), "pending", "llm-2 is ending", id="ending"),
        pytest.param(OLD, "pending", "the controllers have not ended llm-2 yet", id="not-yet"),
        pytest.param(
            (OLD[1], ending(OLD[0]), OLD[2]), "failed", "another replica ended instead of llm-2", id="another-ends"
        ),
        pytest.param((OLD[1], OLD[2]), "failed", "another replica ended instead of llm-2", id="another-ended"),
    ],
)
def test_the_chosen_replica_ends_and_no_other(pods: tuple[Obj, ...], state: str, text: str) -> None:
    assert progress_of(RELEASED, snapshot(pods=pods)) == (state, text)


# --- canaries ---------------------------------------------------------------------------------------------------------

CANARY = "Deployment serving/llm-incident-bot-canary-inc-42"


def canary(*pods: Obj, canary: Obj | None = READY_CANARY) -> ClusterSnapshot:
    return snapshot(canary=canary, pods=(*OLD, *pods))


STARTED = {**READY_CANARY, "status": {}}


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("never-there", canary(canary=None), "failed", f"{CANARY} does not exist any more"),
        case(
            "being-deleted",
            canary(canary_pod(), canary=ending(READY_CANARY)),
            "failed",
            f"{CANARY} does not exist any more",
        ),
        case("no-pod", canary(canary=STARTED), "pending", "the canary's pod is not there yet"),
        case("starting", canary(canary_pod(is_ready=False), canary=STARTED), "pending", "llm-9 is starting"),
        case("ready-not-observed", canary(canary_pod(), canary=STARTED), "pending", ""),
        case("observed-not-ready", canary(canary_pod(is_ready=False)), "pending", "llm-9 is starting"),
        case("ready", canary(canary_pod()), "done", "the canary llm-9 is Ready"),
        case(
            "of-a-try-before-and-ending",
            canary({**ending(canary_pod()), "status": REFUSED}, canary=STARTED),
            "pending",
            "the canary's pod is not there yet",
        ),
        case(
            "given-up",
            canary(canary_pod(is_ready=False), canary={**STARTED, "status": {"conditions": [STUCK]}}),
            "failed",
            "no progress: timed out",
        ),
    ],
)
def test_a_canary_says_how_far_it_is(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(CANARY_READY, seen) == (state, text)


NEXT_CANARY = other_uid(READY_CANARY)
NAME = "llm-incident-bot-canary-inc-42"


@pytest.mark.parametrize(
    ("about_uid", "seen", "state", "text"),
    [
        pytest.param("c", canary(canary_pod()), "pending", f"{NAME} is being deleted", id="there"),
        pytest.param("", canary(canary_pod()), "pending", f"{NAME} is being deleted", id="uid-not-known"),
        pytest.param("c", canary(canary=NEXT_CANARY), "done", f"{NAME} is gone", id="another-of-its-name"),
        pytest.param(
            "c", canary(ending(canary_pod()), canary=None), "pending", f"1 pod of {NAME} finishing", id="one-pod"
        ),
        pytest.param(
            "c",
            canary(ending(canary_pod()), ending(other_uid(canary_pod())), canary=None),
            "pending",
            f"2 pods of {NAME} finishing",
            id="two-pods",
        ),
        pytest.param("c", canary(canary=None), "done", f"{NAME} is gone", id="gone"),
    ],
)
def test_a_canary_is_gone_with_its_pods(about_uid: str, seen: ClusterSnapshot, state: str, text: str) -> None:
    about = GONE.about.model_copy(update={"uid": about_uid})
    assert progress_of(GONE.model_copy(update={"about": about}), seen) == (state, text)


# --- numbers of replicas ----------------------------------------------------------------------------------------------

REFUSING = {**pod(5, is_ready=False), "status": REFUSED}


def sized(replicas: int, /, *pods: Obj, **status: Any) -> ClusterSnapshot:
    workload = deployment(replicas=replicas)
    workload["status"] |= status
    return snapshot(workload=workload, pods=pods)


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("deleted", snapshot(workload=None), "failed", DELETED),
        case("another-of-its-name", snapshot(workload=other_uid(deployment(replicas=5))), "failed", DELETED),
        case("somebody-else", sized(7, *OLD), "failed", "somebody else scaled it to 7"),
        case("hopeless", sized(5, *OLD, REFUSING), "failed", WHY_REFUSED),
        case("one-starts", sized(5, *OLD, pod(5, is_ready=False)), "pending", "4 of 5 replicas Ready"),
        case("not-yet-counted", sized(5, *OLD, pod(5), availableReplicas=4), "pending", "5 of 5 replicas Ready"),
        case(
            "one-too-many-still-ends",
            sized(5, *OLD, pod(5), ending(pod(6))),
            "pending",
            "5 of 5 replicas Ready, 1 ending",
        ),
        case("done", sized(5, *OLD, pod(5)), "done", "5 of 5 replicas Ready"),
    ],
)
def test_a_scale_says_how_far_it_is(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(SCALED, seen) == (state, text)


def test_a_scale_in_that_ended_another_replica_than_the_chosen_one_has_failed() -> None:
    smaller = SCALED.model_copy(update={"parameters": {"replicas": 3, "ends": ["llm-2-uid", "llm-3-uid"]}})
    kept = sized(3, OLD[1], OLD[2], OLD[3])
    assert progress_of(smaller, kept) == (
        "failed",
        "3 of 3 replicas Ready, but llm-2, llm-3 should have ended and another replica did",
    )
    chosen = SCALED.model_copy(update={"parameters": {"replicas": 3, "ends": ["llm-1-uid"]}})
    assert progress_of(chosen, kept) == ("done", "3 of 3 replicas Ready")


GROWN = wait("grown", DEPLOYMENT, replicas=5)


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("deleted", snapshot(workload=None), "failed", "the workload was deleted"),
        case("not-yet", sized(4, *OLD), "pending", "the autoscaler wants 4 replicas, not 5 yet"),
        case("hopeless", sized(5, *OLD, REFUSING), "failed", WHY_REFUSED),
        case("starting", sized(5, *OLD, pod(5, is_ready=False)), "pending", "4 of 5 replicas Ready"),
        case("done", sized(5, *OLD, pod(5)), "done", "5 of 5 replicas Ready"),
        case("even-more", sized(6, *OLD, pod(5), pod(6)), "done", "6 of 5 replicas Ready"),
    ],
)
def test_an_autoscaler_that_does_it_may_want_even_more(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(GROWN, seen) == (state, text)


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("deleted", snapshot(workload=None), "failed", "the workload was deleted"),
        case("somebody-else", sized(3, OLD[0]), "failed", "somebody else scaled it to 3"),
        case("ending", sized(4, OLD[0], ending(OLD[1])), "pending", "llm-2 is ending"),
        case("hopeless", sized(4, OLD[0], REFUSING), "failed", WHY_REFUSED),
        case("starting", sized(4, *OLD[2:]), "pending", "2 of 4 replicas Ready, llm-2 is gone"),
        case("done", sized(4, OLD[0], *OLD[2:], pod(5)), "done", "4 of 4 replicas Ready, llm-2 is gone"),
        case("scaled-up", sized(5, OLD[0], *OLD[2:], pod(5), pod(6)), "done", "5 of 4 replicas Ready, llm-2 is gone"),
    ],
)
def test_a_replacement_says_how_far_it_is(seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(REPLACED, seen) == (state, text)


FEWER_WANTED = "3 of 3 replicas Ready, HorizontalPodAutoscaler llm (min 2, max 8) wants 3 now, not 4"


PAUSED = scaled_object(annotations={"autoscaling.keda.sh/paused": "true"})
IDLES_AT_ONE = applied(
    [
        {"op": "add", "path": "/spec/minReplicaCount", "value": 3},
        {"op": "add", "path": "/spec/idleReplicaCount", "value": 1},
    ],
    scaled_object(),
)


def scaled_in_by(seen: ClusterSnapshot, **sources: Any) -> ClusterSnapshot:
    return replace(seen, **({"autoscalers": (scaler(),)} | sources))


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("done", scaled_in_by(sized(3, OLD[0], *OLD[2:])), "done", f"{FEWER_WANTED}, llm-2 is gone"),
        case("ending", scaled_in_by(sized(3, OLD[0], ending(OLD[1]), *OLD[2:])), "pending", "llm-2 is ending"),
        case(
            "one-of-them-starts",
            scaled_in_by(sized(3, OLD[0], OLD[2], pod(5, is_ready=False))),
            "pending",
            f"{FEWER_WANTED.replace('3 of 3', '2 of 3')}, llm-2 is gone",
        ),
        case("hopeless", scaled_in_by(sized(3, OLD[0], REFUSING)), "failed", WHY_REFUSED),
        case(
            "of-another-workload",
            scaled_in_by(sized(3, OLD[0], *OLD[2:]), autoscalers=(scaler("other"),)),
            "failed",
            "somebody else scaled it to 3",
        ),
        case(
            "by-keda",
            scaled_in_by(sized(3, OLD[0], *OLD[2:]), autoscalers=(), scaled_objects=(scaled_object(),)),
            "done",
            "3 of 3 replicas Ready, ScaledObject llm-queue (min 0, max 8) wants 3 now, not 4, llm-2 is gone",
        ),
        case(
            "unreadable",
            scaled_in_by(sized(3, OLD[0], *OLD[2:]), autoscalers=(), unreadable={"autoscalers": "timed out"}),
            "pending",
            "it was scaled to 3; whether an autoscaler did that cannot be read now: timed out",
        ),
        # An autoscaler does nothing while the workload is scaled to 0, and goes no lower than its floor.
        case("to-zero-by-hand", scaled_in_by(sized(0)), "failed", "somebody else scaled it to 0"),
        case("below-its-floor", scaled_in_by(sized(1, OLD[0])), "failed", "somebody else scaled it to 1"),
        case(
            "keda-is-paused",
            scaled_in_by(sized(3, OLD[0], *OLD[2:]), autoscalers=(), scaled_objects=(PAUSED,)),
            "failed",
            "somebody else scaled it to 3",
        ),
        case(
            "to-keda's-idle-number",
            scaled_in_by(sized(1, OLD[0]), autoscalers=(), scaled_objects=(IDLES_AT_ONE,)),
            "done",
            "1 of 1 replicas Ready, ScaledObject llm-queue (min 3, max 8) wants 1 now, not 4, llm-2 is gone",
        ),
    ],
)
def test_an_autoscaler_that_scales_in_meanwhile_fails_no_replacement(
    seen: ClusterSnapshot, state: str, text: str
) -> None:
    assert progress_of(REPLACED, seen) == (state, text)


def test_a_released_replica_has_its_spare_when_an_autoscaler_wants_no_more() -> None:
    spare = wait("spare_ready", SECOND, uid="llm-2-uid", replicas=4)
    fewer = sized(3, OLD[0], *OLD[2:])
    assert progress_of(spare, scaled_in_by(fewer)) == ("done", FEWER_WANTED)
    assert progress_of(spare, fewer) == ("failed", "somebody else scaled it to 3")


# --- replicas that were not Ready before the change -------------------------------------------------------------------

CRASHES = container(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": {}}, restartCount=5)


def crashing(number: int) -> Obj:
    made = pod(number, is_ready=False)
    return {**made, "status": made["status"] | CRASHES}


def crippled(replicas: int, *pods: Obj) -> ClusterSnapshot:
    """With the status that the controller reports of these pods."""
    ready = sum(map(is_ready, pods))
    return sized(replicas, *pods, replicas=len(pods), updatedReplicas=len(pods), availableReplicas=ready)


THREE_AND_A_CRASHING_ONE = (*OLD[:3], crashing(4))
SCALED_BESIDE_ONE = wait_of(planned("scale", {"by": 1}, crippled(4, *THREE_AND_A_CRASHING_ONE)), "scaled")


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case(
            "added-one-starts",
            crippled(5, *THREE_AND_A_CRASHING_ONE, pod(5, is_ready=False)),
            "pending",
            "3 of 5 replicas Ready, 1 not Ready as before",
        ),
        case(
            "added-one-is-ready",
            crippled(5, *THREE_AND_A_CRASHING_ONE, pod(5)),
            "done",
            "4 of 5 replicas Ready, 1 not Ready as before",
        ),
        case("added-one-is-broken", crippled(5, *THREE_AND_A_CRASHING_ONE, REFUSING), "failed", WHY_REFUSED),
        case(
            "its-successor-counts",
            crippled(5, *OLD[:3], pod(5), pod(6, is_ready=False)),
            "pending",
            "4 of 5 replicas Ready",
        ),
        case("it-has-recovered", crippled(5, *OLD, pod(5, is_ready=False)), "pending", "4 of 5 replicas Ready"),
    ],
)
def test_a_scale_does_not_wait_for_a_replica_that_was_not_ready_before(
    seen: ClusterSnapshot, state: str, text: str
) -> None:
    assert progress_of(SCALED_BESIDE_ONE, seen) == (state, text)


def test_an_autoscaler_does_not_have_to_heal_a_replica_that_was_not_ready_before() -> None:
    grown = wait("grown", DEPLOYMENT, replicas=5, unready=["llm-4-uid"])
    assert progress_of(grown, crippled(5, *THREE_AND_A_CRASHING_ONE, pod(5)))[0] == "done"
    assert progress_of(grown, crippled(5, *THREE_AND_A_CRASHING_ONE, pod(5, is_ready=False)))[0] == "pending"


TWO_CRASHING = crippled(4, *OLD[:2], crashing(3), crashing(4))


def test_one_of_two_broken_replicas_is_replaced_when_its_own_replacement_is_ready() -> None:
    first = wait_of(planned("replace_replica", {"replica": "llm-3"}, TWO_CRASHING), "replaced")
    assert progress_of(first, crippled(4, *OLD[:2], crashing(4), pod(5, is_ready=False)))[0] == "pending"
    assert progress_of(first, crippled(4, *OLD[:2], crashing(4), pod(5))) == (
        "done",
        "3 of 4 replicas Ready, 1 not Ready as before, llm-3 is gone",
    )


def test_a_drained_node_loses_all_of_its_broken_replicas() -> None:
    here = tuple({**one, "spec": {**one["spec"], "nodeName": "gpu-node-3"}} for one in (crashing(3), crashing(4)))
    seen = replace(crippled(4, *OLD[:2], *here), all_pods=(*OLD[:2], *here))
    plan = planned("drain_node", {"node": "gpu-node-3"}, seen)
    first, second = (step for step in plan.steps if isinstance(step, Wait) and step.condition == "replaced")
    assert progress_of(first, crippled(4, *OLD[:2], here[1], pod(5)))[0] == "done"
    assert progress_of(second, crippled(4, *OLD[:2], pod(5), pod(6, is_ready=False)))[0] == "pending"
    assert progress_of(second, crippled(4, *OLD[:2], pod(5), pod(6)))[0] == "done"


def test_a_spare_is_ready_beside_a_replica_that_was_not_ready_before() -> None:
    seen = crippled(4, *THREE_AND_A_CRASHING_ONE)
    spare = wait_of(
        planned("isolate_replica", {"replica": "llm-2"}, replace(seen, services=(service(app="llm"),))), "spare_ready"
    )
    assert progress_of(spare, crippled(4, OLD[0], OLD[2], crashing(4), pod(5, is_ready=False)))[0] == "pending"
    assert progress_of(spare, crippled(4, OLD[0], OLD[2], crashing(4), pod(5)))[0] == "done"


def test_a_wait_of_a_healthy_workload_names_no_replica_that_was_not_ready() -> None:
    assert SCALED.parameters == {"replicas": 5}


# --- pods that cannot end, as on a dead node --------------------------------------------------------------------------

LATER = NOW + OVERDUE_SECONDS + 1
"""By then the grace period of what is `ending` has been over for so long that it is stuck."""
FOUR_OF_FOUR = "4 of 4 replicas Ready"


def later(seen: ClusterSnapshot) -> ClusterSnapshot:
    return replace(seen, at=LATER)


def test_a_rollout_is_done_although_an_old_pod_cannot_end() -> None:
    seen = rolling(*ALL_NEW, ending(OLD[0]), updated=4, total=4)
    assert progress_of(ROLLED_OUT, seen) == ("pending", "4 of 4 replicas run the new template, 1 old one finishing")
    assert progress_of(ROLLED_OUT, later(seen)) == (
        "done",
        "4 of 4 replicas run the new template, llm-1 is still ending after its grace period",
    )


def test_a_rollout_that_lacks_a_new_replica_is_not_done_when_an_old_pod_cannot_end() -> None:
    seen = later(rolling(*ALL_NEW[:3], new_pod(8), ending(OLD[0]), updated=4, total=4))
    assert progress_of(ROLLED_OUT, seen)[0] == "pending"


def test_a_replica_that_cannot_end_is_replaced_when_enough_others_are_ready() -> None:
    seen = sized(4, OLD[0], ending(OLD[1]), *OLD[2:], pod(5))
    assert progress_of(REPLACED, seen) == ("pending", "llm-2 is ending")
    assert progress_of(REPLACED, later(seen)) == (
        "done",
        f"{FOUR_OF_FOUR}, llm-2 is still ending after its grace period",
    )
    starting = sized(4, OLD[0], ending(OLD[1]), *OLD[2:], pod(5, is_ready=False))
    assert progress_of(REPLACED, later(starting))[0] == "pending"


def test_a_scale_is_done_although_a_pod_cannot_end() -> None:
    fewer = SCALED.model_copy(update={"parameters": {"replicas": 3, "ends": ["llm-4-uid"]}})
    seen = sized(3, *OLD[:3], ending(OLD[3]))
    assert progress_of(fewer, seen) == ("pending", "3 of 3 replicas Ready, 1 ending")
    assert progress_of(fewer, later(seen)) == (
        "done",
        "3 of 3 replicas Ready, llm-4 is still ending after its grace period",
    )


def test_a_numbered_replica_that_cannot_end_is_still_counted_by_its_controller() -> None:
    fewer = SCALED.model_copy(update={"parameters": {"replicas": 3}})
    seen = sized(3, *OLD[:3], ending(OLD[3]), replicas=4, updatedReplicas=4)
    assert progress_of(fewer, later(seen))[0] == "done"
    assert progress_of(fewer, later(sized(3, *OLD, replicas=4, updatedReplicas=4)))[0] == "pending"


def test_the_next_step_of_a_held_rollout_does_not_need_a_pod_that_cannot_end() -> None:
    released = wait("released", SECOND, uid="llm-2-uid", stay=["llm-3-uid"])
    enough = held(OLD[0], ending(OLD[1]), *OLD[2:], new_pod(5, is_ready=True))
    assert progress_of(released, enough) == ("pending", "llm-2 is ending")
    assert progress_of(released, later(enough)) == ("done", "llm-2 is still ending after its grace period")
    assert progress_of(released, later(held(OLD[0], ending(OLD[1]), *OLD[2:])))[0] == "pending", "one is missing"


# --- one replica ------------------------------------------------------------------------------------------------------

IN_SLICE, IN_NO_SLICE = (endpoint_slice(pod(1), pod(2)),), (endpoint_slice(pod(1)),)


@pytest.mark.parametrize(
    ("condition", "seen", "state", "text"),
    [
        pytest.param("out_of_rotation", snapshot(pods=(pod(1),)), "failed", "llm-2 is gone", id="out-gone"),
        pytest.param(
            "out_of_rotation",
            snapshot(endpoint_slices=IN_SLICE),
            "pending",
            "llm-2 is still listed for requests",
            id="in",
        ),
        pytest.param(
            "out_of_rotation", snapshot(endpoint_slices=IN_NO_SLICE), "done", "llm-2 is out of rotation", id="out"
        ),
        pytest.param("in_rotation", snapshot(pods=(pod(1),)), "failed", "llm-2 is gone", id="back-gone"),
        pytest.param(
            "in_rotation",
            snapshot(pods=(pod(1), ending(pod(2))), endpoint_slices=IN_SLICE),
            "failed",
            "llm-2 is gone",
            id="back-ending",
        ),
        pytest.param(
            "in_rotation",
            snapshot(endpoint_slices=IN_NO_SLICE),
            "pending",
            "llm-2 is not listed for requests yet",
            id="not-back",
        ),
        pytest.param("in_rotation", snapshot(endpoint_slices=IN_SLICE), "done", "llm-2 is in rotation", id="back"),
    ],
)
def test_rotation_says_how_far_it_is(condition: str, seen: ClusterSnapshot, state: str, text: str) -> None:
    assert progress_of(wait(condition, SECOND, uid="llm-2-uid"), seen) == (state, text)


QUIET = float(EMPTIED.parameters["quiet_seconds"])
NOT_KNOWN = "how many requests run on llm-2 is not known"


@pytest.mark.parametrize(
    ("on_it", "state", "text"),
    [
        pytest.param(ReplicaLoad(None, 0.0), "pending", NOT_KNOWN, id="running-not-known"),
        pytest.param(ReplicaLoad(0.0, None), "pending", NOT_KNOWN, id="waiting-not-known"),
        pytest.param(load(running=1, arrivals=None), "pending", "1 requests left on llm-2", id="one-left"),
        pytest.param(
            ReplicaLoad(0.0, 0.0, 0.0, COVERED * QUIET),
            "done",
            f"llm-2 is empty, nothing arrived for {COVERED * QUIET:.0f} s",
            id="just-long-enough",
        ),
        pytest.param(
            ReplicaLoad(0.0, 0.0, 0.0, COVERED * QUIET - 1),
            "pending",
            "llm-2 is idle; watching whether requests still arrive",
            id="not-long-enough",
        ),
        pytest.param(
            load(arrivals=4), "pending", "requests still arrive at llm-2: 4 in the last 60 s", id="still-in-rotation"
        ),
    ],
)
def test_a_replica_that_empties_says_how_far_it_is(on_it: ReplicaLoad, state: str, text: str) -> None:
    assert progress_of(EMPTIED, snapshot(load={"llm-2": on_it})) == (state, text)


def test_a_replica_without_its_pod_is_not_emptied_any_more() -> None:
    assert progress_of(EMPTIED, snapshot(pods=(pod(1),))) == ("failed", "llm-2 is gone")


def test_clients_that_keep_their_connections_are_waited_for_so_long_and_no_longer() -> None:
    kept = snapshot(endpoint_slices=IN_NO_SLICE, load={"llm-2": load(running=2, arrivals=4)})
    text = "2 requests left on llm-2; 4 more arrived in the last 60 s, over kept connections"
    assert progress_of(EMPTIED, kept, waited_seconds=STICKY_SECONDS) == ("pending", text)
    assert progress_of(EMPTIED, kept, waited_seconds=STICKY_SECONDS + 1) == ("failed", text)
    quiet = snapshot(endpoint_slices=IN_NO_SLICE, load={"llm-2": load(running=2)})
    assert progress_of(EMPTIED, quiet, waited_seconds=STICKY_SECONDS + 1) == ("pending", "2 requests left on llm-2")
    short = snapshot(endpoint_slices=IN_NO_SLICE, load={"llm-2": ReplicaLoad(2.0, 0.0, 4.0, 1.0)})
    assert progress_of(EMPTIED, short, waited_seconds=STICKY_SECONDS + 1) == ("pending", "2 requests left on llm-2")


def hung(**fields: Any) -> ClusterSnapshot:
    on_it = replace(load(running=12, waiting=3), has_moved=False, **fields)
    return snapshot(endpoint_slices=IN_NO_SLICE, load={"llm-2": on_it})


ENDS = next(
    step
    for step in planned("scale", {"by": -2}, snapshot(workload=deployment(template(lifecycle={})))).steps
    if isinstance(step, Wait) and (step.condition, step.about.name) == ("emptied", "llm-2")
)


@pytest.mark.parametrize(("emptied", "state"), [(ENDS, "done"), (EMPTIED, "failed")])
def test_a_replica_that_hangs_is_not_given_all_its_time_to_empty(emptied: Wait, state: str) -> None:
    text = "15 requests left on llm-2; none finished and no token was made in the last 60 s"
    assert progress_of(emptied, hung(), waited_seconds=HANGS_SECONDS) == ("pending", text)
    assert progress_of(emptied, hung(), waited_seconds=HANGS_SECONDS + 1) == (state, text)
    short = emptied.model_copy(update={"within_seconds": 60.0})
    assert progress_of(short, hung(), waited_seconds=31) == (state, text)


@pytest.mark.parametrize(
    "seen", [hung(window_seconds=QUIET / 2), snapshot(load={"llm-2": load(running=12, waiting=3)})]
)
def test_a_replica_hangs_only_if_that_was_watched_for_long_enough(seen: ClusterSnapshot) -> None:
    assert progress_of(ENDS, seen, waited_seconds=HANGS_SECONDS + 1) == ("pending", "15 requests left on llm-2")


# --- nodes and pods of others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "nodes", "state", "text"),
    [
        pytest.param(True, (node(2),), "failed", "Node gpu-node-1 is gone", id="gone"),
        pytest.param(True, (node(2, unschedulable=True), node(1)), "pending", "gpu-node-1 takes new pods", id="open"),
        pytest.param(True, (node(1, unschedulable=True),), "done", "gpu-node-1 takes no new pods", id="cordoned"),
        pytest.param(False, (node(1, unschedulable=True),), "pending", "gpu-node-1 takes no new pods", id="not-back"),
        pytest.param(False, (node(1),), "done", "gpu-node-1 takes new pods", id="back"),
    ],
)
def test_a_cordon_is_what_the_node_says(wanted: bool, nodes: tuple[Obj, ...], state: str, text: str) -> None:
    assert progress_of(wait("cordoned", NODE, uid="gpu-node-1-uid", cordoned=wanted), snapshot(nodes=nodes)) == (
        state,
        text,
    )


@pytest.mark.parametrize(
    ("pods", "state", "text"),
    [
        pytest.param((OLD[0],), "done", "llm-2 is gone", id="gone"),
        pytest.param((OLD[0], OLD[1]), "pending", "llm-2 is still there", id="there"),
        pytest.param((OLD[0], ending(OLD[1])), "pending", "llm-2 is ending", id="ending"),
    ],
)
def test_a_pod_of_any_workload_is_gone_when_it_is_nowhere(pods: tuple[Obj, ...], state: str, text: str) -> None:
    assert progress_of(wait("pod_gone", SECOND, uid="llm-2-uid"), snapshot(pods=(), all_pods=pods)) == (state, text)


# --- jobs -------------------------------------------------------------------------------------------------------------

JOB = ObjectRef(kind="Job", namespace="serving", name="eval", uid="job-uid")


def job(name: str = "eval", *conditions: Obj, **status: Any) -> Obj:
    metadata = {"name": name, "namespace": "serving", "uid": f"{name}-uid"}
    return {"metadata": metadata, "status": status | {"conditions": list(conditions)}}


def ended(kind: str, **fields: str) -> Obj:
    return {"type": kind, "status": "True"} | fields


@pytest.mark.parametrize(
    ("jobs", "state", "text"),
    [
        pytest.param((job("other"),), "failed", "Job serving/eval was deleted before its end was seen", id="deleted"),
        pytest.param(
            (ending(job("eval", ended("Complete"))),),
            "failed",
            "Job serving/eval was deleted before its end was seen",
            id="being-deleted",
        ),
        pytest.param((job("other", ended("Complete")), job()), "pending", "eval has no pod yet", id="not-the-other"),
        pytest.param((job(active=1),), "pending", "eval is running", id="running"),
        pytest.param((job(active=1, failed=1),), "pending", "eval is running, 1 failed attempt", id="one-attempt"),
        pytest.param((job(active=1, failed=2),), "pending", "eval is running, 2 failed attempts", id="two-attempts"),
        pytest.param((job("eval", ended("Complete")),), "done", "eval is complete", id="complete"),
        pytest.param((job("eval", ended("Failed")),), "failed", "eval failed", id="failed"),
        pytest.param(
            (job("eval", ended("Failed", reason="BackoffLimitExceeded", message="too often")),),
            "failed",
            "eval failed: BackoffLimitExceeded: too often",
            id="failed-with-why",
        ),
        pytest.param(
            (job("eval", ended("Failed", message="too often")),), "failed", "eval failed: too often", id="only-message"
        ),
    ],
)
def test_a_job_says_how_far_it_is(jobs: tuple[Obj, ...], state: str, text: str) -> None:
    assert progress_of(wait("job_ended", JOB), snapshot(jobs=jobs)) == (state, text)


# --- whether waiting helps --------------------------------------------------------------------------------------------


def wanting(kind: str = "nvidia.com/gpu") -> Obj:
    status = unscheduled(120)
    status["conditions"][0]["message"] = f"0/3 nodes are available: 3 Insufficient {kind}."
    made = new_pod(5, status=status)
    made["spec"].pop("nodeName", None)
    return made


NO_GPU = "llm-5: cannot be scheduled: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
NO_CPU = "llm-5: cannot be scheduled: 0/3 nodes are available: 3 Insufficient cpu."


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case(
            "full",
            rolling(*OLD, wanting(), nodes=(node(1, gpus=1),), all_pods=OLD),
            "failed",
            NO_GPU,
        ),
        case("free-accelerators-are-no-cpu", rolling(*OLD, wanting("cpu")), "failed", NO_CPU),
        case(
            "nodes-cannot-be-read",
            rolling(*OLD, wanting(), nodes=(), unreadable={"nodes": "403"}),
            "failed",
            NO_GPU,
        ),
    ],
)
def test_a_pod_without_room_is_given_up_unless_room_is_there_or_coming(
    seen: ClusterSnapshot, state: str, text: str
) -> None:
    assert progress_of(ROLLED_OUT, seen) == (state, text)


QUOTA = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
FULL: dict[str, Any] = {"nodes": (node(1, gpus=1),), "all_pods": OLD}
STARTS_BESIDE = "0 of 4 replicas run the new template, 2 starting"


@pytest.mark.parametrize(
    ("seen", "state", "text"),
    [
        case("one-has-a-node", rolling(*OLD, wanting(), new_pod(6), **FULL), "pending", STARTS_BESIDE),
        case("none-has-a-node", rolling(*OLD, wanting(), **FULL), "failed", NO_GPU),
        case(
            "too-few-have-one-for-an-old-one-to-end",
            rolling(*OLD[1:], wanting(), new_pod(6, is_ready=True), **FULL),
            "failed",
            NO_GPU,
        ),
        case(
            "no-old-one-is-left",
            rolling(wanting(), *(new_pod(number, is_ready=True) for number in (6, 7, 8, 9)), **FULL),
            "failed",
            NO_GPU,
        ),
        case(
            "the-one-with-a-node-is-broken",
            rolling(*OLD, wanting(), {**new_pod(6), "status": REFUSED}, **FULL),
            "failed",
            WHY_REFUSED.replace("llm-5", "llm-6"),
        ),
        case(
            "others-are-refused",
            with_conditions(rolling(*OLD, new_pod(6), updated=1), QUOTA),
            "pending",
            "0 of 4 replicas run the new template, llm-6 is starting",
        ),
    ],
)
def test_surge_pods_may_wait_for_their_turn_while_others_let_old_ones_end(
    seen: ClusterSnapshot, state: str, text: str
) -> None:
    assert progress_of(ROLLED_OUT, seen) == (state, text)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"paused": True}, "somebody paused Deployment llm while it rolled out"),
        ({"replicas": 0}, "somebody scaled Deployment llm to 0 while it rolled out"),
    ],
)
def test_a_rollout_that_somebody_stops_has_failed(spec: Obj, text: str) -> None:
    seen = rolling(*OLD)
    workload = seen.workload or {}
    stopped = replace(seen, workload={**workload, "spec": workload["spec"] | spec})
    assert progress_of(ROLLED_OUT, stopped) == ("failed", text)


def test_a_workload_that_was_scaled_to_zero_before_its_rollout_runs_it_when_its_controller_has_seen_it() -> None:
    (wait,) = [
        step
        for step in planned("set_flags", EDIT, snapshot(workload=deployment(replicas=0), pods=())).steps
        if isinstance(step, Wait)
    ]
    seen = rolling(updated=0)
    workload = seen.workload or {}
    none = {"observedGeneration": workload["metadata"]["generation"]}
    there = replace(seen, workload={**workload, "spec": workload["spec"] | {"replicas": 0}, "status": none})
    assert progress_of(wait, there) == ("done", "0 of 0 replicas run the new template")


def test_the_templates_of_these_tests_are_those_of_the_rollout() -> None:
    plan = planned("set_flags", EDIT, snapshot())
    edited = applied(plan.calls[0].body, deployment())["spec"]["template"]
    assert replica_set(3, edited)["spec"]["template"]["spec"] == rolling().replica_sets[-1]["spec"]["template"]["spec"]


ALLOCATE = "Pod Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
REFUSED_POD = (
    f"2 new pods were refused by a kubelet in the last 10 minutes, the last one by that of gpu-node-2: {ALLOCATE}"
)


def turned_away(made: Obj, reason: str = "UnexpectedAdmissionError") -> Obj:
    return {**made, "status": {"phase": "Failed", "reason": reason, "message": ALLOCATE}}


def test_pods_that_a_kubelet_refuses_are_named_while_replicas_are_missing() -> None:
    """Their controller makes the next one at once, and nothing that is there shows why none starts."""
    refused = (turned_away(pod(5)), turned_away(pod(6)))
    assert progress_of(REPLACED, sized(4, OLD[0], *OLD[2:], *refused)) == (
        "pending",
        f"3 of 4 replicas Ready, {REFUSED_POD}, llm-2 is gone",
    )
    assert progress_of(ROLLED_OUT, rolling(*OLD, turned_away(new_pod(5)), turned_away(new_pod(8)))) == (
        "pending",
        f"0 of 4 replicas run the new template, {REFUSED_POD}",
    )
    assert waits_for(sized(4, OLD[0], *OLD[2:], *refused)) == ("gpu", REFUSED_POD)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(sized(4, *OLD, turned_away(pod(5)), turned_away(pod(8))), id="enough-serve"),
        pytest.param(sized(4, *OLD[:3], turned_away(pod(5), "Evicted")), id="evicted"),
        pytest.param(replace(sized(4, *OLD[:3], turned_away(pod(5))), at=NOW + 3600), id="an-hour-ago"),
    ],
)
def test_pods_that_were_refused_for_another_reason_or_before_are_not_named(seen: ClusterSnapshot) -> None:
    assert waits_for(seen) == ("", "")
