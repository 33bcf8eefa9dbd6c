"""Whether a wait is done, pending, or failed for a reason that more waiting will not fix, in plain words.

A rollout is judged by its pods (unschedulable, image, crashes), not only by time. Missing data counts as pending, and
the text says so. Replicas that were not Ready when the change was planned (`unready` in a wait's parameters) fail no
wait and are not waited for; their successors are. Nor does a wait last for a pod that cannot end, once enough others
are Ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from bot.domain.changes.plan import Call, Wait
from bot.domain.cluster.additions import is_kept
from bot.domain.cluster.capacity import Capacity, accelerators_of, capacity_for
from bot.domain.cluster.job import pods_of_job
from bot.domain.cluster.json_patch import PatchError, applied
from bot.domain.cluster.node_autoscaler import ANSWER_SECONDS, growth_of, scale_up_answer
from bot.domain.cluster.objects import condition, dig, is_cordoned, is_going_away, is_ready, name_of, seconds_of, uid_of
from bot.domain.cluster.owner import autoscaler_of
from bot.domain.cluster.pod_state import first_held, pod_state, room_made_for
from bot.domain.cluster.refused_pods import not_created, refused_by_events, refused_by_kubelets, refused_replicas
from bot.domain.cluster.rollout import (
    TEMPLATE,
    comparable,
    current_replica_set,
    digest_of,
    new_and_old_pods,
    replicas_of,
    revisions_of,
    rollout_state,
    strategy_of,
    template_digest,
)
from bot.domain.cluster.rotation import (
    is_in_rotation,
    is_replica_ready,
    pods_of_canary,
    pods_of_workload,
    replicas_present,
    whole_replica,
)
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS, kind_of, pod_templates, pods_in_a_replica, serves, template_of

NONE_RESTARTED: Mapping[str, int] = MappingProxyType({})
COVERED = 0.8
"""Samples never span a window from edge to edge; they must cover this share of it."""
OVERDUE_SECONDS = 30.0
"""A pod that is still there so long after its grace period is stuck: its node is dead, or a finalizer keeps it."""
HANGS_SECONDS = 300.0
"""A replica that empties and on which nothing moves after this time, or half of its time to empty, never does."""
STICKY_SECONDS = 120.0
"""A pod that no Service lists loses its clients within this time; later requests come over kept connections."""


@dataclass(frozen=True)
class Progress:
    state: Literal["done", "pending", "failed"]
    text: str
    patience_seconds: float | None = None
    """A wait pending for longer than this, counted from its start, is over."""
    then: Literal["done", "failed"] = "failed"


def progress(
    wait: Wait, snapshot: ClusterSnapshot, *, calls: Sequence[Call] = (), waited_seconds: float = 0.0
) -> Progress:
    """`calls`: those of its plan."""
    check, sources = CHECKS[wait.condition]
    missing = [
        f"{name.replace('_', ' ')} ({snapshot.unreadable[name]})" for name in sources if name in snapshot.unreadable
    ]
    if missing:
        return Progress("pending", f"cannot be read now: {', '.join(missing)}")
    seen = check(_with_additions(wait, calls, snapshot), snapshot)
    if seen.patience_seconds is not None and waited_seconds > seen.patience_seconds:
        return Progress(seen.then, seen.text)
    return seen


def _with_additions(wait: Wait, calls: Sequence[Call], snapshot: ClusterSnapshot) -> Wait:
    """Returns it for the present template, if others have only added to what the calls wrote."""
    present, wanted = template_of(snapshot.workload), wait.parameters.get("template")
    if wanted in (None, template_digest(present)):
        return wait
    for revision in revisions_of(snapshot):
        written = _written(revision.template, calls, wanted)
        if written is not None and is_kept(TEMPLATE, *map(comparable, (present, written, revision.template))):
            return wait.model_copy(update={"parameters": {**wait.parameters, "template": template_digest(present)}})
    return wait


def _written(before: Obj, calls: Sequence[Call], wanted: str) -> Obj | None:
    """Returns the template with this digest that the calls make of one that was there before; None if they do not."""
    after: Obj = {"spec": {"template": before}}
    for call in calls:
        if call.method != "patch" or call.target.kind not in KINDS:
            continue
        edits = [op for op in call.body if op["op"] != "test" and op["path"].startswith(TEMPLATE)]
        try:
            after = applied(edits, after)
        except PatchError:
            return None
        if edits and template_digest(template_of(after)) == wanted:
            return template_of(after)
    return None


def _rolling(wait: Wait, snapshot: ClusterSnapshot) -> Obj | str:
    """The workload while it has the template that the change wrote; else why it has not."""
    workload = snapshot.workload
    if workload is None or uid_of(workload) != wait.about.uid:
        return f"{wait.about} was deleted"
    if digest_of([each.template for each in pod_templates(workload)]) != wait.parameters["template"]:
        return "somebody else changed the template while it rolled out"
    if dig(workload, "spec", "paused"):
        return f"somebody paused {kind_of(workload)} {name_of(workload)} while it rolled out"
    if wait.parameters.get("replicas") and replicas_of(workload) == 0:
        return f"somebody scaled {kind_of(workload)} {name_of(workload)} to 0 while it rolled out"
    return workload


def _rolled_out(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    workload = _rolling(wait, snapshot)
    if isinstance(workload, str):
        return Progress("failed", workload)
    state, parted = rollout_state(workload), new_and_old_pods(snapshot)
    if not state.is_observed or parted is None:
        return Progress("pending", f"the {kind_of(workload)} controller has not seen the change yet")
    new, old = parted
    pending, judged = _parted_by_room(wait, new)
    is_room_coming = _can_end_another(workload, snapshot, new, old)
    allowed = _allowed_without_room(wait) - len(pending)
    if broken := _hopeless(
        judged, _without(snapshot, pending), is_room_coming=is_room_coming, some_refused=allowed > 0
    ):
        return Progress("failed", broken)
    if _deadline_exceeded(workload) and not _is_any_starting(workload, new, snapshot):
        return Progress("failed", f"no progress: {condition(workload, 'Progressing').get('message', '')}")
    ready = sum(is_replica_ready(snapshot, pod) for pod in new if serves(pod))
    missing = min(allowed, refused_replicas(workload, snapshot))
    text = _rollout_text(state.wanted, ready, judged, old, snapshot, left_out=_left_out(len(pending), missing))
    is_over = len(_overdue(old, snapshot)) == len(old)
    is_replaced = is_over and state.updated == state.total == state.wanted - missing
    is_ready_where_it_can = state.available == ready == state.wanted - len(pending) - missing
    return Progress("done" if is_replaced and is_ready_where_it_can else "pending", text)


def _observed(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """The controller has seen the new template: whichever pod it creates next is of it."""
    workload = _rolling(wait, snapshot)
    if isinstance(workload, str):
        return Progress("failed", workload)
    if not rollout_state(workload).is_observed:
        return Progress("pending", f"the {kind_of(workload)} controller has not seen the change yet")
    return Progress("done", f"the {kind_of(workload)} controller has seen the change")


def _can_end_another(workload: Obj, snapshot: ClusterSnapshot, new: Sequence[Obj], old: Sequence[Obj]) -> bool:
    """Whether the controller may end another old pod once the new ones that have a node are Ready.

    Until then the other surge pods wait for the room that it releases.
    """
    leaving = [pod for pod in old if serves(pod) and not is_going_away(pod)]
    starting = [whole_replica(snapshot, pod) for pod in new if serves(pod) and not is_going_away(pod)]
    placed = [replica for replica in starting if not any(map(_is_unschedulable, replica))]
    least = replicas_of(workload) - strategy_of(workload).max_unavailable
    return bool(leaving) and len(leaving) + len(placed) > least


def _parted_by_room(wait: Wait, new: Sequence[Obj]) -> tuple[list[Obj], list[Obj]]:
    """Returns the new pods that may stay Pending for lack of room, and the others, which have to start."""
    pending = [pod for pod in new if _is_unschedulable(pod)][: _allowed_without_room(wait)]
    return pending, [pod for pod in new if pod not in pending]


def _allowed_without_room(wait: Wait) -> int:
    """Returns how many new replicas may stay Pending, or refused by a quota."""
    return int(wait.parameters.get("without_node", 0))


def _without(snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> ClusterSnapshot:
    """Returns the cluster as if these pods did not compete for room."""
    left_out = set(map(uid_of, pods))
    return replace(snapshot, all_pods=tuple(pod for pod in snapshot.all_pods if uid_of(pod) not in left_out))


def _surge_ready(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """Enough new replicas serve for the next old one to leave."""
    workload = _rolling(wait, snapshot)
    if isinstance(workload, str):
        return Progress("failed", workload)
    newest, parted = current_replica_set(snapshot), new_and_old_pods(snapshot)
    if newest is None or parted is None:
        return Progress("pending", "the Deployment controller has not seen the change yet")
    new, old = parted
    pending, judged = _parted_by_room(wait, new)
    allowed = _allowed_without_room(wait) - len(pending)
    if broken := _hopeless(judged, _without(snapshot, pending), some_refused=allowed > 0):
        return Progress("failed", broken)
    if int(dig(newest, "status", "availableReplicas") or 0) > 0:
        return Progress("pending", "the ReplicaSet controller has not seen yet that the rollout is held")
    ready = sum(map(is_ready, new))
    text = _rollout_text(replicas_of(workload), ready, judged, old, snapshot, left_out=_left_out(len(pending), 0))
    return Progress("done" if ready >= int(wait.parameters["ready"]) else "pending", text)


def _released(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """The chosen pod has released its accelerators, or cannot end and is not needed; no other pod ended instead."""
    pod, stay = _pod(wait, snapshot), wait.parameters["stay"]
    if pod is None:
        return Progress("done", f"{wait.about.name} is gone")
    if late := _overdue_text([pod], snapshot):
        ready = sum(is_ready(other) for other in pods_of_workload(snapshot))
        return Progress("done" if ready >= replicas_of(snapshot.workload or {}) else "pending", late)
    if is_going_away(pod):
        return Progress("pending", f"{wait.about.name} is ending")
    still = {uid_of(other) for other in pods_of_workload(snapshot) if not is_going_away(other)}
    if not still.issuperset(stay):
        return Progress("failed", f"another replica ended instead of {wait.about.name}")
    return Progress("pending", f"the controllers have not ended {wait.about.name} yet")


def _rollout_text(
    wanted: int,
    ready: int,
    new: Sequence[Obj],
    old: Sequence[Obj],
    snapshot: ClusterSnapshot,
    *,
    left_out: str,
) -> str:
    states = [pod_state(pod, snapshot.at, is_room_coming=True) for pod in new]
    starting = [state.text for state in states if state.state == "starting"]
    parts = [f"{ready} of {wanted} replicas run the new template"]
    if starting:
        parts.append(f"{len(starting)} starting" if len(starting) > 1 else starting[0])
    if len(starting) > 1 and (held := first_held(new)):
        parts.append(held)
    if left_out:
        parts.append(left_out)
    ending = sum(map(is_going_away, old)) - len(_overdue(old, snapshot))
    if ending:
        parts.append(f"{ending} old one{'s' if ending > 1 else ''} finishing")
    if late := _overdue_text(old, snapshot):
        parts.append(late)
    if coming := _node_coming(new, snapshot):
        parts.append(coming)
    if ready < wanted and (turned_away := refused_by_kubelets(snapshot)):
        parts.append(turned_away)
    return ", ".join(parts)


def _left_out(pending: int, refused: int) -> str:
    parts = (f"{pending} without room on a node" if pending else "", f"{refused} refused as before" if refused else "")
    return ", ".join(filter(None, parts))


def _overdue(pods: Sequence[Obj], snapshot: ClusterSnapshot) -> list[Obj]:
    """Returns the pods that cannot end: they are still there long after their grace period."""
    # A deletion timestamp is the end of the grace period.
    over = [(pod, seconds_of(dig(pod, "metadata", "deletionTimestamp"))) for pod in pods]
    return [pod for pod, at in over if at is not None and snapshot.at - at > OVERDUE_SECONDS]


def _overdue_text(pods: Sequence[Obj], snapshot: ClusterSnapshot) -> str:
    late = [name_of(pod) for pod in _overdue(pods, snapshot)]
    are, their = ("is", "its") if len(late) == 1 else ("are", "their")
    return f"{', '.join(late)} {are} still ending after {their} grace period" if late else ""


def _deadline_exceeded(workload: Obj) -> bool:
    progressing = condition(workload, "Progressing")
    return progressing.get("status") == "False" and progressing.get("reason") == "ProgressDeadlineExceeded"


def _is_any_starting(workload: Obj, new: Sequence[Obj], snapshot: ClusterSnapshot) -> bool:
    """Whether a new pod starts, or has become Ready since the controller's deadline: it has yet to see that.

    The deadline is often shorter than a start; the time of the wait is what counts.
    """
    exceeded_at = seconds_of(condition(workload, "Progressing").get("lastTransitionTime"))
    ready_at = [seconds_of(condition(pod, "Ready").get("lastTransitionTime")) for pod in new if is_ready(pod)]
    if exceeded_at is not None and any(at is not None and at >= exceeded_at for at in ready_at):
        return True
    return any(pod_state(pod, snapshot.at, is_room_coming=True).state == "starting" for pod in new)


def _canary_ready(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    canary = snapshot.canary
    if canary is None or is_going_away(canary):
        return Progress("failed", f"{wait.about} does not exist any more")
    pods = [pod for pod in pods_of_canary(snapshot) if not is_going_away(pod)]
    if broken := _broken(pods, snapshot):
        return Progress("failed", broken)
    if refused := not_created(canary, snapshot):
        return Progress("failed", refused)
    if coming := _node_coming(pods, snapshot):
        return Progress("pending", coming)
    if _deadline_exceeded(canary):
        return Progress("failed", f"no progress: {condition(canary, 'Progressing').get('message', '')}")
    if rollout_state(canary).is_complete and any(map(is_ready, pods)):
        return Progress("done", f"the canary {name_of(pods[0])} is Ready")
    return Progress("pending", pod_state(pods[0], snapshot.at).text if pods else "the canary's pod is not there yet")


def _scaled(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    workload, wanted = snapshot.workload, int(wait.parameters["replicas"])
    if workload is None or uid_of(workload) != wait.about.uid:
        return Progress("failed", f"{wait.about} was deleted")
    if replicas_of(workload) != wanted:
        return Progress("failed", f"somebody else scaled it to {replicas_of(workload)}")
    pods, status = pods_of_workload(snapshot), rollout_state(workload)
    if broken := _hopeless_beside(wait, snapshot):
        return Progress("failed", broken)
    text, there = _ready_text(wait, snapshot), wanted - _refused_before(wait, snapshot)
    needed, late = there - _unready_before(wait, snapshot), _overdue(pods, snapshot)
    # The controller of numbered replicas counts those that are ending, others do not.
    totals = (there, there + sum(map(serves, late)))
    is_settled = status.is_observed and status.updated == status.total and status.available >= needed
    is_all = len(pods) - len(late) == there * pods_in_a_replica(workload) and _ready_replicas(snapshot) == needed
    if not (is_settled and is_all and status.total in totals):
        return Progress("pending", text)
    kept = [name_of(pod) for pod in pods if uid_of(pod) in wait.parameters.get("ends", ()) and pod not in late]
    if kept:
        return Progress("failed", f"{text}, but {', '.join(kept)} should have ended and another replica did")
    return Progress("done", text)


def _ready_replicas(snapshot: ClusterSnapshot) -> int:
    return sum(is_replica_ready(snapshot, pod) for pod in replicas_present(snapshot))


def _judged(wait: Wait, snapshot: ClusterSnapshot) -> list[Obj]:
    """Returns the pods that the change is about: not those of replicas that were not Ready before it."""
    before = wait.parameters.get("unready", ())
    return [pod for pod in pods_of_workload(snapshot) if uid_of(pod) not in before]


def _unready_before(wait: Wait, snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas that were not Ready before the change stay and are still not."""
    before = wait.parameters.get("unready", ())
    staying = [pod for pod in replicas_present(snapshot) if uid_of(pod) in before and not is_going_away(pod)]
    return sum(not is_replica_ready(snapshot, pod) for pod in staying)


def _refused_before(wait: Wait, snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas are refused, as they were before the change."""
    refused = refused_replicas(snapshot.workload, snapshot) if snapshot.workload is not None else 0
    return min(int(wait.parameters.get("refused", 0)), refused)


def _hopeless_beside(wait: Wait, snapshot: ClusterSnapshot) -> str:
    """As `_hopeless`, for a change of other replicas than those that were broken or refused before it."""
    restarts = wait.parameters.get("restarts", {})
    return _hopeless(_judged(wait, snapshot), snapshot, some_refused="refused" in wait.parameters, restarts=restarts)


def _are_enough_ready(wait: Wait, snapshot: ClusterSnapshot) -> bool:
    missing = _unready_before(wait, snapshot) + _refused_before(wait, snapshot)
    return _ready_replicas(snapshot) >= _wanted(wait, snapshot) - missing


def _wanted(wait: Wait, snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas the change was planned for, or fewer if the autoscaler has scaled in since.

    Below the autoscaler's own limits, or while it is paused, somebody else did that. A workload that is scaled to 0 has
    no autoscaler at work.
    """
    planned, scaler = int(wait.parameters["replicas"]), autoscaler_of(snapshot)
    if scaler is None or scaler.is_fixed:
        return planned
    return min(planned, max(scaler.lowest, replicas_of(snapshot.workload or {})))


def _scaled_in_by_others(wait: Wait, snapshot: ClusterSnapshot) -> Progress | None:
    """Returns the outcome if fewer replicas are wanted than planned, unless the autoscaler decided that."""
    now = replicas_of(snapshot.workload or {})
    if now >= _wanted(wait, snapshot):
        return None
    unread = [snapshot.unreadable[name] for name in ("autoscalers", "scaled_objects") if name in snapshot.unreadable]
    if unread:
        text = f"it was scaled to {now}; whether an autoscaler did that cannot be read now: {'; '.join(unread)}"
        return Progress("pending", text)
    return Progress("failed", f"somebody else scaled it to {now}")


def _ready_text(wait: Wait, snapshot: ClusterSnapshot) -> str:
    pods = replicas_present(snapshot)
    ending = sum(map(is_going_away, pods)) - len(_overdue(pods, snapshot))
    parts = (
        _count_text(wait, snapshot),
        f"{ending} ending" if ending else "",
        _overdue_text(pods, snapshot),
        first_held(pods),
        _node_coming(pods_of_workload(snapshot), snapshot),
    )
    return ", ".join(filter(None, parts))


def _count_text(wait: Wait, snapshot: ClusterSnapshot) -> str:
    before, refused = _unready_before(wait, snapshot), _refused_before(wait, snapshot)
    planned, wanted, scaler = int(wait.parameters["replicas"]), _wanted(wait, snapshot), autoscaler_of(snapshot)
    parts = (
        f"{_ready_replicas(snapshot)} of {wanted} replicas Ready",
        f"{scaler.text} wants {wanted} now, not {planned}" if scaler is not None and wanted < planned else "",
        f"{before} not Ready as before" if before else "",
        f"{refused} refused as before" if refused else "",
        refused_by_kubelets(snapshot) if _ready_replicas(snapshot) < wanted else "",
    )
    return ", ".join(filter(None, parts))


def _grown(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """An autoscaler scales up, some seconds later, and may want even more replicas."""
    workload, wanted = snapshot.workload, int(wait.parameters["replicas"])
    if workload is None:
        return Progress("failed", "the workload was deleted")
    if replicas_of(workload) < wanted:
        return Progress("pending", f"the autoscaler wants {replicas_of(workload)} replicas, not {wanted} yet")
    if broken := _hopeless_beside(wait, snapshot):
        return Progress("failed", broken)
    return Progress("done" if _are_enough_ready(wait, snapshot) else "pending", _ready_text(wait, snapshot))


def _out_of_rotation(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    pod = _pod(wait, snapshot)
    if pod is None:
        return Progress("failed", f"{wait.about.name} is gone")
    if is_in_rotation(pod, snapshot):
        return Progress("pending", f"{name_of(pod)} is still listed for requests")
    return Progress("done", f"{name_of(pod)} is out of rotation")


def _in_rotation(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    pod = _pod(wait, snapshot)
    if pod is None or is_going_away(pod):
        return Progress("failed", f"{wait.about.name} is gone")
    if is_in_rotation(pod, snapshot):
        return Progress("done", f"{name_of(pod)} is in rotation")
    return Progress("pending", f"{name_of(pod)} is not listed for requests yet")


def _emptied(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """Nothing runs, waits or arrives any more: kept connections may go on sending for a while."""
    pod = _pod(wait, snapshot)
    if pod is None:
        return Progress("failed", f"{wait.about.name} is gone")
    load = snapshot.load.get(name_of(pod))
    if load is None or load.running is None or load.waiting is None:
        return Progress("pending", f"how many requests run on {name_of(pod)} is not known")
    left, arrived = load.running + load.waiting, load.arrivals_in_window
    is_covered = arrived is not None and load.window_seconds >= COVERED * float(wait.parameters["quiet_seconds"])
    left_over = f"{left:.0f} requests left on {name_of(pod)}"
    if is_covered and left > 0 and load.has_moved is False:
        text = f"{left_over}; none finished and no token was made in the last {load.window_seconds:.0f} s"
        patience = min(HANGS_SECONDS, wait.within_seconds / 2)
        then: Literal["done", "failed"] = "done" if wait.parameters.get("ends_if_hung") else "failed"
        return Progress("pending", text, patience_seconds=patience, then=then)
    if is_covered and arrived and not is_in_rotation(pod, snapshot):
        text = f"{left_over}; {arrived:.0f} more arrived in the last {load.window_seconds:.0f} s, over kept connections"
        return Progress("pending", text, patience_seconds=STICKY_SECONDS)
    if left > 0:
        return Progress("pending", left_over)
    if not is_covered:
        return Progress("pending", f"{name_of(pod)} is idle; watching whether requests still arrive")
    if arrived:
        text = f"requests still arrive at {name_of(pod)}: {arrived:.0f} in the last {load.window_seconds:.0f} s"
        return Progress("pending", text)
    return Progress("done", f"{name_of(pod)} is empty, nothing arrived for {load.window_seconds:.0f} s")


def _replaced(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    workload = snapshot.workload
    if workload is None:
        return Progress("failed", "the workload was deleted")
    if (by_others := _scaled_in_by_others(wait, snapshot)) is not None:
        return by_others
    pod = _pod(wait, snapshot)
    late = _overdue_text([pod] if pod else [], snapshot)
    if pod is not None and not late:
        return Progress("pending", f"{wait.about.name} is ending")
    if broken := _hopeless_beside(wait, snapshot):
        return Progress("failed", broken)
    text = f"{_count_text(wait, snapshot)}, {late or f'{wait.about.name} is gone'}"
    return Progress("done" if _are_enough_ready(wait, snapshot) else "pending", text)


def _spare_ready(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """The ReplicaSet has released the pod, and as many replicas as wanted are Ready without it."""
    if snapshot.workload is None:
        return Progress("failed", "the workload was deleted")
    if (by_others := _scaled_in_by_others(wait, snapshot)) is not None:
        return by_others
    if wait.parameters["uid"] in {uid_of(pod) for pod in pods_of_workload(snapshot)}:
        return Progress("pending", f"the ReplicaSet has not released {wait.about.name} yet")
    if broken := _hopeless_beside(wait, snapshot):
        return Progress("failed", broken)
    return Progress("done" if _are_enough_ready(wait, snapshot) else "pending", _ready_text(wait, snapshot))


def _gone(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    if snapshot.canary is not None and wait.about.uid in ("", uid_of(snapshot.canary)):
        return Progress("pending", f"{wait.about.name} is being deleted")
    left = len(pods_of_canary(snapshot))
    if left:
        return Progress("pending", f"{left} pod{'s' if left > 1 else ''} of {wait.about.name} finishing")
    return Progress("done", f"{wait.about.name} is gone")


def _cordoned(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    node = next((node for node in snapshot.nodes if uid_of(node) == wait.parameters["uid"]), None)
    if node is None:
        return Progress("failed", f"{wait.about} is gone")
    text = f"{name_of(node)} {'takes no new pods' if is_cordoned(node) else 'takes new pods'}"
    return Progress("done" if is_cordoned(node) == wait.parameters["cordoned"] else "pending", text)


def _pod_gone(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """A pod is gone, of any workload."""
    pod = next((pod for pod in snapshot.all_pods if uid_of(pod) == wait.parameters["uid"]), None)
    if pod is None:
        return Progress("done", f"{wait.about.name} is gone")
    return Progress("pending", f"{wait.about.name} is {'ending' if is_going_away(pod) else 'still there'}")


def _job_ended(wait: Wait, snapshot: ClusterSnapshot) -> Progress:
    """A Job counts its own attempts; this check fails it only if its pod never gets to run."""
    job = next((job for job in snapshot.jobs if name_of(job) == wait.about.name), None)
    if job is None or is_going_away(job):
        return Progress("failed", f"{wait.about} was deleted before its end was seen")
    if condition(job, "Complete").get("status") == "True":
        return Progress("done", f"{wait.about.name} is complete")
    if (failure := condition(job, "Failed")).get("status") == "True":
        text = ": ".join(filter(None, (str(failure.get("reason") or ""), str(failure.get("message") or ""))))
        return Progress("failed", f"{wait.about.name} failed{': ' + text if text else ''}")
    waiting = [pod for pod in pods_of_job(snapshot, job) if dig(pod, "status", "phase") == "Pending"]
    if broken := _broken(waiting, snapshot) or ("" if pods_of_job(snapshot, job) else refused_by_events(job, snapshot)):
        return Progress("failed", broken)
    failed = int(dig(job, "status", "failed") or 0)
    attempts = f", {failed} failed attempt{'s' if failed > 1 else ''}" if failed else ""
    at_work = "is running" if dig(job, "status", "active") else "has no pod yet"
    return Progress("pending", f"{wait.about.name} {at_work}{attempts}")


def _hopeless(
    pods: Sequence[Obj],
    snapshot: ClusterSnapshot,
    *,
    is_room_coming: bool = False,
    some_refused: bool = False,
    restarts: Mapping[str, int] = NONE_RESTARTED,
) -> str:
    """Returns why the first pod cannot recover by waiting. A pod without capacity waits for those that are ending.

    `some_refused`: replicas were refused before, and more seem to be until a successor takes what one has released.
    `restarts`: the UIDs of pods that had restarted before the change, and how often.
    """
    workload = None if some_refused else snapshot.workload
    is_room_coming = is_room_coming or any(map(is_going_away, pods_of_workload(snapshot)))
    if workload is not None and not is_room_coming and (refused := not_created(workload, snapshot)):
        return refused
    is_room_there = any(_has_room_by_now(pod, snapshot) for pod in pods)
    return _broken(pods, snapshot, is_room_coming=is_room_coming or is_room_there, restarts=restarts)


def _broken(
    pods: Sequence[Obj],
    snapshot: ClusterSnapshot,
    *,
    is_room_coming: bool = False,
    restarts: Mapping[str, int] = NONE_RESTARTED,
) -> str:
    """Returns the first pod that cannot recover by waiting. While a node is being added for a pod, it can."""
    for pod in pods:
        answer = scale_up_answer(pod, snapshot) if _is_unschedulable(pod) else None
        if answer is not None and answer.state != "coming" and not is_room_coming:
            message = condition(pod, "PodScheduled").get("message") or "no node takes it"
            return f"{name_of(pod)}: cannot be scheduled: {message}; {answer.text}"
        waits = answer is not None or _may_be_answered(pod, snapshot)
        before = restarts.get(uid_of(pod), 0)
        state = pod_state(pod, snapshot.at, is_room_coming=is_room_coming or waits, restarts_before=before)
        if state.state == "broken":
            return state.text
    return ""


def _is_unschedulable(pod: Obj) -> bool:
    is_refused = condition(pod, "PodScheduled").get("status") == "False" and not room_made_for(pod)
    return is_refused and not is_going_away(pod)


def _may_be_answered(pod: Obj, snapshot: ClusterSnapshot) -> bool:
    """Whether a node autoscaler of this cluster may not have looked at the pod yet."""
    since = seconds_of(condition(pod, "PodScheduled").get("lastTransitionTime"))
    return bool(growth_of(snapshot).by) and since is not None and snapshot.at - since < ANSWER_SECONDS


def _node_coming(pods: Sequence[Obj], snapshot: ClusterSnapshot) -> str:
    """Returns the first pod for which a node is being added, with the autoscaler's event; empty if there is none."""
    waiting = [pod for pod in pods if _is_unschedulable(pod)]
    answers = [(name_of(pod), answer) for pod in waiting if (answer := scale_up_answer(pod, snapshot))]
    return next((f"{name} is Pending: {answer.text}" for name, answer in answers if answer.state == "coming"), "")


def _has_room_by_now(pod: Obj, snapshot: ClusterSnapshot) -> bool:
    """Whether accelerators that the pod was refused for are now free: the scheduler has yet to retry."""
    message = str(condition(pod, "PodScheduled").get("message", ""))
    if not any(f"Insufficient {kind}" in message for kind in accelerators_of(pod)):
        return False
    rest = tuple(other for other in snapshot.all_pods if uid_of(other) != uid_of(pod))
    room = capacity_for(replace(snapshot, all_pods=rest), pod)
    return isinstance(room, Capacity) and room.replicas_that_fit > 0


def _pod(wait: Wait, snapshot: ClusterSnapshot) -> Obj | None:
    return next((pod for pod in snapshot.pods if uid_of(pod) == wait.parameters["uid"]), None)


Check = Callable[[Wait, ClusterSnapshot], Progress]
CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "rolled_out": (_rolled_out, ("replica_sets", "pods")),
    "observed": (_observed, ()),
    "surge_ready": (_surge_ready, ("replica_sets", "pods")),
    "released": (_released, ("replica_sets", "pods")),
    "canary_ready": (_canary_ready, ("canary", "pods")),
    "scaled": (_scaled, ("replica_sets", "pods")),
    "grown": (_grown, ("replica_sets", "pods")),
    "out_of_rotation": (_out_of_rotation, ("pods", "endpoint_slices")),
    "in_rotation": (_in_rotation, ("pods", "endpoint_slices")),
    "emptied": (_emptied, ("pods",)),
    "replaced": (_replaced, ("replica_sets", "pods")),
    "spare_ready": (_spare_ready, ("replica_sets", "pods")),
    "gone": (_gone, ("canary", "pods")),
    "cordoned": (_cordoned, ("nodes",)),
    "pod_gone": (_pod_gone, ("all_pods",)),
    "job_ended": (_job_ended, ("jobs", "all_pods")),
}
"""Each condition with its check and the sources it reads."""
