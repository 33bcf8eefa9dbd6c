"""The samples of each watch, kept until they are no longer needed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bot.adapters.redis.connection import Connection
from bot.flow.ports import WatchSample

KEEP_SECONDS = 2 * 24 * 3600


class RedisWatchLog:
    def __init__(self, connection: Connection) -> None:
        self._redis = connection

    async def add(self, incident_id: str, visit: int, sample: WatchSample) -> Sequence[WatchSample]:
        key = self._redis.key("watch", incident_id, str(visit))
        pipe = self._redis.client.pipeline(transaction=True)
        pipe.rpush(key, json.dumps([sample.at, dict(sample.parts)]))
        pipe.expire(key, KEEP_SECONDS)
        pipe.lrange(key, 0, -1)
        _, _, raw = await self._redis.ask(pipe.execute())
        return [WatchSample(at, parts) for at, parts in map(json.loads, raw)]
