"""Effect: the report of a closed incident goes where the settings say, in all its formats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from bot.domain.incidents.effect import StoreReport
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.reports import as_json, html, markdown
from bot.domain.reports.chart import Chart
from bot.domain.reports.roles import Roles
from bot.flow.handlers.draw_chart import Aside
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.people import ReportSink
from bot.flow.ports.storage import RunStore

log = structlog.get_logger()
TRIES = 40
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 2.0, 600.0
"""Together about six hours: an outage of the store loses no report."""
PUT_SECONDS = 120.0
"""For one sink, with its own retries. Two take less than `MAX_SECONDS`, which an effect may exceed only twice."""


class StoreReportHandler:
    def __init__(
        self,
        runs: RunStore,
        sinks: Sequence[ReportSink],
        draw: Callable[[Chart], bytes],
        *,
        redact: bool = False,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        """`redact`: people are called by their roles."""
        self._runs, self._sinks, self._draw, self._redact, self._aside = runs, sinks, draw, redact, aside

    async def __call__(self, context: EffectContext, effect: StoreReport) -> Done | Later:
        entries, stored = await self._runs.whole_timeline(context.incident_id)
        files = await self._aside(self._written, context.incident_id, entries, stored)
        try:
            for sink in self._sinks:
                await _put(sink, context.incident_id, files, at=context.run.closed_at or context.now)
        except SourceError as error:
            tried = context.owed.attempts
            if tried + 1 >= TRIES:
                raise
            log.warning("report.not_stored", incident=context.incident_id, reason=str(error))
            return Later(min(FIRST_WAIT_SECONDS * 2**tried, MAX_WAIT_SECONDS), failed=True)
        log.info("report.stored", incident=context.incident_id, at=[sink.name for sink in self._sinks])
        return Done()

    def _written(self, incident_id: str, entries: Sequence[Chained], stored: StoredHead | None) -> dict[str, bytes]:
        roles = Roles(entries) if self._redact else None
        pages = {
            "md": markdown(entries, stored, roles),
            "html": html(entries, self._draw, (), stored, roles=roles),
            "json": as_json(entries, stored, roles),
        }
        return {f"{incident_id}.{kind}": text.encode() for kind, text in pages.items()}


async def _put(sink: ReportSink, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
    try:
        async with asyncio.timeout(PUT_SECONDS):
            await sink.put(incident_id, files, at=at)
    except TimeoutError as error:
        raise SourceError(f"{sink.name} does not answer") from error
