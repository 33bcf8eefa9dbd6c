"""Entering a state: the first effects of each kind of state. A run leaves only through the machine's legal edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.domain.incidents.effect import EndSilences, PlanChange, ReadSignals, ReleaseLeases, WatchSignals
from bot.domain.incidents.machine import parking, questions, residual, severity
from bot.domain.incidents.machine.conclusion import conclusion_of
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.offered_patch import to_commit
from bot.domain.incidents.run import (
    NEXT_STATUS,
    PARKED_REMINDER,
    ActiveChange,
    ActiveWatch,
    Conclusion,
    Findings,
    Frame,
    Offer,
    Run,
    ToDo,
    Visit,
)
from bot.domain.playbooks.language import (
    AskState,
    ChangeState,
    DivertState,
    EndState,
    ReadState,
    RecommendState,
    ReturnState,
    WatchState,
)

RESOLVED_AFTER_A_CHANGE = "resolved_after_a_change"
PHASE_OUTCOMES = frozenset({"planned", "granted", "superseded", "replan"})


def go(draft: Draft, outcome: str, *, because: str = "", clause: int | None = None, chosen_by: str = "") -> None:
    """Leave by `outcome` if the playbook defines it; otherwise ask what next. `clause` is the index of the `go`.

    `chosen_by`: the person who chose it, and has the incident if that hands it over.
    """
    here = draft.run.visit.machine_state
    there = draft.playbook.machine.next(here, outcome)
    if there is None:
        undo_refused = outcome == "refused" and bool(draft.run.change and draft.run.change.undo_of)
        if draft.run.change and draft.run.change.undo_of:
            draft.visit(machine_state=draft.playbook.machine.entry(draft.run.visit.state))
        draft.set(change=None, watch=None)
        questions.ask_what_next(
            draft,
            because or f"'{draft.run.visit.state}' ended with '{outcome}', and the playbook has no exit for that.",
            undo_refused=undo_refused,
        )
        return
    if outcome in PHASE_OUTCOMES:
        draft.visit(machine_state=there)
        return
    by = {"by": outcome} if clause is None else {"by": outcome, "clause": clause}
    enter(draft, draft.playbook.machine.written(there), because=because, by=by, chosen_by=chosen_by)


def enter(
    draft: Draft, name: str, *, because: str = "", by: Mapping[str, object] | None = None, chosen_by: str = ""
) -> None:
    """Begin a visit of `name`, which voids earlier effects. A state entered too often leads elsewhere.

    `by` is the edge that led there, for the timeline.
    """
    name, because, instead_of = _within_limits(draft, name, because)
    _begin_visit(draft, name, because, {**(by or {}), **({"instead_of": instead_of} if instead_of else {})})
    _begin_work(draft, name, chosen_by="" if instead_of else chosen_by)


def _begin_visit(draft: Draft, name: str, because: str, data: Mapping[str, object]) -> None:
    state = draft.playbook.state(name)
    title = draft.option(name) or draft.playbook.called(name)
    visit = Visit(
        number=draft.run.visit.number + 1,
        state=name,
        machine_state=draft.playbook.machine.entry(name),
        doing=title,
        runbook=state.runbook,
        entered_at=draft.at,
    )
    draft.set(visit=visit, change=None, watch=None, question="")
    draft.learn(path=(*draft.run.findings.path, name))
    draft.clear_waits()
    entered: dict[str, object] = {"kind": draft.playbook.kind(name), **data}
    if state.runbook:
        entered["runbook"] = state.runbook.model_dump()
    draft.record("entered", f"{title}" + (f" — {because}" if because else ""), data=entered)
    if state.severity:
        severity.set_by_playbook(draft, state.severity, title)
    parking.follow(draft, state)


def _begin_work(draft: Draft, name: str, *, chosen_by: str) -> None:
    match state := draft.playbook.state(name):
        case ReadState() | RecommendState():
            want_readings(draft)
        case AskState():
            if draft.playbook.needs(name):
                want_readings(draft)
            else:
                questions.ask_written(draft, state)
        case ChangeState():
            begin_change(draft, state.change)
        case WatchState():
            begin_watch(draft, state)
        case DivertState(divert="people"):
            _hand_over(draft, state, chosen_by=chosen_by)
        case DivertState():
            divert(draft, state)
        case ReturnState():
            _return_early(draft, state)
        case EndState():
            end(draft, state)


def _hand_over(draft: Draft, state: DivertState, *, chosen_by: str) -> None:
    """Ask who takes it. A person who chose it has it: the choice implied it, and no second press is needed."""
    if chosen_by and not state.to_group and state.taken:
        draft.set(lead=chosen_by)
        go(draft, "taken")
    else:
        questions.ask_to_take_over(draft, state)


def _within_limits(draft: Draft, name: str, because: str) -> tuple[str, str, list[str]]:
    """Returns the state to enter in place of one already entered `at_most` times, and the states skipped."""
    passed: list[str] = []
    while name not in passed:
        state = draft.playbook.state(name)
        limit = None if isinstance(state, EndState) else state.at_most
        if (
            isinstance(state, EndState)
            or limit is None
            or not state.beyond
            or draft.run.findings.path.count(name) < limit
        ):
            break
        passed.append(name)
        because = f"'{draft.playbook.called(name)}' was entered {limit} {'time' if limit == 1 else 'times'} already"
        name = state.beyond
    return name, because, passed


def want_readings(draft: Draft) -> None:
    names = draft.playbook.needs(draft.run.visit.state)
    draft.want(
        ReadSignals(
            effect_id=draft.effect_id("read"), visit=draft.run.visit.number, state=draft.run.visit.state, names=names
        )
    )


def begin_change(draft: Draft, verb: str, *, undo_of: tuple[str, ...] = (), closes: bool = False) -> None:
    parking.leave(draft)
    draft.set(change=ActiveChange(state=draft.run.visit.state, verb=verb, undo_of=undo_of, closes=closes))
    draft.want(
        PlanChange(effect_id=draft.effect_id("plan/0"), visit=draft.run.visit.number, state=draft.run.visit.state)
    )


def begin_watch(draft: Draft, state: WatchState) -> None:
    until = draft.at + draft.playbook.seconds(state.within)
    draft.set(watch=ActiveWatch(started_at=draft.at, until=until))
    draft.want(
        WatchSignals(
            effect_id=draft.effect_id("watch"),
            visit=draft.run.visit.number,
            state=draft.run.visit.state,
            started_at=draft.at,
        )
    )


# --- diverting ------------------------------------------------------------------------------------------------------
# A divert changes nothing in the cluster, so it needs no approval. Each playbook sees only its own readings and
# answers: a frame keeps the others until the run returns.

MAX_DIVERTS = 8


def divert(draft: Draft, state: DivertState) -> None:
    """Continue in another playbook, at its start."""
    run = draft.run
    if run.diverts >= MAX_DIVERTS:
        questions.ask_what_next(
            draft, f"This run was diverted {run.diverts} times; it is not diverted again automatically."
        )
        return
    if state.divert not in draft.bundle.playbooks:
        questions.ask_what_next(
            draft, f"The playbook '{state.divert}' was refused when the files were read: {state.why}"
        )
        return
    if not state.returns and (outer := _frames_up_to(run, state.divert)):
        # It waits for this playbook: beginning it again would divert back and forth without end.
        draft.set(frames=outer)
        _return(draft, "otherwise", f"{run.playbook} diverted back: {state.why}", data={"from": run.playbook})
        return
    if state.returns:
        frame = Frame(playbook=run.playbook, state=run.visit.state, findings=run.findings)
        draft.set(frames=(*run.frames, frame))
    draft.set(diverts=run.diverts + 1)
    begin(draft, state.divert, because=state.why)


def begin(draft: Draft, playbook: str, *, because: str) -> None:
    """Enter a playbook of the bundle at its start; it does not see what the previous one knew."""
    before = draft.run.playbook
    draft.set(playbook=playbook, findings=Findings())
    if playbook != before:
        data = {"from": before, "to": playbook, "returns": bool(draft.run.frames)}
        draft.record("diverted", f"continues in {playbook} — {because}", data=data)
    enter(draft, draft.playbook.start, because=because)


def take(draft: Draft, offer: Offer, *, because: str) -> None:
    """Continue for good in another playbook of this incident, at its start. What was changed keeps its undo."""
    others = {name: other for name, other in draft.run.offers.items() if name != offer.playbook}
    bundle = draft.bundle.offered[offer.playbook]
    # What the other playbook had found is in the thread. It is not what this one is about.
    draft.set(frames=(), offers=others, digest=offer.digest, title=offer.title, diagnosis="", cause="")
    draft.set(to_do=draft.run.left_to_do, conclusion=None)
    draft.bundle = replace(bundle, offered={name: b for name, b in draft.bundle.offered.items() if name in others})
    begin(draft, offer.playbook, because=because)


def come_back(draft: Draft, end: str, text: str) -> None:
    """Leave the divert by the end that the other playbook reached."""
    left = draft.run.playbook
    because = f"{left} ended with '{end}'" + (f": {text}" if text else "")
    _return(draft, end, because, data={"from": left, "end": end})


def _return_early(draft: Draft, state: ReturnState) -> None:
    """Let the playbook that diverted here go on. What is left to do here comes before the incident ends."""
    if not draft.run.frames:
        go(draft, "later")
        return
    text = draft.text("to_do")
    to_do = ToDo(playbook=draft.run.playbook, state=state.later, text=text, findings=draft.run.findings)
    others = (other for other in draft.run.to_do if (other.playbook, other.text) != (to_do.playbook, to_do.text))
    draft.set(to_do=(*others, to_do))
    draft.post_note(f"To do before this incident ends: {text}")
    come_back(draft, state.end, f"still to do: {text}")


def _frames_up_to(run: Run, playbook: str) -> tuple[Frame, ...]:
    """Returns the frames up to the one of this playbook; empty if it waits for no other."""
    at = max((index for index, frame in enumerate(run.frames) if frame.playbook == playbook), default=-1)
    return run.frames[: at + 1]


def _return(draft: Draft, end: str, because: str, *, data: dict[str, Any]) -> None:
    *outer, frame = draft.run.frames
    draft.set(frames=tuple(outer), playbook=frame.playbook, findings=frame.findings)
    back = draft.playbook.state(frame.state)
    entry = draft.playbook.machine.entry(frame.state)
    draft.visit(state=frame.state, machine_state=entry, runbook=back.runbook)
    draft.record("diverted", f"back in {frame.playbook} — {because}", data=data)
    outcome = f"returned:{end}"
    if draft.playbook.machine.next(draft.run.visit.machine_state, outcome) is None:
        outcome = "returned:otherwise"
    go(draft, outcome, because=because)


# --- ends ------------------------------------------------------------------------------------------------------------


def end(draft: Draft, state: EndState) -> None:
    """Return to where the run was diverted from. Otherwise close, unless residual changes remain: then a person decides
    what to do with them.
    """
    if draft.run.frames:
        come_back(draft, state.end, draft.text("say"))
        return
    if before := _gave_way(draft):
        because = f"'{draft.playbook.playbook.title}' ended with '{state.end}', and the alerts before it still fire"
        take(draft, before, because=because)
        return
    concluded = conclusion_of(draft, state)
    if draft.run.conclusion is not None:
        draft.set(conclusion=draft.run.conclusion.model_copy(update={"doing": None}))
    if concluded.ending != "handed_over" and _do_what_is_left(draft, concluded):
        return
    if residual.residual_changes(draft.run):
        questions.ask_about_residual_changes(draft)
        return
    if concluded.ending == "fixed" and (given_back := _nodes_given_back(draft.run)):
        close(
            draft,
            "backed_out",
            f"{', '.join(given_back)}. What was wrong there is not repaired.",
        )
        return
    if concluded.ending == "self_cleared" and (held := ", ".join(draft.run.in_place)):
        close(
            draft, RESOLVED_AFTER_A_CHANGE, f"It is calm after this change, which was not verified under load: {held}."
        )
        return
    close(draft, concluded.ending, concluded.text)


def _do_what_is_left(draft: Draft, concluded: Conclusion) -> bool:
    """Begin the first thing that a playbook left to do; False if there is none, or its playbook is not there."""
    for place, to_do in enumerate(draft.run.to_do):
        playbook = draft.bundle.playbooks.get(to_do.playbook)
        if playbook is not None and to_do.state in playbook.playbook.states:
            others = (*draft.run.to_do[:place], *draft.run.to_do[place + 1 :])
            before = draft.run.playbook
            doing = concluded.model_copy(update={"doing": to_do})
            draft.set(to_do=others, conclusion=doing, playbook=to_do.playbook, findings=to_do.findings)
            data = {"from": before, "to": to_do.playbook, "returns": False}
            draft.record("diverted", f"back in {to_do.playbook} — still to do: {to_do.text}", data=data)
            enter(draft, to_do.state, because=f"{before} ended with '{concluded.ending}'")
            return True
    return False


def _nodes_given_back(run: Run) -> list[str]:
    """Returns what had taken a node out of use until somebody took it back here, before the incident could end."""
    asked = (
        each
        for each in run.questions.values()
        if questions.asks_what_stays(each)
        and each.state == run.visit.state
        and each.asked_at >= run.visit.entered_at  # not of an end before it was reopened
    )
    if not any(each.answer == "undo" for each in asked):
        return []
    return [each.title for each in run.ledger if each.undone_by and residual.is_only_of_nodes((each,))]


def _gave_way(draft: Draft) -> Offer | None:
    """Returns the most urgent playbook that gave way and whose alerts still fire."""
    waiting = [offer for offer in draft.run.offers.values() if offer.gave_way and draft.run.fires(offer)]
    return max(waiting, key=lambda offer: offer.priority, default=None)


def close(draft: Draft, ending: str, text: str) -> None:
    if draft.run.left_to_do:
        still = " ".join(to_do.text for to_do in draft.run.left_to_do)
        text = f"{text} Still to do: {still}".strip()
    for about in ("change", "request", "question"):
        draft.clear_deadlines(about)
    draft.set_deadline(NEXT_STATUS, None)
    draft.set_deadline(PARKED_REMINDER, None)
    draft.set(parked=None)
    draft.set(closed_at=draft.at, ending=ending)
    draft.leave_state()
    held = list(draft.run.in_place)
    ended = {"ending": ending, "held": held, "users": draft.run.users, "firing": list(draft.run.firing)}
    draft.record("closed", f"closed: {ending}" + (f" — {text}" if text else ""), data=ended)
    draft.post(
        "closed",
        f"closed:{draft.run.visit.number}",
        ending,
        {
            "ending": ending,
            "text": text,
            "held": held,
            "to_commit": [f"{each.request_id} · {each.plan.title}" for each in to_commit(draft.run)],
            "users": draft.run.users,
            "users_at": draft.run.users_at,
            "firing": list(draft.run.firing),
            "head": draft.run.timeline.hash,
        },
    )
    end_silences(draft, f"close/{draft.run.visit.number}")
    if draft.run.requests:
        # Without a request nothing was ever changed, so there is no lease.
        draft.want(ReleaseLeases(effect_id=f"release/close/{draft.run.visit.number}"))


def end_silences(draft: Draft, because: str) -> None:
    """End the incident's silences: one that outlives its incident would hide the next one."""
    if draft.run.silences:
        draft.want(EndSilences(effect_id=f"unsilence/{because}", ids=tuple(draft.run.silences)))
