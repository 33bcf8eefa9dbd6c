"""Lets urgent work go first: while any of it is under way, only a little other work runs beside it.

One process shares one event loop. In a storm of alerts the readings and closing messages of the first incidents would
otherwise delay the cards of all the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

OTHERS_AT_ONCE = 1
"""How much of each kind runs while something is urgent: under a load that never ends it is slowed, never stopped."""


class Priority:
    def __init__(self) -> None:
        self._urgent = 0
        self._others: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)

    @contextmanager
    def urgent(self) -> Iterator[None]:
        self._urgent += 1
        try:
            yield
        finally:
            self._urgent -= 1
            if not self._urgent:
                for kind in tuple(self._waiting):
                    self._admit(kind)

    @asynccontextmanager
    async def other(self, kind: str) -> AsyncIterator[None]:
        """Waits for room, in the order of asking. Never waits while nothing is urgent."""
        if self._is_full(kind):
            room = asyncio.get_running_loop().create_future()
            self._waiting[kind].append(room)
            try:
                await room
            except asyncio.CancelledError:
                if room.done() and not room.cancelled():
                    self._leave(kind)
                raise
        else:
            self._others[kind] += 1
        try:
            yield
        finally:
            self._leave(kind)

    def _is_full(self, kind: str) -> bool:
        return self._urgent > 0 and self._others[kind] >= OTHERS_AT_ONCE

    def _leave(self, kind: str) -> None:
        self._others[kind] -= 1
        self._admit(kind)

    def _admit(self, kind: str) -> None:
        waiting = self._waiting[kind]
        while waiting and not self._is_full(kind):
            room = waiting.popleft()
            if not room.done():
                self._others[kind] += 1
                room.set_result(None)
