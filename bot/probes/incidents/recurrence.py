"""The `recurrence` probe. A deleted incident is not counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.domain.incidents.subjects import about_target
from bot.domain.signals.signal import Reading
from bot.flow.incident_history import SOURCE, PastRuns, runs_since
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer
from bot.probes.declaration import Probe

WEEK_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Recurrence:
    count: float
    incidents: str


class ReadRecurrence:
    """How many incidents of this target there were in seven days, including this one."""

    def __init__(self, runs: PastRuns, now: Callable[[], float]) -> None:
        self._runs, self._now = runs, now

    async def __call__(self, request: ProbeRequest) -> Reading:
        start = self._now() - WEEK_SECONDS
        here = request.context.target
        past = await runs_since(self._runs, start, about=about_target(here.key), mentioning=here.name)
        own = [run for run in past if run.target.key == here.key and run.opened_at >= start]
        ids = {run.incident_id for run in own} | {request.context.incident_id}
        listed = ", ".join(sorted(ids))
        return answer(request, Recurrence(float(len(ids)), listed), detail=f"in 7 days: {listed}", source=SOURCE)


PROBE = Probe(
    name="recurrence",
    label="Same trouble before",
    help="How many incidents this target had in seven days.",
    answer=Recurrence,
    read=lambda sources: ReadRecurrence(sources.runs, sources.now),
)
