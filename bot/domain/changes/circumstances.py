"""What a person should weigh before a change: the owner, capacity, disruption budgets, streams that would be cut.

The names of circumstances are stable, so that a later plan can be compared grade by grade with the approved one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.changes.drain import DrainMode
from bot.domain.changes.owners_edit import OwnersEdit, owners_edit
from bot.domain.changes.plan import DRAIN, LAST_ROOM, ROOM, Circumstance
from bot.domain.cluster.capacity import Capacity, accelerators_of, capacity_for, capacity_of, claims_devices
from bot.domain.cluster.disruption import Budget
from bot.domain.cluster.node_autoscaler import USUAL_WAIT
from bot.domain.cluster.objects import dig, is_going_away, is_ready, name_of
from bot.domain.cluster.owner import Owner, owner_of, owner_of_edit, patch_text, unknown_manager
from bot.domain.cluster.pod_state import is_loading
from bot.domain.cluster.preemption import ended_for
from bot.domain.cluster.quota import QuotaRoom, quota_room
from bot.domain.cluster.rollout import Strategy, replicas_of
from bot.domain.cluster.rotation import is_in_rotation, pods_of_canary, ready_replicas, replicas_present, whole_replica
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import pod_templates
from bot.domain.flags.mitigations import Move, number_in
from bot.domain.kernel.errors import NoPlanError, impossible
from bot.domain.kernel.redaction import redacted_data

NAMED = 3
"""Pods named in one circumstance."""
_NO_STREAMS = "0 streams are open"
_MAY_BE_CUT = "; any that needs longer than "
_NATIVE_DRAIN = ": native drain, "
CAPS = ("--max-num-seqs", "--max-num-active-seqs")


@dataclass(frozen=True)
class Ownership:
    """Whether an edit lasts, and what has to be committed for it to last."""

    circumstance: Circumstance
    commit: str = ""
    """The text for where the object is kept; empty if nothing has to be committed."""
    edit: OwnersEdit | None = None
    """What `commit` says, where a file can be edited by it."""


def ownership_of(
    snapshot: ClusterSnapshot, obj: Obj, spec: Mapping[str, Any], *, kind: str = "", lasts: bool = False
) -> Ownership:
    """Raise if the owner reverts the edit by itself; the hint is the edit to make in the owner.

    `spec`: what the edit changes, as part of the object. `lasts`: the owner's next release keeps it.
    """
    owner = owner_of_edit(obj, snapshot, spec, kind=kind)
    edit = None if "template" in spec else owners_edit(obj, spec, kind=kind)
    if owner is not None and owner.reverts:
        why = "would revert the edit"
        if owner.unknown:
            why = f"may revert the edit, since whether it heals itself is not known ({owner.unknown})"
        patch = patch_text(obj, redacted_data(spec), owner, kind=kind)
        raise NoPlanError(
            "impossible",
            f"{owner.text} owns it and {why}",
            patch,
            owners_edit=None if edit is None else edit.model_dump(),
        )
    if owner is not None and owner.leaves_alone:
        text = f"{owner.text} leaves {owner.leaves_alone} alone, in syncs too (ignoreDifferences,"
        text += " RespectIgnoreDifferences): there is nothing to commit"
        return Ownership(Circumstance(name="owner", grade="fine", text=text))
    if owner is not None and lasts:
        text = f"{owner.text} owns it; there is nothing to commit"
        return Ownership(Circumstance(name="owner", grade="fine", text=text))
    if owner is not None:
        return _drift("owner", owner, patch_text(obj, redacted_data(spec), owner, kind=kind), edit)
    if manager := unknown_manager(obj):
        text = f"its label says that {manager} manages it: nothing shows whether {manager} would revert the edit"
        return Ownership(Circumstance(name="owner", grade="warning", text=text))
    return Ownership(Circumstance(name="owner", grade="fine", text="applied by hand: nobody reverts it"))


def ownership_of_config_map(snapshot: ClusterSnapshot, obj: Obj, lines: Iterable[str]) -> Ownership | None:
    """As `ownership_of`, for a ConfigMap of which these lines change; None if nobody is known to own it."""
    owner, named = owner_of(obj, snapshot), f"ConfigMap {name_of(obj)}"
    if owner is None:
        return None
    changes = "; ".join(lines)
    if owner.reverts:
        raise impossible(f"{owner.text} owns {named} and would revert the edit", f"{owner.how}: {changes}")
    return _drift("config_map_owner", owner, f"# {named}: {owner.how}\n# {changes}")


def _drift(name: str, owner: Owner, commit: str, edit: OwnersEdit | None = None) -> Ownership:
    # No warning: nearly every fleet has an owner, and a warning ends what was approved in advance.
    text = f"drift: {owner.text} does not know of the change, and {owner.next_write} reverts it; {owner.how}"
    if owner.ignores:
        text = (
            f"drift: {owner.text} ignores {owner.ignores} (ignoreDifferences), but {owner.next_write} of the object"
            f" writes it, without RespectIgnoreDifferences; {owner.how}"
        )
    return Ownership(Circumstance(name=name, grade="note", text=text), commit, edit)


def no_autoscaler(snapshot: ClusterSnapshot) -> Circumstance:
    """The circumstance for a cluster without an autoscaler."""
    missing = [snapshot.unreadable[name] for name in ("autoscalers", "scaled_objects") if name in snapshot.unreadable]
    if missing:
        text = f"whether an autoscaler owns the replica count could not be read: {'; '.join(missing)}"
        return Circumstance(name="autoscaler", grade="warning", text=text)
    return Circumstance(name="autoscaler", grade="fine", text="no autoscaler owns the replica count")


def room_for_replicas(snapshot: ClusterSnapshot, more: int, what: str) -> Circumstance:
    """Capacity for whole replicas of the workload, each with all of its pods."""
    replica = [(each.template, each.pods) for each in pod_templates(snapshot.workload)]
    _refuse_beyond_quota(snapshot, replica, more, what)
    return _room(snapshot, replica[0][0], capacity_of(snapshot), more, what, is_needed=True)


def last_room(snapshot: ClusterSnapshot, more: int) -> Circumstance | None:
    """Warns that no accelerator stays free for a surge or a canary; None if one does, or the workload requests none."""
    templates = [each.template for each in pod_templates(snapshot.workload)]
    if not any(accelerators_of(template) or claims_devices(template) for template in templates):
        return None
    room = capacity_of(snapshot)
    if isinstance(room, str):
        text = (
            "whether it takes the last free accelerator, or a node has to be added, is not known: platform decides too"
        )
    elif room.replicas_that_fit > more:
        return None
    elif room.replicas_that_fit < more:
        text = "a node has to be added for it, so platform decides too"
    else:
        text = "it takes the last room that there is: no surge or canary fits afterwards, so platform decides too"
    return Circumstance(name=LAST_ROOM, grade="warning", text=text)


def room_for(snapshot: ClusterSnapshot, template: Obj, pods: int, what: str, *, is_needed: bool = True) -> Circumstance:
    """Capacity for `pods` more of this template; raise if it is needed and known to be missing."""
    if is_needed:
        _refuse_beyond_quota(snapshot, [(template, 1)], pods, what)
    return _room(snapshot, template, capacity_for(snapshot, template), pods, what, is_needed=is_needed)


def why_no_room(snapshot: ClusterSnapshot, template: Obj) -> str:
    """Returns why not even one more pod of this template can start now; empty if one can, or if it is not known."""
    quota = quota_room(snapshot, [(template, 1)])
    if isinstance(quota, QuotaRoom) and quota.replicas < 1:
        return quota.text
    room = capacity_for(snapshot, template)
    if isinstance(room, str) or room.replicas_that_fit >= 1:
        return ""
    besides = f"; {room.explanation}" if room.explanation else ""
    return f"{room.free_total} free accelerators on schedulable nodes{besides}"


def in_place_circumstance(snapshot: ClusterSnapshot, why: str, stay: int) -> Circumstance:
    """What a rollout without a surge costs: the load that the `stay` replicas carry which serve meanwhile, if any.

    A canary that serves replaces the one that is down: that costs nothing that was there before the canary.
    """
    canary = serving_canary(snapshot)
    pods = [*(pod for pod in replicas_present(snapshot) if not is_going_away(pod)), *canary]
    ready = ready_replicas(snapshot)
    now, found, of_workload = ready + len(canary), _open_on(snapshot, pods), stay
    stay = stay + len(canary) if stay > 0 else 0
    text = f"no room for a surge pod ({why}): "
    if stay > 0:
        each = f"each with {100 * (now - stay) / stay:.0f}% more" if stay < now else "as now"
        beside = " beside the canary" if canary else ""
        text += f"{of_workload} of {replicas_of(snapshot.workload or {})} serve meanwhile{beside}, {each}"
    else:
        text += "none serves meanwhile"
    if found is None:
        text += "; how many requests run now is not known"
    elif stay <= 0:
        text += f"; {found[0]:.0f} requests run now; {found[1]:.0f} wait"
    else:
        running, waiting = found
        then = f", then up to {running / stay:.0f}" if stay < now else ""
        text += f"; {running / now:.0f} requests run on each now{then}; {waiting:.0f} wait"
    return Circumstance(name=ROOM, grade="note" if canary and stay >= ready else "warning", text=text)


def serving_canary(snapshot: ClusterSnapshot) -> list[Obj]:
    """Returns the pods of this incident's canary that get requests."""
    pods = [pod for pod in pods_of_canary(snapshot) if is_ready(pod) and not is_going_away(pod)]
    return [pod for pod in pods if is_in_rotation(pod, snapshot)]


def _refuse_beyond_quota(snapshot: ClusterSnapshot, replica: Sequence[tuple[Obj, int]], more: int, what: str) -> None:
    """Checks quotas even if the capacity on nodes is unknown."""
    quota = quota_room(snapshot, replica)
    if isinstance(quota, QuotaRoom) and quota.replicas < more:
        raise impossible(f"the {what} cannot be created: {quota.text}, {more} needed", "ask for a larger quota")


def _ended_for(snapshot: ClusterSnapshot, template: Obj, room: Capacity) -> str:
    """Returns the pods of lower priority that the scheduler may end for such a pod; empty without any."""
    names = ended_for(snapshot, template, room)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _room(
    snapshot: ClusterSnapshot, template: Obj, room: Capacity | str, pods: int, what: str, *, is_needed: bool
) -> Circumstance:
    if isinstance(room, str):
        return Circumstance(name=ROOM, grade="warning", text=f"room for the {what} is not known: {room}")
    if room.replicas_that_fit < pods:
        free = f"{room.free_total} free accelerators on schedulable nodes, room for {room.replicas_that_fit}"
        if explanation := room.explanation:
            free += f" ({explanation})"
        ended = _ended_for(snapshot, template, room)
        if room.growth.is_possible:
            ends = f"the scheduler may end pods of lower priority for it: {ended}. Otherwise the" if ended else "The"
            text = (
                f"no room for the {what} now: {free}{'; ' if ended else '. '}{ends} pod may be Pending for {USUAL_WAIT}"
                " while a node is added; if none is, the wait ends at once with the reason"
            )
            return Circumstance(name=ROOM, grade="warning", text=text)
        if not is_needed:
            return Circumstance(name=ROOM, grade="warning", text=f"no room for the {what} now: {free}")
        hint = "free a GPU or add a node" + (f"; pods of lower priority hold some: {ended}" if ended else "")
        raise impossible(f"the {what} cannot be scheduled: {free}, {pods} needed", hint)
    best = ", ".join(f"{node} {count}" for node, count in sorted(room.free.items()) if count)
    besides = f"; {room.explanation}" if room.explanation else ""
    text = f"room for {room.replicas_that_fit} more (free: {best}{besides})"
    return Circumstance(name=ROOM, grade="warning" if room.unread or room.is_quota_unknown else "fine", text=text)


def streams_of(snapshot: ClusterSnapshot, pods: Iterable[Obj]) -> float | None:
    """Open requests of clients of these pods, queued ones included; None if one of the pods did not report."""
    found = _open_on(snapshot, pods)
    return None if found is None else sum(found)


def _open_on(snapshot: ClusterSnapshot, pods: Iterable[Obj]) -> tuple[float, float] | None:
    """The number of running and of queued requests."""
    running = waiting = 0.0
    for pod in pods:
        if not _may_serve(pod):
            continue
        load = snapshot.load.get(name_of(pod))
        if load is None or load.running is None or load.waiting is None:
            return None
        running, waiting = running + load.running, waiting + load.waiting
    return running, waiting


def _may_serve(pod: Obj) -> bool:
    """Whether a client may be waiting for this pod: not while its engine is down, nor before it was Ready once."""
    if dig(pod, "status", "phase") == "Pending":
        return False
    states = [dig(status, "state", "running") for status in dig(pod, "status", "containerStatuses") or []]
    return is_ready(pod) or (None not in states and not is_loading(pod))


def _streams(snapshot: ClusterSnapshot, pods: list[Obj], verb: str = "") -> str:
    """`24 streams are open (8 of them queued) on 4 pods`."""
    found = _open_on(snapshot, pods)
    where = f"on {len(pods)} pod{'' if len(pods) == 1 else 's'}"
    if found is None:
        return f"{verb or 'there is'} an unknown number of streams {where}"
    running, waiting = found
    queued = f" ({waiting:.0f} of them queued)" if waiting else ""
    if verb:
        return f"{verb} ~{running + waiting:.0f} streams{queued} {where}"
    opened = f"{running + waiting:.0f}"
    return f"{opened} {'stream is' if opened == '1' else 'streams are'} open{queued} {where}"


def drain_circumstance(
    snapshot: ClusterSnapshot, drain: DrainMode, pods: Iterable[Obj], *, is_empty: bool = False
) -> Circumstance:
    """What the end of these pods does to the requests they serve."""
    pods = list(pods)
    if is_empty:
        text = _hung_text(snapshot, pods) or "nothing runs there any more"
        return Circumstance(name=DRAIN, grade="fine", text=text)
    is_open = streams_of(snapshot, pods) != 0
    if drain.cuts_streams:
        streams = _streams(snapshot, pods, "cuts" if is_open else "")
        return Circumstance(name=DRAIN, grade="warning", text=f"{streams}: {drain.text}")
    cut = f"{_MAY_BE_CUT}{drain.seconds:.0f} s is cut" if is_open else ""
    text = f"{_streams(snapshot, pods)}{cut}{_NATIVE_DRAIN}{drain.text}"
    return Circumstance(name=DRAIN, grade="fine", text=text)


def streams_in(drain: Circumstance) -> str:
    """How many streams are open, and which are cut, without how the drain works."""
    return drain.text.partition(_NATIVE_DRAIN)[0]


def has_no_streams(drain: Circumstance) -> bool:
    return drain.text.startswith(_NO_STREAMS)


def may_cut_streams(drain: Circumstance) -> bool:
    return _MAY_BE_CUT in drain.text


def emptied_circumstance(snapshot: ClusterSnapshot, pods: Iterable[Obj], pace: str) -> Circumstance:
    """Each of these pods is drained before it ends. `pace`: how many at a time."""
    pods = list(pods)
    text = f"each replica leaves rotation and runs empty before it ends, {pace}; {_streams(snapshot, pods)}"
    return Circumstance(name=DRAIN, grade="fine", text="; ".join(filter(None, (text, _hung_text(snapshot, pods)))))


def _hung_text(snapshot: ClusterSnapshot, pods: Iterable[Obj]) -> str:
    """What becomes of replicas that hold requests and on which nothing moves: they never run empty."""
    loads = [(name_of(pod), load) for pod in pods if (load := snapshot.load.get(name_of(pod)))]
    held = {name: (load.running or 0) + (load.waiting or 0) for name, load in loads if load.has_moved is False}
    hung = [f"{name} ({count:.0f} requests)" for name, count in held.items() if count > 0]
    if not hung:
        return ""
    one = len(hung) == 1
    outcome = f"nothing moves on {', '.join(hung)} now: if that stays so, {'it ends' if one else 'they end'}"
    return f"{outcome} with {'its' if one else 'their'} requests"


def budget_circumstance(budget: Budget) -> Circumstance:
    """Raise if the budget never allows it; if only not now, the call is retried later."""
    if budget.verdict == "never":
        raise impossible(budget.text, "the budget's owner has to widen it; the bot never edits one")
    grades = {"allowed": "fine", "not_now": "warning", "unknown": "warning"}
    text = budget.text if budget.verdict != "not_now" else f"{budget.text}: it will be tried again"
    return Circumstance.model_validate({"name": "disruption_budget", "grade": grades[budget.verdict], "text": text})


def rolling_budget_note(snapshot: ClusterSnapshot, strategy: Strategy) -> Circumstance:
    """A rolling update ignores disruption budgets; maxUnavailable is what preserves capacity."""
    names = ", ".join(name_of(pdb) for pdb in snapshot.pdbs) or "none"
    text = f"rolling updates do not ask disruption budgets ({names}); at most {strategy.max_unavailable} replicas less"
    return Circumstance(name="disruption_budget", grade="fine", text=text)


def others_carry_on(snapshot: ClusterSnapshot, *leaving: Obj) -> Circumstance:
    """The extra load on the remaining replicas."""
    leaves = {name_of(pod) for one in leaving for pod in whole_replica(snapshot, one)}
    rest = [pod for pod in replicas_present(snapshot) if name_of(pod) not in leaves]
    share = f"{len(rest)} of {len(rest) + len(leaving)} replicas stay"
    waiting = [load.waiting for pod in rest if (load := snapshot.load.get(name_of(pod))) and load.waiting is not None]
    if not waiting:
        return Circumstance(name="others", grade="note", text=f"{share}; how busy they are is not known")
    queued = f"{sum(waiting):.0f}"
    text = f"{share}; {'1 request waits' if queued == '1' else f'{queued} requests wait'} on them now"
    return Circumstance(name="others", grade="note", text=text)


def binding_note(snapshot: ClusterSnapshot, moves: Iterable[Move]) -> tuple[Circumstance, ...]:
    """A cap that does not bind restarts every replica for nothing. Counts swing, so only a note."""
    cap = next((move for move in moves if move.flag in CAPS), None)
    running = [load.running for load in snapshot.load.values() if load.running is not None]
    if cap is None or not running or (after := number_in(cap.after)) is None:
        return ()
    before, busiest = number_in(cap.before), max(running)
    if before is not None and before < after:
        note = f"the present limit of {cap.before} is reached" if before <= busiest else "the limit may change nothing"
    else:
        note = "the limit is below what runs" if after < busiest else "the limit may change nothing"
    return (Circumstance(name="binds", grade="note", text=f"{note}: {_at_once(running)}"),)


def _at_once(running: list[float]) -> str:
    return f"the busiest replica runs {max(running):.0f} requests at once now"
