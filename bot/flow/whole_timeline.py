"""Reads a timeline together with its run's head, both of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.incidents.run import Run
from bot.domain.kernel.timeline import Chained, StoredHead

MAX_TRIES = 5


class Timelines(Protocol):
    async def load(self, incident_id: str) -> Run | None: ...

    async def timeline(self, incident_id: str) -> Sequence[Chained]: ...


async def whole_timeline(runs: Timelines, incident_id: str) -> tuple[Sequence[Chained], StoredHead | None]:
    """Reads again if the run moves on meanwhile; no head if the run no longer exists."""
    run = await runs.load(incident_id)
    entries = await runs.timeline(incident_id)
    for _ in range(MAX_TRIES):
        before, run = run, await runs.load(incident_id)
        if run is None or (before is not None and before.version == run.version):
            break
        entries = await runs.timeline(incident_id)
    return entries, None if run is None else StoredHead(head=run.timeline_head, length=run.timeline_length)
