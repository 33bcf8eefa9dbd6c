"""The server's clock goes back by hours: no wait becomes longer than it would have been."""

from __future__ import annotations

import pytest

from bot.adapters.redis.claims import BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.store import RedisStore
from bot.adapters.redis.summary import CLAIM_SECONDS, RedisSummary
from bot.domain.incidents.effect import ShowInSlack
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from tests import builders
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
BACK = -7200.0
SHOW = ShowInSlack(effect_id="show")


@pytest.fixture
async def time(connection: Connection, tag: str) -> VirtualTime:
    clock = VirtualTime(connection.client, tag)
    await clock.start()
    return clock


@pytest.fixture
def redis(connection: Connection, tag: str, time: VirtualTime) -> Connection:
    return Connection(connection.client, tag=tag, clock=time.prelude)


@pytest.fixture
def store(redis: Connection) -> RedisStore:
    return RedisStore(redis, owner="one")


@pytest.fixture
def other(redis: Connection) -> RedisStore:
    """Another process, which does not see what the first one does."""
    return RedisStore(redis, owner="two")


async def owing(store: RedisStore) -> Run:
    """An incident that owes its card, by the process that decided it."""
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    assert await store.route(entry, builders.run(), "opens", bundle=builders.bundle())
    run = builders.run(version=1, number=1)
    await store.commit(run, consumed=1, entries=(), effects=[SHOW])
    return run


async def test_a_bucket_asks_for_no_longer_wait_than_it_needs_for_one_token(
    redis: Connection, time: VirtualTime
) -> None:
    pace = RedisPace(redis, {"post": (0.5, 3.0)})
    for _ in range(3):
        assert await pace.take("post", "C0INC") == 0
    await time.advance(BACK)
    assert 0 < await pace.take("post", "C0INC") <= 2.0
    await time.advance(2.0)
    assert await pace.take("post", "C0INC") == 0


async def test_the_lease_of_a_process_that_died_ends_in_its_time(
    store: RedisStore, other: RedisStore, time: VirtualTime
) -> None:
    await owing(store)
    await store.keep_time()
    await time.advance(BACK)
    await other.keep_time()
    assert await other.take("INC-1", "show") is None
    await time.advance(16)
    assert await other.owed_now(10) == [("INC-1", "show", "cards")]
    assert await other.take("INC-1", "show") is not None


async def test_what_was_put_back_is_due_when_it_was_promised(store: RedisStore, time: VirtualTime) -> None:
    await owing(store)
    owed = await store.take("INC-1", "show")
    assert owed is not None
    await store.keep_time()
    await store.put_back(owed, after_seconds=20, failed=False)
    await time.advance(BACK)
    await store.keep_time()
    await time.advance(19)
    assert await store.owed_now(10) == []
    await time.advance(2)
    assert await store.owed_now(10) == [("INC-1", "show", "cards")]


async def test_an_inbox_that_waits_is_found_within_seconds(
    store: RedisStore, other: RedisStore, time: VirtualTime
) -> None:
    await owing(store)
    await store.append("INC-1", [Commanded(event_id="note", command="note", user="U0ANA", text="hm")])
    await store.keep_time()
    await time.advance(BACK)
    await other.keep_time()
    await time.advance(2)
    assert await other.pending(10) == ["INC-1"]


async def test_a_workload_is_free_again_when_its_lease_would_have_ended(
    redis: Connection, store: RedisStore, time: VirtualTime
) -> None:
    claims = RedisClaims(redis, BreakerLimits(lease_seconds=600))

    async def claim(incident_id: str) -> str:
        return await claims.claim(incident_id, f"{incident_id}/R1/0", workload_key="w", lease_keys=["w"], disruption="")

    assert await claim("INC-1") == "claimed"
    await store.keep_time()
    await time.advance(BACK)
    await store.keep_time()
    assert await claim("INC-2") == "lease_held"
    await time.advance(601)
    assert await claim("INC-2") == "claimed"


async def test_the_breaker_counts_no_longer_than_its_hour(redis: Connection, time: VirtualTime) -> None:
    claims = RedisClaims(redis, BreakerLimits(disruptive_changes=1, seconds=3600))

    async def claim(incident_id: str) -> str:
        return await claims.claim(
            incident_id, f"{incident_id}/R1/0", workload_key="w", lease_keys=[], disruption=incident_id
        )

    assert await claim("INC-1") == "claimed"
    await time.advance(BACK)
    assert await claim("INC-2") == "breaker_open"
    await time.advance(3601)
    assert await claim("INC-2") == "claimed"


async def test_a_repeat_is_known_no_longer_than_its_hour(store: RedisStore, time: VirtualTime) -> None:
    await store.accept([builders.alert()], truncated=0)
    await time.advance(BACK)
    await store.accept([builders.alert(fingerprint="f2")], truncated=0)
    await time.advance(3601)
    assert await store.accept([builders.alert()], truncated=0) == 1


async def test_the_claim_of_the_summary_is_free_when_it_would_have_ended(redis: Connection, time: VirtualTime) -> None:
    digest = RedisSummary(redis, (1, 1.0))
    assert await digest.claim()
    await time.advance(BACK)
    await digest.claim()
    await time.advance(CLAIM_SECONDS + 1)
    assert await digest.claim()


async def test_a_clock_that_goes_on_as_it_should_moves_nothing(
    store: RedisStore, other: RedisStore, time: VirtualTime
) -> None:
    await owing(store)
    for _ in range(14):
        await other.keep_time()
        await time.advance(1)
    assert await other.owed_now(10) == []
