"""Work that begins once Slack has its answer: nobody awaits it, so its failure is logged here."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Afterwards:
    def __init__(self) -> None:
        # The event loop keeps only a weak reference to a task.
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def settled(self) -> None:
        """Returns when nothing that was begun here is running."""
        while self._running:
            await asyncio.wait(self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("slack.failed_afterwards", work=task.get_name(), exc_info=error)
