"""What the bot would have proposed in some time, what people did, and when it recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.domain.approvals.grant import Request
from bot.domain.incidents.run import Run
from bot.domain.kernel.durations import lasting

SHOWN = 30


@dataclass(frozen=True)
class Observed:
    """One change that was only advised."""

    incident_id: str
    target: str
    request: Request

    @property
    def at(self) -> float:
        return self.request.asked_at


def observed(runs: Iterable[Run], start: float, end: float) -> list[Observed]:
    """Returns what was only advised in this time because of observe-only. Freezes are not counted."""
    return [
        Observed(run.incident_id, str(run.target), request)
        for run in runs
        for request in run.requests.values()
        if request.advice is not None and request.advice.reason == "observe_only" and start <= request.asked_at < end
    ]


def summary(found: Sequence[Observed], start: float, end: float, *, name: Callable[[str], str] = str) -> str:
    """Returns the summary as plain lines, oldest first. `name`: how a person is shown."""
    found = sorted(found, key=lambda each: (each.at, each.incident_id))
    recovered = sum(1 for each in found if each.request.outcome == "recovered")
    helped = sum(1 for each in found if each.request.carried_out)
    many = f"{len(found)} change{'s' if len(found) != 1 else ''}"
    when = f"{_day(start)} to {_day(end - 1)}"
    head = f"Observe-only, {when}: the bot would have proposed {many} to workloads that it only observes."
    if not found:
        return head
    counts = (
        f"In {recovered} of {len(found)} cases the workload recovered while the bot watched;"
        f" people said what they did in {helped}."
    )
    more = [f"… and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "\n".join([head, counts, *(_line(each, name) for each in found[:SHOWN]), *more])


def _line(each: Observed, name: Callable[[str], str]) -> str:
    request = each.request
    done = "; ".join(
        f"{name(one.user)} did something else: {one.text}" if one.text else f"{name(one.user)} carried it out"
        for one in request.carried_out
    )
    when = datetime.fromtimestamp(request.asked_at, UTC)
    title = f"{each.incident_id} {each.target}, {when:%a %d %b %H:%M} UTC: {request.plan.title}"
    return f"• {title}. {done or 'Nobody said what was done'}; {_ended(request)}."


def _ended(request: Request) -> str:
    if request.ended_at is None:
        return "requested once that was allowed" if request.status == "superseded" else "not known to have recovered"
    after = lasting(max(request.ended_at - request.asked_at, 0.0))
    return f"recovered after {after}" if request.outcome == "recovered" else f"not recovered after {after}"


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%a %d %b}"
