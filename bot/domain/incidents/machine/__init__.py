"""The decision: `advance` moves a run by one event. Pure: same run, same event, same decision.

A late, repeated or unexpected event changes nothing but is still recorded on the timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bot.domain.incidents.event import (
    COMMANDS,
    AdviceWatched,
    AlertChanged,
    CalmRead,
    ChangesPassedOn,
    Commanded,
    Due,
    EffectFailed,
    Event,
    Judged,
    OpenedByHand,
    Paged,
    PageFailed,
    Planned,
    Posted,
    Pressed,
    Progressed,
    PullRequestSettled,
    SeriesRead,
    SignalsRead,
    Silenced,
    SilencesEnded,
    StepSettled,
    Watched,
)
from bot.domain.incidents.machine import (
    advising,
    calling,
    calm,
    changing,
    deadlines,
    events,
    operator_actions,
    parking,
    presses,
    pull_requests,
    questions,
    reading,
    severity,
    urgency,
)
from bot.domain.incidents.machine.draft import Decision, Draft, Rules
from bot.domain.incidents.machine.entering import enter
from bot.domain.incidents.machine.orphaned_run import without_playbook
from bot.domain.incidents.run import SILENCE_ENDS, Run
from bot.domain.playbooks.bundle import Bundle

__all__ = ["Decision", "Rules", "advance", "set_aside", "without_playbook"]


def advance(run: Run, event: Event, bundle: Bundle, rules: Rules, *, other: str = "") -> Decision:
    """Move `run` by one event; a late or unexpected event changes nothing but is still recorded.

    `other`: the incident that has the target's slot. A parked or closed run cannot continue beside it.
    """
    decision = _advance(run, event, bundle, rules, other)
    continues = decision.run.is_open and decision.run.parked is None
    if other and continues and (run.parked is not None or not run.is_open):
        draft = Draft(run, bundle, rules, event.at, other=other)
        _give_way(draft, event)
        calling.follow(draft, run, event)
        return draft.decision()
    return decision


def _give_way(draft: Draft, event: Event) -> None:
    """Another incident has the target: a parked run ends, and a closed one stays closed."""
    if isinstance(event, AlertChanged) and event.alert.status == "firing":
        parking.route_again(draft, event)
    if draft.run.is_open:
        events.supersede(draft)
    press = event.press if isinstance(event, Judged) else None
    if press is not None:
        draft.notify(press, f"{draft.other} is open on the same workload; this incident ended. Nothing was changed.")


def _advance(run: Run, event: Event, bundle: Bundle, rules: Rules, other: str) -> Decision:
    draft = Draft(run, bundle, rules, event.at, other=other)
    if isinstance(event, Commanded) and event.user_name:
        draft.names = {event.user: event.user_name}
    if run.visit.number == 0 and isinstance(event, AlertChanged | OpenedByHand):
        if isinstance(event, OpenedByHand):
            events.opened_by_hand(draft, event)
        else:
            events.open_incident(draft, event)
        severity.expect_status(draft)
        enter(draft, draft.playbook.start)
    elif not run.is_open:
        _after_the_end(draft, event)
        if draft.run.is_open:
            severity.expect_status(draft)
    else:
        HANDLERS[type(event)](draft, event)
    urgency.follow(draft)
    calm.follow(draft)
    calling.follow(draft, run, event)
    return draft.decision()


def set_aside(run: Run, event: Event, reason: str, bundle: Bundle, rules: Rules) -> Decision:
    """Set aside an event that failed three times: record it on the timeline and ask a person, so nothing is stuck."""
    draft = Draft(run, bundle, rules, event.at)
    draft.record(
        "failed", f"set aside after three failures: {event.kind}: {reason}", data=event.model_dump(mode="json")
    )
    if isinstance(event, Due):
        draft.set_deadline(event.deadline, None)  # else it would be due again at once, for ever
    if run.is_open and run.question == "" and not isinstance(event, Progressed | Posted):
        questions.ask_what_next(draft, f"An event could not be handled ({event.kind}): {reason}")
    calling.follow(draft, run, event)
    return draft.decision()


Handler = Callable[[Draft, Any], None]
HANDLERS: Mapping[type, Handler] = {
    AlertChanged: events.alert_changed,
    OpenedByHand: events.opened_twice,
    SignalsRead: reading.signals_read,
    CalmRead: calm.read,
    Watched: reading.watched,
    AdviceWatched: advising.watched,
    Planned: changing.planned,
    StepSettled: changing.step_settled,
    Progressed: changing.progressed,
    Pressed: presses.pressed,
    Judged: presses.judged,
    Due: deadlines.due,
    Commanded: operator_actions.commanded,
    Silenced: operator_actions.silenced,
    PullRequestSettled: pull_requests.settled,
    SilencesEnded: operator_actions.silences_ended,
    SeriesRead: reading.series_read,
    Paged: calling.paged,
    PageFailed: calling.page_failed,
    Posted: events.posted,
    ChangesPassedOn: parking.passed_on,
    EffectFailed: operator_actions.effect_failed,
}
ACCEPTED_AFTER_THE_END = (
    AlertChanged, Posted, SeriesRead, EffectFailed, Silenced, SilencesEnded, Pressed, ChangesPassedOn, Paged,
    PageFailed, PullRequestSettled,
)  # fmt: skip


def _after_the_end(draft: Draft, event: Event) -> None:
    match event:
        case Judged():
            draft.notify(event.press, "This incident is closed; nothing was changed.")
            draft.ignore(f"press '{event.press.action}' by {event.press.user} after the end")
        case StepSettled():
            changing.settled_late(draft, event)
        case Commanded() if COMMANDS[event.command].when_closed:
            operator_actions.commanded(draft, event)
            if COMMANDS[event.command].is_written:
                reading.store_report(draft, event.event_id)
        case Due() if event.deadline == SILENCE_ENDS:
            deadlines.due(draft, event)
        case Progressed() | Due():
            pass
        case _ if isinstance(event, ACCEPTED_AFTER_THE_END):
            HANDLERS[type(event)](draft, event)
        case _:
            draft.ignore(f"{event.kind} after the end")
