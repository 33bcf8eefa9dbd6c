"""Maintenance windows and freezes that people planned, in one hash; each expires by its own end."""

from __future__ import annotations

from collections.abc import Sequence

from bot.adapters.redis.connection import Connection
from bot.domain.kernel.planned_window import PlannedWindow, WindowKind

EVERY_TARGET = "*"


class RedisPlannedWindows:
    """The `PlannedWindows` port."""

    def __init__(self, connection: Connection) -> None:
        self._redis, self._key = connection, connection.key("planned-windows")

    async def plan(self, window: PlannedWindow) -> None:
        name = _name(window.kind, window.targets)
        await self._redis.ask(self._redis.client.hset(self._key, name, window.model_dump_json()))

    async def end(self, kind: WindowKind, targets: Sequence[str]) -> bool:
        return bool(await self._redis.ask(self._redis.client.hdel(self._key, _name(kind, targets))))

    async def planned(self, *, at: float) -> Sequence[PlannedWindow]:
        found = await self._redis.ask(self._redis.client.hgetall(self._key))
        windows = {(name, raw): PlannedWindow.model_validate_json(raw) for name, raw in found.items()}
        for name, raw in (each for each, window in windows.items() if window.ends_at <= at):
            # A new window of that name may have begun since it was read.
            await self._redis.script("end_window", [self._key], [name, raw])
        return [window for window in windows.values() if window.ends_at > at]


def _name(kind: WindowKind, targets: Sequence[str]) -> str:
    return f"{kind} {','.join(targets) or EVERY_TARGET}"
