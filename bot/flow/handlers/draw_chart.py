"""Effects: the run's key signals as lines on its timeline, and the same signals as one picture in its thread.

The picture is added to the diagnosis at the first question or request, and to the closing message. It delays nothing:
a failed read or upload becomes an entry of the timeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bot.domain.incidents.effect import DrawChart, ReadSeries
from bot.domain.incidents.event import SeriesRead
from bot.domain.incidents.run import Run
from bot.domain.incidents.series import Limit, Series, charted, line_of, sampled_line, shown_time
from bot.domain.kernel.errors import BotError, PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.reports.chart import Chart, Panel, chart_of
from bot.domain.signals.sampling import metrics_of, span_of, with_target
from bot.domain.signals.signal import SHOWN_UNITS, unit_beside
from bot.domain.signals.window import Window
from bot.flow.handlers.read import PlaybookOf
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.people import Messenger
from bot.flow.ports.readings import History, ReadContext
from bot.flow.ports.storage import RunStore
from bot.flow.snapshot_reader import context_of

Aside = Callable[..., Awaitable[Any]]
"""Runs a slow function so that it delays no button press."""


class ReadSeriesHandler:
    def __init__(self, history: History, playbook_of: PlaybookOf, *, aside: Aside = asyncio.to_thread) -> None:
        self._history, self._playbook_of, self._aside = history, playbook_of, aside

    async def __call__(self, context: EffectContext, effect: ReadSeries) -> Done:
        lines = await self.lines(context.run, context.now)
        return Done((SeriesRead(event_id=effect.effect_id, effect_id=effect.effect_id, lines=lines),))

    async def lines(self, run: Run, now: float) -> tuple[Series, ...]:
        playbook = await self._playbook_of(run)
        read_context = context_of(run, playbook.settings)
        shown = shown_time(run, now)
        wanted = charted(playbook, run.findings.path)
        # One after the other: the picture is not urgent, and a fleet's hours need not be in memory four times.
        return tuple([await self._line(playbook, name, limits, read_context, shown) for name, limits in wanted.items()])

    async def lines_or_why_not(self, run: Run, now: float) -> tuple[Series, ...]:
        """As `lines`, for a report that is made in any case.

        If the history does not answer, each line gives the reason. There is none if the playbook cannot be read.
        """
        try:
            playbook = await self._playbook_of(run)
        except PlaybookError:
            return ()
        try:
            return await self.lines(run, now)
        except BotError as error:
            return tuple(Series(signal=name, unknown=str(error)) for name in charted(playbook, run.findings.path))

    async def _line(
        self, playbook: CompiledPlaybook, name: str, limits: tuple[Limit, ...], read_context: ReadContext, shown: Window
    ) -> Series:
        written = line_of(playbook, name)
        if written is None:
            return Series(signal=name, unknown="it is not one number over time")
        try:
            spec, span = with_target(written, read_context.settings), span_of(written.over, read_context.settings)
        except ValueError as error:
            return Series(signal=name, limits=limits, unknown=str(error))
        scrapes = await self._history.between(read_context, metrics_of(spec), shown.start - span, shown.end)
        line: Series = await self._aside(sampled_line, name, spec, limits, scrapes, shown=shown, span=span)
        return line


class DrawChartHandler:
    def __init__(
        self, messenger: Messenger, runs: RunStore, draw: Callable[[Chart], bytes], *, aside: Aside = asyncio.to_thread
    ) -> None:
        self._messenger, self._runs, self._draw, self._aside = messenger, runs, draw, aside

    async def __call__(self, context: EffectContext, effect: DrawChart) -> Done:
        chart = chart_of(await self._runs.timeline(context.incident_id))
        if chart is None:
            return Done()

        async def draw() -> bytes:
            # Drawing takes most of a second and must not delay button presses.
            content: bytes = await self._aside(self._draw, chart)
            return content

        await self._messenger.illustrate(
            context.run,
            effect.slot,
            name=f"{context.incident_id}-chart{'-so-far' if context.run.is_open else ''}.png",
            draw=draw,
            caption=caption_of(context.run, chart),
        )
        return Done()


def caption_of(run: Run, chart: Chart) -> str:
    """What the picture shows, for people who cannot see it."""
    shown = [f"{panel.title} {panel.change}{_unit(panel)}" for panel in chart.panels if panel.change]
    return f"{run.incident_id} {'so far' if run.is_open else 'from its beginning to its end'}: {'; '.join(shown)}"


def _unit(panel: Panel) -> str:
    unit = "" if panel.unit in SHOWN_UNITS else unit_beside(panel.title, panel.unit)
    return f" {unit}" if unit else ""
