"""Entering a state: what each kind of state wants first, and leaving through the machine's legal edges only."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.change.plan import LedgerEntry
from bot.domain.effect import EndSilences, PlanChange, ReadSignals, ReleaseLeases, WatchSignals
from bot.domain.machine import asking, diverting, severity
from bot.domain.machine.draft import Draft
from bot.domain.playbook.language import AskState, ChangeState, DivertState, EndState, ReadState, WatchState
from bot.domain.run import NEXT_STATUS, ActiveChange, ActiveWatch, Run
from bot.domain.signal import Reading

LEFTOVER_VERBS = frozenset({"canary", "isolate_replica", "cordon_node", "drain_node"})
"""What the bot must not leave behind at an end without a person saying so."""

PHASE_OUTCOMES = frozenset({"planned", "granted", "superseded", "replan"})


def go(draft: Draft, outcome: str, *, because: str = "", clause: int | None = None) -> None:
    """Leave by `outcome` where that is written; otherwise ask people what next. `clause` says which `go` it was."""
    here = draft.run.at_state
    there = draft.playbook.machine.next(here, outcome)
    if there is None:
        if draft.run.change and draft.run.change.undo_of:
            draft.set(at_state=draft.playbook.machine.entry(draft.run.state))
        draft.set(change=None, watch=None)
        asking.ask_what_next(
            draft, because or f"'{draft.run.state}' ended with '{outcome}', and the playbook does not say what then."
        )
        return
    if outcome in PHASE_OUTCOMES:
        draft.set(at_state=there)
        return
    by = {"by": outcome} if clause is None else {"by": outcome, "clause": clause}
    enter(draft, draft.playbook.machine.written(there), because=because, by=by)


def enter(draft: Draft, name: str, *, because: str = "", by: Mapping[str, object] | None = None) -> None:
    """Begin a visit of `name`: earlier effects are void from here on. What was entered too often leads elsewhere.

    `by` is the edge that led there, for the timeline.
    """
    name, because, instead_of = _within_limits(draft, name, because)
    state = draft.playbook.state(name)
    title = draft.playbook.called(name)
    draft.set(
        state=name,
        doing=title,
        at_state=draft.playbook.machine.entry(name),
        visit=draft.run.visit + 1,
        entered_at=draft.at,
        way=(*draft.run.way, name),
        readings={},
        change=None,
        watch=None,
        question="",
    )
    draft.clear_waits()
    entered = {"kind": draft.playbook.kind(name), **(by or {})}
    if instead_of:
        entered["instead_of"] = instead_of
    draft.record("entered", f"{title}" + (f" — {because}" if because else ""), data=entered)
    if state.severity:
        severity.said_by_playbook(draft, state.severity, title)
    match state:
        case ReadState():
            want_readings(draft)
        case AskState():
            if draft.playbook.needs(name):
                want_readings(draft)
            else:
                asking.ask_written(draft, state)
        case ChangeState():
            begin_change(draft, state.change)
        case WatchState():
            begin_watch(draft, state)
        case DivertState(divert="people"):
            asking.ask_to_take_over(draft, state)
        case DivertState():
            diverting.divert(draft, state)
        case EndState():
            end(draft, state)


def _within_limits(draft: Draft, name: str, because: str) -> tuple[str, str, list[str]]:
    """The state to enter instead of one that was entered `at_most` times already, and those that were passed over."""
    passed: list[str] = []
    while name not in passed:
        state = draft.playbook.state(name)
        limit = None if isinstance(state, EndState) else state.at_most
        if isinstance(state, EndState) or limit is None or not state.beyond or draft.run.way.count(name) < limit:
            break
        passed.append(name)
        because = f"'{draft.playbook.called(name)}' was entered {limit} {'time' if limit == 1 else 'times'} already"
        name = state.beyond
    return name, because, passed


def want_readings(draft: Draft) -> None:
    names = draft.playbook.needs(draft.run.state)
    draft.want(
        ReadSignals(effect_id=draft.effect_id("read"), visit=draft.run.visit, state=draft.run.state, names=names)
    )


def begin_change(draft: Draft, verb: str, *, undo_of: tuple[str, ...] = ()) -> None:
    draft.set(change=ActiveChange(state=draft.run.state, verb=verb, undo_of=undo_of))
    draft.want(PlanChange(effect_id=draft.effect_id("plan/0"), visit=draft.run.visit, state=draft.run.state))


def begin_watch(draft: Draft, state: WatchState) -> None:
    until = draft.at + draft.playbook.seconds(state.within)
    draft.set(watch=ActiveWatch(started_at=draft.at, until=until))
    draft.want(
        WatchSignals(
            effect_id=draft.effect_id("watch"), visit=draft.run.visit, state=draft.run.state, started_at=draft.at
        )
    )


def leftovers(run: Run) -> tuple[LedgerEntry, ...]:
    """Spares, cordons, isolated replicas, and rollouts that stand still half-way, all calls of their change."""
    still = still_rollouts(run)
    changes = {change_of(entry) for entry in still}
    kept = {entry.call_id for entry in run.held if entry.verb in LEFTOVER_VERBS or change_of(entry) in changes}
    kept |= {entry.call_id for entry in still}
    return tuple(entry for entry in run.ledger if entry.call_id in kept)


def still_rollouts(run: Run) -> tuple[LedgerEntry, ...]:
    """The newest call on each workload that holds its rollout, where no later one has let it go.

    A call that takes something back may be among them: it has no undo of its own.
    """
    newest = {str(entry.target): entry for entry in run.ledger if entry.holds is not None and not entry.undone_by}
    return tuple(entry for entry in newest.values() if entry.holds)


def change_of(entry: LedgerEntry) -> str:
    """The change whose call it was, as incident and request."""
    return entry.call_id.rpartition("/")[0]


def end(draft: Draft, state: EndState) -> None:
    """Go back where the run was diverted from. Otherwise close, unless something of ours is still out there: then a
    person says what becomes of it.
    """
    if draft.run.frames:
        diverting.come_back(draft, state)
        return
    if leftovers(draft.run):
        asking.ask_about_leftovers(draft)
        return
    close(draft, state.end, draft.told("say"))


def close(draft: Draft, ending: str, text: str) -> None:
    draft.clear_deadlines("request")
    draft.clear_deadlines("question")
    draft.set_deadline(NEXT_STATUS, None)
    draft.set(closed_at=draft.at, ending=ending, question="", change=None, watch=None, visit=draft.run.visit + 1)
    held = [entry.title for entry in draft.run.held]
    draft.record("closed", f"closed: {ending}" + (f" — {text}" if text else ""), data={"ending": ending, "held": held})
    draft.post(
        "closed",
        f"closed:{draft.run.visit}",
        ending,
        {
            "ending": ending,
            "text": text,
            "held": held,
            "head": draft.run.timeline_head,
            "baseline": _numbers(draft.run.baseline),
            "latest": _numbers(draft.run.latest),
        },
    )
    end_silences(draft, f"close/{draft.run.visit}")
    draft.want(ReleaseLeases(effect_id=f"release/close/{draft.run.visit}"))


def _numbers(readings: Mapping[str, Reading]) -> dict[str, object]:
    """What the message of the close says of them, also when the incident goes on later."""
    kept = {"name", "value", "unit", "at", "unknown"}
    shown = {name: each for name, each in readings.items() if each.is_number or not each.is_known}
    return {name: each.model_dump(include=kept) for name, each in shown.items()}


def end_silences(draft: Draft, because: str) -> None:
    """A silence that outlives its incident would hide the next one."""
    if draft.run.silences:
        draft.want(EndSilences(effect_id=f"unsilence/{because}", ids=tuple(draft.run.silences)))
