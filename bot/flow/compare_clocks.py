"""Compares this replica's clock with that of the storage, which decides when something is due.

By a wrong clock, readings get wrong times, and Slack's signed requests look too old.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bot.domain.kernel.durations import lasting

REPORTED_SECONDS = 30.0
"""The shortest windows of metrics are a minute."""


class CompareClocks:
    def __init__(self, storage: Callable[[], Awaitable[float]], own: Callable[[], float]) -> None:
        """Both clocks in epoch seconds."""
        self._storage, self._own = storage, own
        self._behind = 0.0

    async def once(self) -> None:
        asked = self._own()
        there = await self._storage()
        # It was read somewhere between these two.
        earliest, latest = there - self._own(), there - asked
        self._behind = max(earliest, 0.0) + min(latest, 0.0)

    def notices(self) -> Mapping[str, str]:
        if abs(self._behind) < REPORTED_SECONDS:
            return {}
        apart = f"{lasting(abs(self._behind))} {'behind' if self._behind > 0 else 'ahead of'}"
        harm = "its readings have wrong times, and from 5 minutes on it refuses Slack's requests"
        return {"clock": f"this replica's clock is {apart} that of Redis: {harm}"}
