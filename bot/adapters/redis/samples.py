"""The history of scrapes for each workload, shared by all its incidents; bounded by age, by rounds and by bytes.

A fleet of 200 produces 500 kB a round; packed it is a fifth of that, so that an hour of it fits.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from bot.adapters.redis.connection import Connection
from bot.domain.signals.scrape import Scrape

_ROUND: TypeAdapter[list[Scrape]] = TypeAdapter(list[Scrape])
MANY_SCRAPES, MANY_BYTES = 16, 128 * 1024
"""From here on packing and unpacking take milliseconds; below, a thread would cost more than it saves."""
FEWEST_ROUNDS = 2
"""A counter needs two samples: two are kept even if they exceed the bound in bytes."""


@dataclass(frozen=True)
class SampleLimits:
    """The limits for one workload in Redis."""

    seconds: float = 3600.0
    rounds: int = 2000
    bytes: int = 32 * 1024 * 1024

    def rounds_of(self, size: int) -> int:
        """How many rounds of this size may be kept."""
        return max(FEWEST_ROUNDS, min(self.rounds, self.bytes // max(size, 1)))


class RedisSamples:
    """The `SampleStore` port."""

    def __init__(self, connection: Connection, *, limits: SampleLimits | None = None) -> None:
        self._redis, self._limits = connection, limits or SampleLimits()

    async def add(self, workload: str, scrapes: Sequence[Scrape]) -> None:
        if not scrapes:
            return
        at = max(scrape.at for scrape in scrapes)
        body = _packed(scrapes) if len(scrapes) < MANY_SCRAPES else await asyncio.to_thread(_packed, scrapes)
        key, kept = self._redis.key("samples", workload), self._limits
        pipe = self._redis.client.pipeline(transaction=True)
        pipe.zadd(key, {body: at})
        pipe.zremrangebyscore(key, "-inf", at - kept.seconds)
        # The rounds of a workload have about the same size: the newest represents all.
        pipe.zremrangebyrank(key, 0, -kept.rounds_of(len(body)) - 1)
        pipe.expire(key, int(kept.seconds))
        await self._redis.ask(pipe.execute())

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]:
        raw = await self._redis.ask(self._redis.client.zrangebyscore(self._redis.key("samples", workload), start, end))
        if sum(map(len, raw)) < MANY_BYTES:
            return _unpacked(raw)
        # Unpacking a long window of a large fleet takes a second: not on the loop that serves Slack and webhooks.
        return await asyncio.to_thread(_unpacked, raw)


def _packed(scrapes: Sequence[Scrape]) -> str:
    return base64.b64encode(zlib.compress(_ROUND.dump_json(list(scrapes), exclude_defaults=True), level=3)).decode()


def _unpacked(raw: Sequence[str]) -> list[Scrape]:
    return [scrape for item in raw for scrape in _ROUND.validate_json(zlib.decompress(base64.b64decode(item)))]
