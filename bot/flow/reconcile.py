"""The periodic fallback for direct wake-ups: every second and at start, takes up owed, overdue or abandoned work."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import structlog

from bot.domain.kernel.errors import BotError
from bot.flow.ports.storage import EffectStore, RunStore
from bot.flow.wake import Wake

log = structlog.get_logger()
EVERY_SECONDS = 1.0
SELDOM_SECONDS = 60.0
AT_MOST = 200

Checks = Mapping[str, Callable[[], Awaitable[None]]]
"""By the name of a failed check in the log."""


class Reconcile:
    def __init__(  # noqa: PLR0913 - the ports that it speaks to, and what it looks at
        self,
        runs: RunStore,
        effects: EffectStore,
        wake: Wake,
        route: Callable[[], Awaitable[int]],
        *,
        look: Callable[[], Awaitable[None]] | None = None,
        besides: Checks = MappingProxyType({}),
        seldom: Checks = MappingProxyType({}),
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        """`look` runs first in each round.

        Further checks have their own loops: `besides` of the same interval, `seldom` once a minute.
        """
        self._look = look
        self._runs, self._effects, self._wake, self._route = runs, effects, wake, route
        self._besides, self._seldom, self._every = besides, seldom, every_seconds
        self._wanted = asyncio.Event()
        self._due = math.inf
        """When routing is woken next, in the time of `Wake.elapsed`."""

    def wake_routing(self, after: float = 0.0) -> None:
        """Routes what was accepted, after so many seconds; a wake for another alert meanwhile routes this one too."""
        if after <= 0:
            self._wanted.set()
        elif (due := self._wake.elapsed() + after) < self._due:
            self._due = due
            self._wake.call_later(after, self._wake_when_due)

    def _wake_when_due(self) -> None:
        self._due = math.inf
        self._wanted.set()

    async def once(self) -> None:
        """Wakes routing, advances waiting incidents, performs due effects. No long row of alerts delays them."""
        if self._look is not None:
            await self._look()
        await self._effects.keep_time()
        self._wanted.set()
        for incident_id in await self._runs.pending(AT_MOST):
            self._wake.incident(incident_id)
        for incident_id, effect_id, lane in await self._effects.owed_now(AT_MOST, self._wake.begun):
            self._wake.effect(incident_id, effect_id, lane)

    async def route(self) -> None:
        """Routes accepted alerts."""
        self._wanted.clear()
        with self._wake.priority.urgent():
            await self._route()

    async def forever(self) -> None:
        """Until cancelled. A failure is logged and the next round retries: all work is stored, so nothing is lost."""
        others = [
            asyncio.create_task(self._repeat(look, event, every))
            for checks, every in ((self._besides, self._every), (self._seldom, SELDOM_SECONDS))
            for event, look in checks.items()
        ]
        others.append(asyncio.create_task(self._route_when_woken(), name="route"))
        try:
            await self._repeat(self.once, "reconcile.failed", self._every)
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _repeat(self, look: Callable[[], Awaitable[None]], event: str, every_seconds: float) -> None:
        while True:
            await logged(look(), event)
            await asyncio.sleep(every_seconds)

    async def _route_when_woken(self) -> None:
        while True:
            await self._wanted.wait()
            if not await logged(self.route(), "route.failed"):
                await asyncio.sleep(self._every)


async def logged(work: Awaitable[None], event: str) -> bool:
    """Whether the work was done; a failure is logged by this name."""
    try:
        await work
    except BotError as error:
        log.warning(event, reason=str(error))
        return False
    except Exception:
        # Loops must survive any error; all work is stored and the next round takes it up.
        log.exception(event)
        return False
    return True
