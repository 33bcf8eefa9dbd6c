"""Wait for a condition in another process: with a description of the condition, and a deadline.

It is the one place in the tests that lets time pass; a test itself never sleeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY_SECONDS = 0.1


def until(
    condition: Callable[[], T | None],
    what: str,
    within: float,
    *,
    seen: Callable[[], object] | None = None,
    every: float = LOOK_EVERY_SECONDS,
) -> T:
    """Return the first truthy answer of `condition`; fail with `what`, and with what was `seen` last, when late.

    `every`: the seconds between two looks, for one that costs much.
    """
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            last = f"; last seen: {seen()}" if seen is not None else ""
            raise AssertionError(f"not within {within:g} s: {what}{last}")
        time.sleep(every)


async def until_awaited(condition: Callable[[], Awaitable[bool]], what: str, within: float) -> None:
    """As `until`, for a condition that is awaited."""
    deadline = time.monotonic() + within
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)
