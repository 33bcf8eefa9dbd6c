"""Sends changes to every open page.

A page that reads too slowly is disconnected and reconnects, which makes it load everything again: no page ever has a
gap.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from bot.sandbox.slack.errors import Json

MAX_BACKLOG_LENGTH = 2000
KEEPALIVE_SECONDS = 15.0


class Feed:
    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[Json | None]] = set()
        self.version = 0

    def publish(self, kind: str, **facts: object) -> None:
        self.version += 1
        for listener in list(self._listeners):
            if listener.qsize() >= MAX_BACKLOG_LENGTH:
                self._listeners.discard(listener)
                listener.put_nowait(None)
            else:
                listener.put_nowait({"kind": kind, **facts})

    def close(self) -> None:
        """Ends every open stream, so that the server can stop."""
        for listener in self._listeners:
            listener.put_nowait(None)
        self._listeners.clear()

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events until the page goes away."""
        listener: asyncio.Queue[Json | None] = asyncio.Queue()
        self._listeners.add(listener)
        try:
            yield "retry: 500\n\n"
            while True:
                try:
                    change = await asyncio.wait_for(listener.get(), KEEPALIVE_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if change is None:
                    return
                yield f"data: {json.dumps(change)}\n\n"
        finally:
            self._listeners.discard(listener)
