"""One scene for a test, and the bot that works in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.sandbox import valkey
from tests.flow.harness import Bot, Scene
from tests.flow.scenes import drill_scene
from tests.redis_server import VirtualTime


@pytest.fixture
async def client(redis_server: valkey.Embedded) -> AsyncIterator[aioredis.Redis]:
    """The product's own."""
    opened = Connection.open(redis_server.url)
    yield opened.client
    await opened.close()


@pytest.fixture
async def scene(client: aioredis.Redis, tag: str) -> Scene:
    return await drill_scene(client, tag)


@pytest.fixture
def bot(scene: Scene) -> Bot:
    return Bot(scene, "one")


@pytest.fixture
async def time(client: aioredis.Redis, tag: str) -> VirtualTime:
    clock = VirtualTime(client, tag)
    await clock.start()
    return clock


@pytest.fixture
def redis(client: aioredis.Redis, tag: str, time: VirtualTime) -> Connection:
    return Connection(client, tag=tag, clock=time.prelude)


@pytest.fixture
def store(redis: Connection) -> RedisStore:
    return RedisStore(redis, owner="one")
