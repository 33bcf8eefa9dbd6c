"""Reads a probe's answer from the incident itself, as it is stored."""

from __future__ import annotations

from collections.abc import Callable

from bot.domain.incidents.run import Run
from bot.domain.signals.signal import Reading
from bot.flow.incident_history import SOURCE, PastRuns
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import no_answer


class ReadPresentRun:
    """`answer_of` gives the reading of the incident that asks; without that incident it is unknown."""

    def __init__(self, runs: PastRuns, answer_of: Callable[[ProbeRequest, Run], Reading]) -> None:
        self._runs, self._answer_of = runs, answer_of

    async def __call__(self, request: ProbeRequest) -> Reading:
        run = await self._runs.load(request.context.incident_id)
        if run is None:
            return no_answer(request, "the incident is not stored", source=SOURCE)
        return self._answer_of(request, run)
