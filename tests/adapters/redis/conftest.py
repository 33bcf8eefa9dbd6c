"""A real server whose clock is set by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.sandbox import valkey
from tests.redis_server import VirtualTime


@pytest.fixture
async def time(redis_server: valkey.Embedded, tag: str) -> AsyncIterator[VirtualTime]:
    client = aioredis.from_url(redis_server.url, decode_responses=True)
    clock = VirtualTime(client, tag)
    await clock.start()
    yield clock
    await client.aclose()


@pytest.fixture
async def redis(redis_server: valkey.Embedded, tag: str, time: VirtualTime) -> AsyncIterator[Connection]:
    opened = Connection.open(redis_server.url)
    yield Connection(opened.client, tag=tag, clock=time.prelude)
    await opened.close()
