"""A server that answers and takes no writes: it is full, its disk is, or it has become a replica."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.durability import durability
from bot.adapters.redis.store import RedisStore
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.finding import Finding
from bot.sandbox import valkey
from tests import builders
from tests.kit.health import health


@pytest.fixture
async def server(redis_server: valkey.Embedded) -> AsyncIterator[aioredis.Redis]:
    """For the test to change; as it was afterwards."""
    client = aioredis.from_url(redis_server.url, decode_responses=True)
    yield client
    await client.replicaof("NO", "ONE")
    await client.config_set("maxmemory", 0)
    await client.aclose()


async def test_a_server_that_has_become_a_replica_is_left_for_the_one_behind_its_address(
    connection: Connection, server: aioredis.Redis
) -> None:
    store = RedisStore(connection, owner="one")
    await store.accept([builders.alert(fingerprint="before")], truncated=0)
    opened = await connection.client.client_id()
    await server.replicaof("127.0.0.1", 1)
    with pytest.raises(StorageUnavailableError, match="Redis refused 'accept': You can't write against a read only"):
        await store.accept([builders.alert(fingerprint="after")], truncated=0)
    assert await connection.client.client_id() != opened


async def test_a_storage_that_takes_no_writes_is_not_ready_and_accepts_nothing(
    connection: Connection, server: aioredis.Redis
) -> None:
    store = RedisStore(connection, owner="one")
    assert await health(store).not_ready() == {}
    await server.config_set("maxmemory", 1)
    assert "maxmemory" in (await health(store).not_ready())["redis"]
    with pytest.raises(StorageUnavailableError, match="maxmemory"):
        await store.accept([builders.alert()], truncated=0)
    await server.config_set("maxmemory", 0)
    assert await health(store).not_ready() == {}
    assert await store.intake(10) == []


async def broken(connection: Connection) -> list[Finding]:
    return [finding for finding in await durability(connection, replicas_wanted=0) if finding.grade == "broken"]


async def test_the_doctor_says_why_a_storage_takes_no_writes(connection: Connection, server: aioredis.Redis) -> None:
    assert await broken(connection) == []
    await server.config_set("maxmemory", 1)
    (full,) = await broken(connection)
    assert "takes no writes: Redis refused 'keep_time': command not allowed when used memory > 'maxmemory'" in full.what
    assert "maxmemory" in full.remedy
    await server.config_set("maxmemory", 0)
    await server.replicaof("127.0.0.1", 1)
    (replica,) = await broken(connection)
    assert replica.remedy == "Point REDIS_URL at the primary."


async def test_the_doctor_says_that_an_address_may_name_a_wrong_database(redis_server: valkey.Embedded) -> None:
    elsewhere = Connection.open(redis_server.url.replace("/0", "/9999"), tag="t")
    (wrong,) = await broken(elsewhere)
    await elsewhere.close()
    assert "DB index is out of range" in wrong.what
    assert "correct REDIS_URL" in wrong.remedy


async def test_a_user_that_may_not_ask_about_the_server_can_keep_everything(
    redis_server: valkey.Embedded, server: aioredis.Redis
) -> None:
    """Hardened users lack the category `dangerous`, which includes INFO and CONFIG; proxies do not know INFO."""
    categories = ["+@all", "-@dangerous"]
    await server.acl_setuser(
        "hardened", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=categories
    )
    connection = Connection.open(redis_server.url.replace("redis://", "redis://hardened:secret@"))
    found = await durability(connection, replicas_wanted=1)
    assert {finding.grade for finding in found} == {"fine", "weak"}
    assert any("does not say whether it is a primary, nor how many replicas it has" in each.what for each in found)
    await RedisStore(connection, owner="one").accept([builders.alert(fingerprint="hardened")], truncated=0)
    await connection.close()
    await server.acl_deluser("hardened")
