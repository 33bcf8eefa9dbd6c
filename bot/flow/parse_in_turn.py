"""Parses metrics pages without holding up the event loop, which serves Slack and renews leases too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
LARGE_CHARACTERS = 256 * 1024
"""A page of this size takes 10 ms. For a usual one, a thread would cost more than it saves."""


class ParseInTurn:
    """One page in each turn of the loop, however many arrived in the same moment, and beside them one large page.

    A large page has a thread, and only other large pages wait for it.
    """

    def __init__(self, aside: Callable[..., Awaitable[Any]] = asyncio.to_thread) -> None:
        self._aside = aside
        self._turn, self._thread = asyncio.Lock(), asyncio.Lock()

    async def __call__(self, parse: Callable[[str], T], page: str) -> T:
        if len(page) >= LARGE_CHARACTERS:
            async with self._thread:
                parsed: T = await self._aside(parse, page)
                return parsed
        async with self._turn:
            await asyncio.sleep(0)
            return parse(page)
