"""Once a week, posts in the channel what the bot would have proposed where it only advised."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import MessengerError
from bot.domain.reports.observed import Observed, observed, summary
from bot.flow.notify_once import AnnounceTo

log = structlog.get_logger()
AT = timedelta(hours=8)
"""On Monday morning, in UTC."""
READ = 500
"""Incidents at a time."""
MAX_INCIDENTS = 100_000


class PastRuns(Protocol):
    async def now(self) -> float: ...

    async def recent_incidents(self, limit: int) -> Sequence[str]: ...

    async def load_all(self, incident_ids: Sequence[str]) -> Sequence[Run]: ...


class WeeklySummary:
    """The summary of the last whole week; nothing is posted about a week in which nothing was only advised."""

    def __init__(self, runs: PastRuns, notify_once: AnnounceTo) -> None:
        self._runs, self._notify_once = runs, notify_once
        self._done = ""

    async def once(self) -> None:
        """Called every minute; posts once for each week, whichever replica of the bot comes first."""
        now = datetime.fromtimestamp(await self._runs.now(), UTC)
        monday = datetime(now.year, now.month, now.day, tzinfo=UTC) - timedelta(days=now.weekday())
        about = f"observed/{monday:%G-W%V}"
        if about == self._done or now < monday + AT:
            return
        start, end = (monday - timedelta(days=7)).timestamp(), monday.timestamp()
        if found := await observed_between(self._runs, start, end):
            people = {done.user for each in found for done in each.request.carried_out}
            try:
                await self._notify_once(about, summary(found, start, end, name=_mentioned), people)
            except MessengerError as error:  # the next round tries again
                log.warning("observed.not_posted", reason=str(error))
                return
        self._done = about


async def observed_between(runs: PastRuns, start: float, end: float) -> list[Observed]:
    """What was only advised in this time, however many incidents there were."""
    found = list[Observed]()
    names = await runs.recent_incidents(MAX_INCIDENTS)
    for first in range(0, len(names), READ):
        part = await runs.load_all(names[first : first + READ])
        found += observed(part, start, end)
        if part and all(run.opened_at < start for run in part):
            break
    return found


async def recent_runs(runs: PastRuns) -> Sequence[Run]:
    return await runs.load_all(await runs.recent_incidents(READ))


def _mentioned(user: str) -> str:
    return f"<@{user}>"
