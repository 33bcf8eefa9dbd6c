"""What happens when a deadline of a run has passed. Its name says what it is about, of which, and what is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot.domain.incidents.event import Due
from bot.domain.incidents.machine import calm, changing, events, operator_actions, parking, waits
from bot.domain.incidents.machine.draft import Draft

_OF_WAITS: Mapping[tuple[str, str], Callable[[Draft, str], None]] = {
    ("request", "unposted"): waits.request_unposted,
    ("request", "half"): waits.half_of_a_request,
    ("request", "expiry"): waits.request_expired,
    ("question", "half"): waits.half_of_a_question,
    ("question", "expiry"): waits.question_expired,
    ("question", "unanswered"): waits.question_unanswered,
}


def due(draft: Draft, event: Due) -> None:
    """Act on a deadline that has passed; one that was moved or cleared meanwhile is only recorded."""
    if draft.run.deadlines.get(event.deadline) != event.due_at:
        draft.ignore(f"an old deadline: {event.deadline}")
        return
    draft.set_deadline(event.deadline, None)
    about, ref, what = event.deadline.split(":")
    match about:
        case "request" | "question":
            _OF_WAITS[about, what](draft, ref)
        case "change":
            changing.still_halted(draft, event.deadline)
        case "parked" if draft.run.parked and draft.run.parked.unanswered and draft.other:
            events.supersede(draft)
        case "parked":
            parking.remind(draft)
        case "status":
            operator_actions.remind_of_status(draft)
        case "silence":
            operator_actions.silence_ends(draft)
        case "calm":
            calm.check(draft, event)
