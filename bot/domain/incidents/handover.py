"""What the next lead of an incident has to know: what waits, what is in place, what was promised and by when."""

from __future__ import annotations

from collections.abc import Iterator

from bot.domain.incidents.run import NEXT_STATUS, Run
from bot.domain.signals.window import clock


def open_matters(run: Run, now: float) -> tuple[str, ...]:
    """Returns one plain line for each; times are UTC, to the minute."""
    return tuple(_open_matters(run, now))


def _open_matters(run: Run, now: float) -> Iterator[str]:
    question, request = run.open_question, run.open_request
    if question is not None:
        yield f"Waits for an answer{_at('by', question.expires_at, now)}: {question.text}"
    elif request is not None:
        yield f"Waits for approval{_at('by', request.expires_at, now)}: {request.called}"
    elif run.change is not None and run.change.begun:
        yield f"A change is being applied: {run.requests[run.change.request_id].called}"
    elif run.watch is not None:
        yield f"The bot watches{_at('until', run.watch.until, now)}: {run.doing or run.state}"
    else:
        yield f"The bot works on: {run.doing or run.state}"
    if run.parked is not None:
        yield f"Parked{_at('since', run.parked.since, now)}"
    if run.halted_by:
        yield f"Halted by <@{run.halted_by}>"
    if run.in_place:
        yield f"Changes in place: {'; '.join(run.in_place)}"
    if NEXT_STATUS in run.deadlines:
        yield f"The next status update is due{_at('by', run.deadlines[NEXT_STATUS], now)}"
    if run.silences:
        yield f"Alerts are silenced{_at('until', min(run.silences.values()), now)}"


def _at(word: str, at: float | None, now: float) -> str:
    if at is None:
        return ""
    shown = clock(at, now)
    return f" {word} {shown if '-' in shown else shown[:5]} UTC"
