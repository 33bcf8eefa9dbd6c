"""What expired incidents leave behind is removed once a day, and nothing else."""

from __future__ import annotations

import pytest

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.store import RedisStore
from bot.adapters.redis.sweep import UNUSED_BUNDLES_KEPT_SECONDS, RedisSweep, Swept
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.kernel.errors import StorageUnavailableError
from bot.flow.ports.storage import EVERYTHING
from bot.flow.sweep_storage import SweepStorage
from tests import builders
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
DAY = 24 * 3600.0
NOTHING = Swept(0, 0, 0, 0)


async def stored(redis: Connection, name: str, target: str, *, digest: str = "abc", expired: bool = False) -> None:
    """A closed incident with its index entries; of an expired one only these are left."""
    key, client = redis.key, redis.client
    if not expired:
        run = builders.run(incident_id=name, digest=digest, closed_at=builders.START)
        await client.set(key("run", name), StoredForm().text(run))
    await client.zadd(key("incidents"), {name: builders.START})
    await client.hset(key("last"), target, name)


async def test_index_entries_of_expired_incidents_are_removed(redis: Connection) -> None:
    await stored(redis, "INC-1", "t1", expired=True)
    await stored(redis, "INC-2", "t2")
    assert (await RedisSweep(redis)()).index_entries == 2
    assert await redis.client.zrange(redis.key("incidents"), 0, -1) == ["INC-2"]
    assert await redis.client.hgetall(redis.key("last")) == {"t2": "INC-2"}
    assert await RedisSweep(redis)() == NOTHING


async def test_the_halt_of_an_incident_goes_with_it_and_the_halt_of_everything_stays(redis: Connection) -> None:
    await stored(redis, "INC-1", "t1", expired=True)
    await stored(redis, "INC-2", "t2")
    claims = RedisClaims(redis)
    for name in ("INC-1", "INC-2", EVERYTHING):
        await claims.set_halt(name, by="U0ANA")
    assert (await RedisSweep(redis)()).halts == 1
    assert await claims.halts() == {"INC-2": "U0ANA", EVERYTHING: "U0ANA"}
    assert await RedisSweep(redis)() == NOTHING


async def test_the_lists_of_a_subject_keep_only_incidents_that_are_stored(redis: Connection) -> None:
    await stored(redis, "INC-2", "t2")
    some, none = redis.key("about", "target/t2"), redis.key("about", "hot-hall")
    await redis.client.zadd(some, {"INC-1": 1.0, "INC-2": 2.0})
    await redis.client.zadd(none, {"INC-1": 1.0})
    assert (await RedisSweep(redis)()).index_entries == 2
    assert await redis.client.zrange(some, 0, -1) == ["INC-2"]
    assert not await redis.client.exists(none)


async def test_a_bundle_that_no_run_has_expires_unless_an_incident_opens_with_it(redis: Connection) -> None:
    await stored(redis, "INC-1", "t1", digest="abc")
    for digest in ("abc", "def"):
        await redis.client.set(redis.key("bundle", digest), "{}")
    assert (await RedisSweep(redis)()).unused_bundles == 1
    assert await redis.client.ttl(redis.key("bundle", "abc")) == -1
    assert await redis.client.ttl(redis.key("bundle", "def")) in range(1, UNUSED_BUNDLES_KEPT_SECONDS + 1)
    await stored(redis, "INC-2", "t2", digest="def")
    assert (await RedisSweep(redis)()).unused_bundles == 0
    assert await redis.client.ttl(redis.key("bundle", "def")) == -1


@pytest.mark.parametrize("is_stored", [True, False], ids=["known to be stored", "brought along"])
async def test_an_incident_that_opens_with_a_bundle_keeps_it_at_once(redis: Connection, *, is_stored: bool) -> None:
    store, bundle = RedisStore(redis, owner="one"), builders.bundle()
    key = redis.key("bundle", bundle.digest)
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    if is_stored:
        assert await store.route(entry, builders.run(), "opens", bundle=bundle)
        await store.accept([builders.alert(fingerprint="f2", deployment="other")], truncated=0)
        (entry,) = await store.intake(10)
    else:
        await redis.client.set(key, "{}")
    await redis.client.expire(key, 60)
    other = builders.run(incident_id="INC-2", target=builders.TARGET.model_copy(update={"name": "other"}))
    assert await store.route(entry, other, "opens", bundle=bundle)
    assert await redis.client.ttl(key) == -1


async def test_hundreds_are_swept_in_parts(redis: Connection) -> None:
    for number in range(250):
        await stored(redis, f"INC-{number}", f"t{number}", expired=number % 2 == 0)
    assert (await RedisSweep(redis)()).index_entries == 250
    assert await redis.client.zcard(redis.key("incidents")) == 125


async def test_buckets_of_the_pace_are_forgotten_after_a_day(redis: Connection, time: VirtualTime) -> None:
    pace = RedisPace(redis, {"post": (1.0, 2.0)})
    await pace.take("post", "C0OLD")
    await time.advance(DAY)
    await pace.take("post", "C0NEW")
    await time.advance(1)
    assert (await RedisSweep(redis)()).idle_buckets == 1
    assert list(await redis.client.hgetall(redis.key("pace"))) == ["post/C0NEW"]


async def test_one_replica_sweeps_each_day_and_again_after_a_failure(redis: Connection, time: VirtualTime) -> None:
    swept: list[str] = []

    async def fails() -> None:
        raise StorageUnavailableError("no answer")

    async def sweep() -> None:
        swept.append("")

    store = RedisStore(redis, owner="one")
    with pytest.raises(StorageUnavailableError):
        await SweepStorage(store, fails).once()
    one, two = SweepStorage(store, sweep), SweepStorage(RedisStore(redis, owner="two"), sweep)
    for each in (one, two, one):
        await each.once()
    assert len(swept) == 1
    await time.advance(DAY)
    await two.once()
    await one.once()
    assert len(swept) == 2
