"""Performs one owed effect under a renewed lease; its outcome is an event. At least once: handlers are re-entrant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from bot.domain.incidents.effect import Effect
from bot.domain.incidents.event import EffectFailed, Event
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import BotError, MessengerError, NewerFormError, StorageUnavailableError
from bot.flow.ports.storage import EffectStore, Owed, RunStore, Settled, Waiting

log = structlog.get_logger()
RENEW_EVERY_SECONDS = 4.0
ATTEMPTS = 3
MAX_BACKOFF_SECONDS = 30.0
LEFT_SECONDS = 5.0
MAX_SECONDS = 300.0
"""A handler that has not returned by then, and has not asked for more time, has failed."""
CANCEL_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Done:
    """The effect is over, with these outcomes."""

    events: tuple[Event, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    """What has to be remembered about the incident's messages."""


@dataclass(frozen=True)
class Later:
    """Not over: store its events, then owe it again."""

    after_seconds: float
    events: tuple[Event, ...] = ()
    failed: bool = False


@dataclass(frozen=True)
class EffectContext:
    """One effect as a handler sees it: the newest run, and whether this process still has the lease."""

    run: Run
    owed: Owed
    now: float
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    limit: asyncio.Timeout | None = field(default=None, compare=False)
    """Ends the handler after `MAX_SECONDS`."""

    def may_take(self, seconds: float) -> None:
        """Give the handler this long from now, in place of `MAX_SECONDS`."""
        if self.limit is not None:
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)

    @property
    def incident_id(self) -> str:
        return self.run.incident_id


Handler = Callable[[EffectContext, Any], Awaitable[Done | Later]]


@dataclass(frozen=True)
class Performed:
    again_after: float | None = None
    """In how many seconds the effect is owed again; None if it is over, or another process has it."""
    is_news: bool = False
    """Whether it left an event in the inbox that has to be read now."""
    waiting: Waiting | None = field(default=None, compare=False)
    """The incident with that event, if the storage returned it."""
    again: Owed | None = field(default=None, compare=False)
    """The effect that is owed again at once, if this process has taken it."""
    version: int = field(default=0, compare=False)
    """The run's version that owed what was performed; 0 if nothing was."""


class PerformEffect:
    def __init__(
        self,
        runs: RunStore,
        effects: EffectStore,
        handlers: Mapping[type, Handler],
        *,
        renew_every: float = RENEW_EVERY_SECONDS,
        cancel_again_after: float = CANCEL_AGAIN_SECONDS,
    ) -> None:
        self._runs, self._effects, self._handlers = runs, effects, handlers
        self._renew_every, self._cancel_again_after = renew_every, cancel_again_after

    async def __call__(self, incident_id: str, effect_id: str, taken: Owed | None = None) -> Performed:
        """Performs one effect if it is free. `taken`: this process has just got its lease."""
        owed = taken or await self._effects.take(incident_id, effect_id)
        if owed is None:
            return Performed()
        if owed.run is None or _is_void(owed.run, owed.effect):
            return replace(_performed(await self._effects.settle(owed, ())), version=owed.version)
        context = EffectContext(owed.run, owed, owed.taken_at)
        result = await self._run(context)
        return replace(await self._record(context, result), version=owed.version)

    async def _run(self, context: EffectContext) -> Done | Later:
        effect = context.owed.effect
        renewing: list[asyncio.Task[None]] = []
        # Most effects end before their lease must be renewed.
        timer = asyncio.get_running_loop().call_later(
            self._renew_every, lambda: renewing.append(asyncio.create_task(self._renew(context)))
        )
        limit = asyncio.timeout(MAX_SECONDS)
        try:
            async with limit:
                return await self._handlers[type(effect)](replace(context, limit=limit), effect)
        except MessengerError as error:
            if error.lasting:
                return self._give_up(context, error.reason)
            return Later(error.retry_after_seconds)
        except NewerFormError as error:
            # In a rolling upgrade: a replica of that version takes it meanwhile.
            log.info("effect.left", incident=context.incident_id, effect=effect.effect_id, reason=str(error))
            return Later(LEFT_SECONDS)
        except StorageUnavailableError:
            raise
        except Exception as error:
            # The last resort: after three failures the run is notified and asks a person.
            if not isinstance(error, BotError):
                log.exception("effect.failed", incident=context.incident_id, effect=effect.effect_id)
            reason = str(error) if isinstance(error, BotError) else f"{type(error).__name__}: {error}"
            if limit.expired():
                reason = "it did not end in time"
            if context.owed.attempts + 1 >= ATTEMPTS:
                return self._give_up(context, reason)
            log.warning("effect.retried", incident=context.incident_id, effect=effect.effect_id, reason=reason)
            return Later(min(2.0**context.owed.attempts, MAX_BACKOFF_SECONDS), failed=True)
        finally:
            timer.cancel()
            for task in renewing:
                await self._end(task)

    async def _end(self, renewing: asyncio.Task[None]) -> None:
        """A library may lose a cancellation that comes in a bad moment, so it is repeated: an outcome must not wait."""
        while not renewing.done():
            renewing.cancel()
            await asyncio.wait({renewing}, timeout=self._cancel_again_after)
        if not renewing.cancelled():
            renewing.result()

    async def _renew(self, context: EffectContext) -> None:
        while True:
            try:
                if not await self._effects.renew(context.owed):
                    context.lost.set()
                    return
            except StorageUnavailableError as error:
                log.warning("lease.not_renewed", incident=context.incident_id, reason=str(error))
            await asyncio.sleep(self._renew_every)

    def _give_up(self, context: EffectContext, reason: str) -> Done:
        effect = context.owed.effect
        log.error("effect.given_up", incident=context.incident_id, effect=effect.effect_id, reason=reason)
        failed = EffectFailed(
            event_id=f"failed/{effect.effect_id}/{context.run.version}",
            effect_id=effect.effect_id,
            effect_kind=effect.kind,
            reason=reason,
        )
        return Done((failed,))

    async def _record(self, context: EffectContext, result: Done | Later) -> Performed:
        is_news = not all(event.may_wait for event in result.events)
        if isinstance(result, Done):
            settled = await self._effects.settle(context.owed, result.events, result.shown)
            return _performed(settled, is_news=is_news)
        if result.events:
            await self._runs.append(context.incident_id, result.events)
        await self._effects.put_back(context.owed, after_seconds=result.after_seconds, failed=result.failed)
        return Performed(result.after_seconds, is_news)


def _performed(settled: Settled, *, is_news: bool = False) -> Performed:
    return Performed(0.0 if settled.again else None, is_news, settled.waiting, settled.again)


def _is_void(run: Run, effect: Effect) -> bool:
    return effect.visit is not None and effect.visit != run.visit.number
