"""The storage behind Sentinel and in a Redis Cluster: the primary is found, and found again after a failover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.adapters.redis.claims import BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.durability import durability
from bot.adapters.redis.store import RedisStore
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.redis_address import redis_address
from tests import builders
from tests.redis_topologies import (
    FAILS_OVER_WITHIN,
    RedisCluster,
    Watched,
    cluster_of_three,
    watched_by_sentinels,
)
from tests.waiting import until_awaited

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watched_by_sentinels(tmp_path) as found:
        yield found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with cluster_of_three(tmp_path, replicas=True) as found:
        yield found


async def accepts(store: RedisStore, fingerprint: str) -> bool:
    try:
        await store.accept([builders.alert(fingerprint=fingerprint)], truncated=0)
    except StorageUnavailableError:
        return False
    return True


async def fingerprints(store: RedisStore) -> list[str]:
    return [entry.alert.fingerprint for entry in await store.intake(10)]


async def test_after_sentinel_has_promoted_the_replica_its_data_is_used(watched: Watched) -> None:
    connection = Connection.open(watched.url)
    store = RedisStore(connection, owner="one")
    claims = RedisClaims(connection, BreakerLimits(replicas=1))
    assert await accepts(store, "before")
    assert await claims.claim("INC-1", "c1", workload_key="w", lease_keys=["l"], disruption="") == "claimed"
    assert connection.address.startswith("bots of the Sentinels 127.0.0.1:")

    watched.primary.kill()
    await until_awaited(lambda: accepts(store, "after"), "alerts are accepted again", FAILS_OVER_WITHIN)
    assert await fingerprints(store) == ["before", "after"]
    assert await RedisClaims(connection).was_claimed("INC-1", "c1"), "a claim that was confirmed is never lost"
    with pytest.raises(StorageUnavailableError, match="fewer than 1 replicas confirmed"):
        await claims.claim("INC-1", "c2", workload_key="w", lease_keys=["l"], disruption="")
    assert watched.named() == watched.replica.port
    await connection.close()


async def test_a_claim_waits_for_the_replica_and_fails_without_it(watched: Watched) -> None:
    connection = Connection.open(watched.url)
    claims = RedisClaims(connection, BreakerLimits(replicas=1))
    watched.replica.kill()
    for _ in range(2):
        # The second time the claim is found as it is, and it is not confirmed either.
        with pytest.raises(StorageUnavailableError, match="fewer than 1 replicas confirmed"):
            await claims.claim("INC-1", "c1", workload_key="w", lease_keys=["l"], disruption="")
    await connection.close()


async def test_a_replica_that_persists_less_than_the_primary_is_reported(watched: Watched) -> None:
    with watched.primary.client() as client:
        client.config_set("appendonly", "yes")
        client.config_set("appendfsync", "always")
    connection = Connection.open(watched.url)
    weaker = [each for each in await durability(connection, replicas_wanted=1) if each.grade != "fine"]
    assert [each.what for each in weaker] == [
        f"the replica 127.0.0.1:{watched.replica.port}, the primary after a failover: {what}"
        for what in (
            "appendonly is no: a restart loses what came after the last snapshot",
            "appendfsync is everysec: a power cut may lose alerts that were answered with 200",
        )
    ]
    await connection.close()


async def test_the_replicas_of_a_cluster_are_asked_what_they_persist(cluster: RedisCluster) -> None:
    connection = Connection.open(cluster.url, tag="east")
    findings = await durability(connection, replicas_wanted=1)
    ports = {str(each.port) for each in cluster.replicas}
    named = [each.what for each in findings if any(f"the replica 127.0.0.1:{port}," in each.what for port in ports)]
    assert len(named) == 2, findings
    await connection.close()


async def test_a_cluster_promotes_a_replica_and_the_bot_follows(cluster: RedisCluster) -> None:
    connection = Connection.open(cluster.url, tag="east", silent_seconds=1)
    store = RedisStore(connection, owner="one")
    claims = RedisClaims(connection, BreakerLimits(replicas=1))
    assert await accepts(store, "before")
    assert await claims.claim("INC-1", "c1", workload_key="w", lease_keys=["l"], disruption="") == "claimed"

    cluster.owner_of("{east}").kill()
    await until_awaited(lambda: accepts(store, "after"), "alerts are accepted again", FAILS_OVER_WITHIN)
    assert await fingerprints(store) == ["before", "after"]
    assert await RedisClaims(connection).was_claimed("INC-1", "c1"), "a claim that was confirmed is never lost"
    await connection.close()


async def test_a_slot_that_moves_to_another_node_is_followed_by_open_connections(cluster: RedisCluster) -> None:
    connection = Connection.open(cluster.url, tag="west")
    await connection.now()
    assert not await RedisClaims(connection).was_claimed("INC-1", "c1")
    owner = cluster.owner_of("{west}")
    other = next(each for each in cluster.primaries if each is not owner)
    with other.client() as client:
        slot, name = client.execute_command("CLUSTER", "KEYSLOT", "{west}"), client.execute_command("CLUSTER", "MYID")
    for each in cluster.primaries:
        with each.client() as client:
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", name)
    store = RedisStore(connection, owner="one")
    await until_awaited(lambda: accepts(store, "after"), "alerts are accepted again", FAILS_OVER_WITHIN)
    with other.client() as client:
        assert client.exists("{west}:intake") == 1
    await connection.close()


@pytest.mark.fast
def test_addresses_name_their_nodes_and_never_their_passwords() -> None:
    sentinel = redis_address("rediss+sentinel://bot:s3cret@a.example:1,[::1]/mymaster/2?sentinel_password=other")
    assert (sentinel.nodes, sentinel.service, sentinel.database) == ((("a.example", 1), ("::1", 26379)), "mymaster", 2)
    assert (sentinel.username, sentinel.password, sentinel.sentinel_password) == ("bot", "s3cret", "other")
    assert sentinel.is_encrypted
    assert str(sentinel) == "mymaster of the Sentinels a.example:1, ::1:26379"
    cluster = redis_address("redis+cluster://:p%40ss@a,b:7000")
    assert (cluster.nodes, cluster.username, cluster.password) == ((("a", 6379), ("b", 7000)), "", "p@ss")
    assert str(cluster) == "the cluster of a:6379, b:7000"
    assert redis_address("unix:///run/redis.sock").kind == "server"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "url", "username"),
    [
        ("redis://bot@a:1/2?password_file=/run/p", "redis://a:1/2", "bot"),
        ("rediss://a?ssl_cert_reqs=none&password_file=/run/p", "rediss://a?ssl_cert_reqs=none", ""),
        ("unix:///run/redis.sock?password_file=/run/p&db=3", "unix:///run/redis.sock?db=3", ""),
        ("unix:///run/redis.sock?username=bot&password_file=/run/p", "unix:///run/redis.sock", "bot"),
        ("redis+sentinel://bot@a/mymaster?password_file=%2Frun%2Fp", "", "bot"),
        ("redis+cluster://a,b?password_file=/run/p", "", ""),
        ("redis+cluster://a,b?username=bot&password_file=/run/p", "", "bot"),
    ],
)
def test_an_address_may_name_a_file_with_the_password(text: str, url: str, username: str) -> None:
    found = redis_address(text)
    assert (found.password_file, found.username, found.password) == ("/run/p", username, "")
    assert found.url == (url or text)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("localhost:6379", "is not a Redis address"),
        ("redis+proxy://a", "is not a Redis address"),
        ("redis+sentinel://a:s3cret@host", "does not name the primary"),
        ("redis+sentinel://host/mymaster/two", "not a number"),
        ("redis+cluster://host/3", "only database 0"),
        ("redis+cluster://host:s3cret", "port that is not valid"),
        ("redis+cluster://a,,b", "names no host"),
        ("redis://:s3cret@a?password_file=/run/p", "has a password and a password_file; keep one"),
        ("redis://a?password=s3cret&password_file=/run/p", "has a password and a password_file; keep one"),
        ("redis+cluster://:s3cret@a?password_file=/run/p", "has a password and a password_file; keep one"),
    ],
)
def test_an_address_that_cannot_be_used_says_why_without_repeating_it(address: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        redis_address(address)
    assert "s3cret" not in str(raised.value)
