"""What the bot reports about itself: readiness, degradation, and its metrics for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from bot.domain.kernel.errors import StorageUnavailableError

log = structlog.get_logger()


class Levels(Protocol):
    async def keep_time(self) -> None:
        """Writes. Raises `StorageUnavailableError`."""
        ...

    async def levels(self) -> Mapping[str, int]:
        """The number of incidents, alerts and effects. Raises `StorageUnavailableError`."""
        ...


class Health:
    def __init__(  # noqa: PLR0913 - the sources of health
        self,
        store: Levels,
        *,
        clusters: Mapping[str, Callable[[], Awaitable[str]]],
        slack: Callable[[], str],
        slack_silent: Callable[[], str],
        slack_disconnected: Callable[[], Awaitable[str]],
        notices: Callable[[], Mapping[str, str]],
        unsampled: Callable[[], int],
        page: Callable[[Mapping[str, int]], str],
    ) -> None:
        """`clusters`, `slack`: why each refuses the bot, or empty. `page` writes the metrics.

        `slack_silent`: since when Slack has not answered, or empty. `slack_disconnected`: why nothing arrives from it,
        or empty. `unsampled`: how many workloads are left out of the continuous scrapes.
        """
        self._store, self._clusters, self._notices, self._page = store, clusters, notices, page
        self._slack, self._slack_silent, self._unsampled = slack, slack_silent, unsampled
        self._slack_disconnected = slack_disconnected

    async def not_ready(self) -> Mapping[str, str]:
        """What is not ready, with the reason: without the storage nothing can be accepted."""
        try:
            # A storage that is full, or that has become a replica, still answers what only reads.
            await self._store.keep_time()
        except StorageUnavailableError as error:
            return {"redis": str(error)}
        return {}

    async def degraded(self) -> Mapping[str, str]:
        """Problems that need attention although alerts and presses are accepted, with the reason."""
        reasons = await asyncio.gather(*(trouble() for trouble in self._clusters.values()))
        refused = {
            **dict(zip(self._clusters, reasons, strict=True)),
            "slack": self._slack() or self._slack_silent(),
            "socket_mode": await self._slack_disconnected(),
        }
        return {name: reason for name, reason in refused.items() if reason} | dict(self._notices())

    async def metrics(self) -> str:
        """Without the storage the page lacks the levels, but has the bot's own counters: they are needed most then."""
        try:
            levels = await self._store.levels()
        except StorageUnavailableError as error:
            log.warning("levels.unread", reason=str(error))
            levels = {}
        own = {
            "slack_refused": int(bool(self._slack())),
            "slack_disconnected": int(bool(await self._slack_disconnected())),
            "unsampled_workloads": self._unsampled(),
        }
        return self._page({**levels, **own})
