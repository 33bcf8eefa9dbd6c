"""Detects that the storage lost its data, or its last writes: numbers jump far ahead, firing alerts reopen incidents.

An empty storage at the first check is a first start only if Slack shows no card of this deployment.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from bot.domain.kernel.alert import Alert
from bot.domain.kernel.epoch import JUMP_AFTER_FAILOVER, Epoch, Why, announcement, notice, numbers_begin_at
from bot.domain.kernel.errors import BotError
from bot.flow.notify_once import Announce
from bot.flow.ports.people import Clock, FiringAlerts
from bot.flow.ports.storage import EpochStore, StorageSeen

log = structlog.get_logger()
AGAIN_SECONDS = 30.0
OLD_CARDS_WITHIN_SECONDS = 10.0

OldCards = Callable[[], Awaitable[int | None]]
"""The highest incident number that Slack still shows; 0 if it shows none, None if Slack does not answer."""
Accept = Callable[[Sequence[Alert]], Awaitable[None]]
"""Store alerts as if Alertmanager had just sent them."""
Knows = Callable[[Alert], Awaitable[bool]]
"""Whether an incident has received this alert, or no playbook matches it."""


class KeepEpoch:
    def __init__(  # noqa: PLR0913 - the ports that it speaks to; wiring names each
        self,
        epochs: EpochStore,
        clock: Clock,
        *,
        old_cards: OldCards,
        firing: FiringAlerts | None,
        knows: Knows,
        accept: Accept,
        notify_once: Announce,
    ) -> None:
        """`firing`: None if Alertmanager's address is not set."""
        self._epochs, self._clock, self._old_cards, self._firing = epochs, clock, old_cards, firing
        self._knows, self._accept, self._notify_once = knows, accept, notify_once
        self._epoch: Epoch | None = None
        self._server, self._highest = "", 0
        self._started_at = clock.now()
        self._lost = asyncio.Event()

    async def once(self) -> None:
        """Checks the storage; does nothing more if it is unchanged."""
        seen = await self._epochs.look()
        before, self._epoch = self._epoch, seen.epoch or await self._begin(seen)
        if before is None or before.epoch_id != self._epoch.epoch_id:
            self._report_loss(self._epoch)
        else:
            await self._look_for_lost_writes(seen)
        self._server = seen.server or self._server
        self._highest = max(self._highest, seen.counter or 0, self._epoch.after)

    async def recover(self) -> None:
        """Notifies people, and reopens what fires. Raises `BotError` if one of the two failed; both may be repeated."""
        for fault in await asyncio.gather(self._announce(), self._reopen(), return_exceptions=True):
            if fault is not None:
                raise fault

    async def _announce(self) -> None:
        epoch = self._epoch
        if epoch is not None and epoch.matters(self._clock.now()):
            text = announcement(epoch, reads_alertmanager=self._firing is not None)
            await self._notify_once(f"epoch/{epoch.epoch_id}", text)

    async def _reopen(self) -> None:
        if self._firing is None:
            return
        unknown = [alert for alert in await self._firing.firing() if not await self._knows(alert)]
        if unknown:
            log.warning("alerts.reopened", alerts=len(unknown))
            await self._accept(unknown)

    async def forever(self) -> None:
        """Recovers from each loss until that is done."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            try:
                await self.recover()
            except Exception as error:
                # The top of this task: any failure is retried.
                reason = str(error) if isinstance(error, BotError) else f"{type(error).__name__}: {error}"
                log.warning("recovery.failed", reason=reason, exc_info=not isinstance(error, BotError))
                self._lost.set()
                await asyncio.sleep(AGAIN_SECONDS)

    def notices(self) -> Mapping[str, str]:
        """What the people who watch the bot should know although it is ready."""
        epoch = self._epoch
        return {"redis": notice(epoch)} if epoch is not None and epoch.matters(self._clock.now()) else {}

    def _report_loss(self, epoch: Epoch) -> None:
        """At each start except the first, checks what fires: a failover while no bot was running went unnoticed."""
        if epoch.matters(self._clock.now()):
            log.error("storage.emptied", why=epoch.why, began_at=epoch.began_at, incidents_after=epoch.after)
        if epoch.why != "first" or epoch.began_at < self._started_at:
            self._lost.set()

    async def _begin(self, seen: StorageSeen) -> Epoch:
        now, (why, highest) = self._clock.now(), await self._what_was_before(seen)
        after = numbers_begin_at(now, highest) if why in ("emptied", "unknown") else 0
        return await self._epochs.begin(Epoch(epoch_id=secrets.token_hex(8), began_at=now, why=why, after=after))

    async def _what_was_before(self, seen: StorageSeen) -> tuple[Why, int]:
        if self._epoch is not None:
            return "emptied", self._highest
        if seen.counter is not None:
            return "kept", seen.counter
        try:
            async with asyncio.timeout(OLD_CARDS_WITHIN_SECONDS):
                number = await self._old_cards()
        except TimeoutError:
            number = None
        if number is None:
            return "unknown", 0
        return ("emptied", number) if number else ("first", 0)

    async def _look_for_lost_writes(self, seen: StorageSeen) -> None:
        """Another server, or a restarted one, may lack the last writes: checks the newest incidents and alerts."""
        went_back = (seen.counter or 0) < self._highest
        is_another = bool(self._server and seen.server) and seen.server != self._server
        if went_back or (is_another and seen.was_promoted):
            await self._epochs.raise_counter(self._highest + JUMP_AFTER_FAILOVER)
        if went_back or is_another:
            log.warning("storage.replaced", was_promoted=seen.was_promoted, lost_incidents=went_back)
            self._lost.set()
