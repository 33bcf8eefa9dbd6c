"""The samples of each watch, kept until they are no longer needed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bot.adapters.redis.connection import Connection
from bot.flow.ports.storage import WatchSample

KEEP_SECONDS = 2 * 24 * 3600


class RedisWatchLog:
    def __init__(self, connection: Connection) -> None:
        self._redis = connection

    async def add(self, incident_id: str, visit: int, sample: WatchSample) -> Sequence[WatchSample]:
        key = self._redis.key("watch", incident_id, str(visit))
        kept = json.dumps([sample.at, dict(sample.parts), list(sample.broke)])
        raw = await self._redis.script("watch_sample", [key], [kept, KEEP_SECONDS])
        return [WatchSample(*each) for each in map(json.loads, raw)]
