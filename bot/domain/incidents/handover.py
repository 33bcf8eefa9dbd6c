"""What the next lead of an incident has to know: what waits, what is in place, what was promised and by when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bot.domain.incidents.run import NEXT_STATUS, Run
from bot.domain.signals.window import clock


@dataclass(frozen=True)
class Matter:
    """`Waits for approval by 08:16 UTC: Scale llm`, with its time as a number: Slack shows it in the reader's zone."""

    what: str
    about: str = ""
    word: str = ""
    at: float | None = None

    def in_words(self, shown: Callable[[float], str]) -> str:
        when = "" if self.at is None else f" {self.word} {shown(self.at)}"
        return f"{self.what}{when}: {self.about}" if self.about else f"{self.what}{when}"

    def in_utc(self, beside: float) -> str:
        return self.in_words(lambda at: _utc(at, beside))


def open_matters(run: Run) -> tuple[Matter, ...]:
    return tuple(_open_matters(run))


def _open_matters(run: Run) -> Iterator[Matter]:
    question, request = run.open_question, run.open_request
    if question is not None:
        yield Matter("Waits for an answer", question.text, "by", question.expires_at)
    elif request is not None:
        yield Matter("Waits for approval", request.called, "by", request.expires_at)
    elif run.change is not None and run.change.begun:
        yield Matter("A change is being applied", run.requests[run.change.request_id].called)
    elif run.watch is not None:
        yield Matter("The bot watches", run.visit.doing or run.visit.state, "until", run.watch.until)
    else:
        yield Matter("The bot works on", run.visit.doing or run.visit.state)
    if run.parked is not None:
        yield Matter("Parked", word="since", at=run.parked.since)
    if run.halt is not None:
        yield Matter(f"Halted by <@{run.halt.by}>")
    if run.in_place:
        yield Matter("Changes in place", "; ".join(run.in_place))
    if run.left_to_do:
        yield Matter("To do before it ends", " ".join(to_do.text for to_do in run.left_to_do))
    if NEXT_STATUS in run.deadlines:
        yield Matter("The next status update is due", word="by", at=run.deadlines[NEXT_STATUS])
    if run.silences:
        yield Matter("Alerts are silenced", word="until", at=min(run.silences.values()))


def _utc(at: float, beside: float) -> str:
    shown = clock(at, beside)
    return f"{shown if '-' in shown else shown[:5]} UTC"
