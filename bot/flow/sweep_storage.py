"""Once a day, one replica of the bot removes from the storage what expired incidents leave behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from bot.domain.kernel.errors import StorageUnavailableError

log = structlog.get_logger()
AT = timedelta(hours=3)
"""In UTC."""


class Firsts(Protocol):
    async def now(self) -> float: ...

    async def is_first(self, what: str) -> bool: ...

    async def unclaim(self, what: str) -> None: ...


class SweepStorage:
    def __init__(self, store: Firsts, sweep: Callable[[], Awaitable[object]]) -> None:
        self._store, self._sweep = store, sweep
        self._done = ""

    async def once(self) -> None:
        """Called every minute."""
        now = datetime.fromtimestamp(await self._store.now(), UTC) - AT
        about = f"sweep/{now:%Y-%m-%d}"
        if about == self._done:
            return
        if await self._store.is_first(about):
            try:
                log.info("storage.swept", found=str(await self._sweep()))
            except StorageUnavailableError:
                await self._store.unclaim(about)
                raise
        self._done = about
