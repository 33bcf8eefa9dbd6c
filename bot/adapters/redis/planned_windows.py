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
        windows = [PlannedWindow.model_validate_json(raw) for raw in found.values()]
        for over in (window for window in windows if window.ends_at <= at):
            await self.end(over.kind, over.targets)
        return [window for window in windows if window.ends_at > at]


def _name(kind: WindowKind, targets: Sequence[str]) -> str:
    return f"{kind} {','.join(targets) or EVERY_TARGET}"
