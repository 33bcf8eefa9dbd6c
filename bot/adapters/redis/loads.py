"""A workload's load in points of five minutes, kept for a little more than a day: about 40 kB a workload."""

from __future__ import annotations

from collections.abc import Sequence

from bot.adapters.redis.connection import Connection
from bot.domain.signals.load_log import DAY_SECONDS, LoadPoint

KEPT_SECONDS = DAY_SECONDS + 2 * 3600.0
"""The same time yesterday, for windows of up to two hours."""


class RedisLoads:
    """The `LoadLog` port."""

    def __init__(self, connection: Connection) -> None:
        self._redis = connection

    async def add(self, workload: str, point: LoadPoint) -> None:
        key = self._redis.key("loads", workload)
        pipe = self._redis.client.pipeline(transaction=True)
        # Several replicas of the bot record the same slot: one point stays.
        pipe.zremrangebyscore(key, point.start, point.start)
        pipe.zadd(key, {point.model_dump_json(exclude_defaults=True): point.start})
        pipe.zremrangebyscore(key, "-inf", point.start - KEPT_SECONDS)
        pipe.expire(key, int(KEPT_SECONDS))
        await self._redis.ask(pipe.execute())

    async def all(self, workload: str) -> Sequence[LoadPoint]:
        raw = await self._redis.ask(self._redis.client.zrange(self._redis.key("loads", workload), 0, -1))
        return [LoadPoint.model_validate_json(item) for item in raw]
