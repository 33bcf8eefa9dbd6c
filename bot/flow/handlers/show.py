"""Everything that is sent to Slack: the card and thread, an answer to one person, an exported file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bot.domain.incidents.effect import ExportFormat, ExportTimeline, Lane, Notify, ReleaseLeases, ShowInSlack
from bot.domain.incidents.machine.draft import SHOW
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import OvertakenError
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.reports import as_json, html, markdown
from bot.domain.reports.chart import Chart
from bot.domain.reports.present import present
from bot.flow.handlers.draw_chart import ReadSeriesHandler
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.people import Messenger, OnDemand, PartlyShownError
from bot.flow.ports.storage import CallClaims, EffectStore, RunStore


class ShowHandler:
    def __init__(self, messenger: Messenger, effects: EffectStore, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when the visible state of a run has changed."""
        self._messenger, self._effects, self._changed = messenger, effects, changed

    async def __call__(self, context: EffectContext, effect: ShowInSlack) -> Done | Later:
        self._changed()
        try:
            events, changed = await self._messenger.show(context.run, context.owed.shown)
            return Done(tuple(events), changed)
        except PartlyShownError as partly:
            return Later(partly.retry_after_seconds, partly.events)
        except OvertakenError as error:
            # The process that took over has ended the effect, and does not know what came after it.
            await self._effects.owe_now(context.incident_id, effect, again=True)
            return Later(error.retry_after_seconds)


class ShowAgain:
    """Shows pending updates now, not in a minute, because a person views incidents."""

    def __init__(self, messenger: OnDemand, effects: EffectStore, wake: Callable[[str, str, Lane], None]) -> None:
        self._messenger, self._effects, self._wake = messenger, effects, wake

    async def one(self, incident_id: str) -> None:
        """Includes updates that were given up, and a card that waits for its turn."""
        await self._messenger.want_card(incident_id)
        await self._show(incident_id, again=True)

    async def all_of(self, incident_ids: Sequence[str]) -> None:
        self._messenger.ask_again()
        await asyncio.gather(*(self._show(incident_id, again=False) for incident_id in incident_ids))

    async def _show(self, incident_id: str, *, again: bool) -> None:
        if await self._effects.owe_now(incident_id, SHOW, again=again):
            self._wake(incident_id, SHOW.effect_id, SHOW.lane)


class NotifyHandler:
    def __init__(self, messenger: Messenger) -> None:
        self._messenger = messenger

    async def __call__(self, context: EffectContext, effect: Notify) -> Done:
        await self._messenger.notify(effect.user, effect.channel, effect.text, response_url=effect.response_url)
        return Done()


class ExportHandler:
    def __init__(
        self, messenger: Messenger, runs: RunStore, draw: Callable[[Chart], bytes], series: ReadSeriesHandler
    ) -> None:
        self._messenger, self._runs, self._draw, self._series = messenger, runs, draw, series

    async def __call__(self, context: EffectContext, effect: ExportTimeline) -> Done:
        async def content() -> bytes:
            entries, stored = await self._runs.whole_timeline(context.incident_id)
            return (await self._written(context, entries, stored, effect.format)).encode()

        name = f"{context.incident_id}-timeline.{effect.format}"
        comment = f"Timeline of {context.incident_id}"
        await self._messenger.upload(context.run, key=effect.effect_id, name=name, content=content, comment=comment)
        return Done()

    async def page(self, run: Run, now: float) -> str:
        """The page of an incident as it is at this moment, for people who read along in a browser."""
        entries, stored = await self._runs.whole_timeline(run.incident_id)
        lines = await self._series.lines_or_why_not(run, now) if run.is_open else ()
        return await asyncio.to_thread(html, entries, self._draw, lines, stored, live=present(run))

    async def _written(
        self, context: EffectContext, entries: Sequence[Chained], stored: StoredHead | None, wanted: ExportFormat
    ) -> str:
        match wanted:
            case "json":
                return as_json(entries, stored)
            case "html":
                # The chart for the first question stops there; a closed incident was drawn whole.
                lines = await self._series.lines_or_why_not(context.run, context.now) if context.run.is_open else ()
                # Its chart takes most of a second to draw and must not delay button presses.
                return await asyncio.to_thread(html, entries, self._draw, lines, stored)
            case "md":
                return markdown(entries, stored)


class ReleaseHandler:
    def __init__(self, claims: CallClaims) -> None:
        self._claims = claims

    async def __call__(self, context: EffectContext, effect: ReleaseLeases) -> Done:
        await self._claims.release(context.incident_id, effect.request_id)
        return Done()
