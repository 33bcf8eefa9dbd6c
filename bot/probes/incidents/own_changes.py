"""The `own_changes` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.signals.signal import Reading
from bot.flow.incident_history import SOURCE, PastRuns
from bot.flow.ports import ProbeRequest
from bot.probes.answers import answer, no_answer
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class OwnChanges:
    in_place: bool
    titles: str
    """With semicolons between."""


class ReadOwnChanges:
    """Whether a change of this incident is in place, so that it could be taken back."""

    def __init__(self, runs: PastRuns) -> None:
        self._runs = runs

    async def __call__(self, request: ProbeRequest) -> Reading:
        run = await self._runs.load(request.context.incident_id)
        if run is None:
            return no_answer(request, "the incident is not stored", source=SOURCE)
        titles = "; ".join(run.in_place)
        return answer(
            request, OwnChanges(bool(titles), titles), detail=f"in place: {titles or 'nothing'}", source=SOURCE
        )


PROBE = Probe(
    name="own_changes",
    help="Whether a change of this incident is in place, and which ones.",
    answer=OwnChanges,
    read=lambda sources: ReadOwnChanges(sources.runs),
)
