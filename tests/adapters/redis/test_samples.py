"""The history of scrapes on a real server: added scrapes are returned, and no workload grows without limit."""

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.samples import RedisSamples, SampleLimits
from bot.domain.signals.scrape import Histogram, Scrape

pytestmark = pytest.mark.fast

WORKLOAD = "c/serving/Deployment/llm"


def page(at: float, replica: str = "llm-0", **values: float) -> Scrape:
    ranks = {"0": {"num_requests_running": at, **values}}
    return Scrape(replica=replica, uid="u", at=at, ranks=ranks, histograms={"0": {"h": Histogram(buckets={"1": 2.0})}})


async def times(samples: RedisSamples) -> list[float]:
    return [scrape.at for scrape in await samples.between(WORKLOAD, 0, 1e12)]


async def test_what_was_added_comes_back_whole_and_by_its_time(connection: Connection) -> None:
    samples = RedisSamples(connection)
    rounds = [[page(float(at)), page(float(at), "llm-1")] for at in (10, 20, 30)]
    for one in rounds:
        await samples.add(WORKLOAD, one)
    assert await samples.between(WORKLOAD, 15, 30) == [*rounds[1], *rounds[2]]
    assert await samples.between("another", 0, 100) == []


async def test_a_workload_keeps_its_newest_rounds_and_no_more_than_it_may(connection: Connection) -> None:
    samples = RedisSamples(connection, limits=SampleLimits(rounds=3))
    for at in range(10):
        await samples.add(WORKLOAD, [page(float(at))])
    assert await times(samples) == [7, 8, 9]


async def test_large_rounds_leave_room_for_fewer(connection: Connection) -> None:
    samples = RedisSamples(connection, limits=SampleLimits(bytes=10_000))
    for at in range(20):
        fleet = [page(float(at), f"llm-{at}-{n}", usage=(at * 1009 + n * 7919) % 9973) for n in range(200)]
        await samples.add(WORKLOAD, fleet)
    kept = sorted(set(await times(samples)))
    assert 2 <= len(kept) < 10
    assert kept[-1] == 19
    members = await connection.client.zrange(connection.key("samples", WORKLOAD), 0, -1)
    assert sum(map(len, members)) <= 11_000 or len(kept) == 2


async def test_what_is_older_than_its_time_is_gone(connection: Connection) -> None:
    samples = RedisSamples(connection, limits=SampleLimits(seconds=60))
    for at in (0.0, 50.0, 100.0):
        await samples.add(WORKLOAD, [page(at)])
    assert await times(samples) == [50, 100]
