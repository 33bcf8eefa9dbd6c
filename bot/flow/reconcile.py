"""The net under the direct wake-ups: every second and at start, take up what is owed, overdue or was left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import structlog

from bot.domain.kernel.errors import BotError
from bot.flow.ports import EffectStore, RunStore
from bot.flow.wake import Wake

log = structlog.get_logger()
EVERY_SECONDS = 1.0
AT_MOST = 200


class Reconcile:
    def __init__(  # noqa: PLR0913 - the ports that it speaks to, and what it looks at
        self,
        runs: RunStore,
        effects: EffectStore,
        wake: Wake,
        route: Callable[[], Awaitable[int]],
        *,
        look: Callable[[], Awaitable[None]] | None = None,
        besides: Mapping[str, Callable[[], Awaitable[None]]] = MappingProxyType({}),
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        """`look` comes first in each round. `besides`: what else is looked at as often, each in a loop of its own.

        The keys of `besides` are what is logged when a look fails.
        """
        self._look = look
        self._runs, self._effects, self._wake, self._route, self._besides = runs, effects, wake, route, besides
        self._every = every_seconds
        self._routing = asyncio.Lock()
        self._wanted = asyncio.Event()

    def wake_routing(self) -> None:
        self._wanted.set()

    async def once(self) -> None:
        """Route what was accepted, advance what waits, perform what is due."""
        if self._look is not None:
            await self._look()
        await self._effects.keep_time()
        await self.route()
        for incident_id in await self._runs.pending(AT_MOST):
            self._wake.incident(incident_id)
        for incident_id, effect_id, lane in await self._effects.owed_now(AT_MOST):
            self._wake.effect(incident_id, effect_id, lane)

    async def route(self) -> None:
        async with self._routing:
            self._wanted.clear()
            await self._route()

    async def forever(self) -> None:
        """Until cancelled. A failure is logged and the next round tries again: nothing is lost, it is all stored."""
        others = [asyncio.create_task(self._repeat(look, event)) for event, look in self._besides.items()]
        others.append(asyncio.create_task(self._route_when_woken(), name="route"))
        try:
            await self._repeat(self.once, "reconcile.failed")
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _repeat(self, look: Callable[[], Awaitable[None]], event: str) -> None:
        while True:
            await _logged(look(), event)
            await asyncio.sleep(self._every)

    async def _route_when_woken(self) -> None:
        while True:
            await self._wanted.wait()
            if not await _logged(self.route(), "route.failed"):
                await asyncio.sleep(self._every)


async def _logged(work: Awaitable[None], event: str) -> bool:
    try:
        await work
    except BotError as error:
        log.warning(event, reason=str(error))
        return False
    except Exception:
        # The net under everything goes on; all work is stored and the next round takes it up.
        log.exception(event)
        return False
    return True
