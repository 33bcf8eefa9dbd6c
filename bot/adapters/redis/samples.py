"""The history of scrapes for each workload, shared by all its incidents and bounded by age."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from bot.adapters.redis.connection import Connection
from bot.domain.scrape import Scrape

_ROUND: TypeAdapter[list[Scrape]] = TypeAdapter(list[Scrape])


class RedisSamples:
    def __init__(self, connection: Connection, *, keep_seconds: float = 3600.0) -> None:
        self._redis, self._keep = connection, keep_seconds

    async def add(self, workload: str, scrapes: Sequence[Scrape]) -> None:
        if not scrapes:
            return
        at = max(scrape.at for scrape in scrapes)
        body = _ROUND.dump_json(list(scrapes), exclude_defaults=True).decode()
        key = self._redis.key("samples", workload)
        pipe = self._redis.client.pipeline(transaction=True)
        pipe.zadd(key, {body: at})
        pipe.zremrangebyscore(key, "-inf", at - self._keep)
        pipe.expire(key, int(self._keep))
        await self._redis.ask(pipe.execute())

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]:
        raw = await self._redis.ask(self._redis.client.zrangebyscore(self._redis.key("samples", workload), start, end))
        return [scrape for item in raw for scrape in _ROUND.validate_json(item)]
