"""The whole test of the store once more, in a Redis Cluster of three nodes: every script and key works there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from bot.adapters.redis.connection import Connection
from tests.adapters.redis.test_store import *  # noqa: F403 - its tests and fixtures, on other servers
from tests.redis_server import VirtualTime
from tests.redis_topologies import RedisCluster, cluster_of_three

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with cluster_of_three(tmp_path_factory.mktemp("cluster"), replicas=False) as found:
        yield found


@pytest.fixture
async def connection(cluster: RedisCluster, tag: str) -> AsyncIterator[Connection]:
    opened = Connection.open(cluster.url, tag=tag)
    yield opened
    await opened.close()


@pytest.fixture
async def time(connection: Connection, tag: str) -> VirtualTime:
    clock = VirtualTime(connection.client, tag)
    await clock.start()
    return clock


@pytest.fixture
def redis(connection: Connection, tag: str, time: VirtualTime) -> Connection:
    return Connection(connection.client, tag=tag, clock=time.prelude)
