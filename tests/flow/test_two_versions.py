"""A rolling upgrade: replicas of an older and of a newer version of the bot on one Redis, in virtual time."""

from __future__ import annotations

import dataclasses

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.shown import RedisShown
from bot.adapters.redis.store import RedisStore
from bot.adapters.slack.outbound.shown import Shown
from bot.domain.incidents.effect import ShowInSlack
from bot.domain.incidents.event import Due
from bot.domain.incidents.run import Run
from bot.domain.incidents.stored_form import FORMS, StoredForm
from bot.domain.kernel.errors import NewerFormError
from bot.domain.playbooks.library import Library
from bot.flow.keep_halts import KeepHalts
from bot.flow.ports.storage import HaltWord
from bot.flow.route_alerts import BATCH, RouteAlerts
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.restrictions import restrictions
from tests.flow.harness import Bot, differences, play
from tests.flow.scenes import drill_playbook, drill_scene
from tests.redis_server import VirtualTime

OLD, NEW = StoredForm(max(FORMS)), StoredForm(max(FORMS) + 1)
EVERY = 23
SHOW = ShowInSlack(effect_id="show")


async def test_an_incident_ends_as_usual_when_either_replica_is_upgraded_at_any_step(
    client: aioredis.Redis, tag: str
) -> None:
    alone = await drill_scene(client, f"{tag}-alone")
    wanted = await play(alone)
    with capture_logs():
        for k in range(1, len(alone.stage.points), EVERY):
            scene = await drill_scene(client, f"{tag}-{k}", (k, "after"))
            # The replica that ends at step k comes back as the newer version; the other one stays as it is.
            scene.form_of = lambda owner: NEW if owner.endswith("+") else OLD
            scene.eyes = RedisStore(Connection(client, tag=scene.tag, clock=scene.time.prelude), owner="eyes", form=NEW)
            assert differences(wanted, await play(scene, bots=2, at_once=True)) == [], f"upgraded after step {k}"


@pytest.fixture
def old(redis: Connection) -> RedisStore:
    return RedisStore(redis, owner="old", form=OLD)


@pytest.fixture
def new(redis: Connection) -> RedisStore:
    return RedisStore(redis, owner="new", form=NEW)


async def open_one(store: RedisStore, incident_id: str, deployment: str) -> Run:
    alert = builders.alert(fingerprint=deployment, deployment=deployment)
    await store.accept([alert], truncated=0)
    entry = (await store.intake(100))[-1]
    target = builders.TARGET.model_copy(update={"name": deployment})
    run = builders.run(incident_id=incident_id, target=target)
    assert await store.route(entry, run, "opens", bundle=builders.bundle())
    moved = run.with_(version=1)
    await store.commit(moved, consumed=1, entries=(), effects=[SHOW])
    return moved


async def everything(client: aioredis.Redis, redis: Connection, incident_id: str) -> dict[str, object]:
    key = redis.key
    return {
        "run": await client.get(key("run", incident_id)),
        "inbox": await client.lrange(key("inbox", incident_id), 0, -1),
        "effects": await client.hgetall(key("effects", incident_id)),
        "owners": await client.hgetall(key("owners")),
        "owed": await client.zrange(key("owed"), 0, -1, withscores=True),
        "timeline": await client.lrange(key("timeline", incident_id), 0, -1),
    }


@pytest.mark.fast
async def test_the_older_version_leaves_an_incident_of_the_newer_one_untouched(
    client: aioredis.Redis, redis: Connection, time: VirtualTime, old: RedisStore, new: RedisStore
) -> None:
    await open_one(new, "INC-1", "llm")
    await new.append("INC-1", [Due(event_id="d1", deadline="Q1", due_at=5.0)])
    await time.advance(60)
    before = await everything(client, redis, "INC-1")
    with pytest.raises(NewerFormError, match="INC-1 was stored by a newer version"):
        await old.look("INC-1")
    assert await old.take("INC-1", "show") is None
    assert await old.owed_now(10) == [("INC-1", "show", "people")]
    assert await everything(client, redis, "INC-1") == before
    assert await new.take("INC-1", "show") is not None


@pytest.mark.fast
async def test_the_older_version_still_works_on_its_other_incidents(
    redis: Connection, time: VirtualTime, old: RedisStore, new: RedisStore
) -> None:
    await open_one(new, "INC-1", "llm")
    await open_one(old, "INC-2", "other")
    await time.advance(60)
    assert {incident: await old.take(incident, "show") is not None for incident in ("INC-1", "INC-2")} == {
        "INC-1": False,
        "INC-2": True,
    }


@pytest.mark.fast
async def test_the_older_version_reports_which_open_incidents_are_left_to_the_newer_one(
    time: VirtualTime, old: RedisStore, new: RedisStore
) -> None:
    left = {f"INC-{number}": await open_one(new, f"INC-{number}", f"w-{number}") for number in range(1, 5)}
    await open_one(old, "INC-5", "other")
    with capture_logs() as logs:
        for _ in range(2):
            await old.look_for_newer()
    why = "a newer version of the bot has stored INC-1, INC-2, INC-3 and 1 more"
    assert old.notices() == {"incidents": f"{why}; without a replica of that version they stand still"}
    assert [(entry["log_level"], entry["event"], entry["incidents"]) for entry in logs] == [
        ("warning", "incidents.left", 4)
    ]
    for run in left.values():
        closed = run.with_(version=2, closed_at=time.now(), ending="fixed")
        await new.commit(closed, consumed=0, entries=(), effects=())
    for store in (old, new):
        await store.look_for_newer()
    assert (old.notices(), new.notices()) == ({}, {})


@pytest.mark.fast
async def test_the_newer_version_upgrades_an_incident_with_its_first_decision(
    client: aioredis.Redis, redis: Connection, time: VirtualTime, old: RedisStore, new: RedisStore
) -> None:
    await open_one(old, "INC-1", "llm")
    run = await new.load("INC-1")
    assert run is not None
    await new.commit(run.with_(version=2), consumed=0, entries=(), effects=())
    assert str(await client.get(redis.key("run", "INC-1"))).startswith(f'{{"form":{NEW.number},')
    with pytest.raises(NewerFormError):
        await old.load("INC-1")


@pytest.mark.fast
async def test_an_alert_for_an_incident_of_the_newer_version_waits_for_it_and_holds_up_no_other(
    time: VirtualTime, old: RedisStore, new: RedisStore
) -> None:
    cluster = MemoryCluster(time.now)

    def routing(store: RedisStore) -> RouteAlerts:
        return RouteAlerts(
            store, store, Library({"drill": drill_playbook()}), {"test": cluster},
            restrictions=restrictions(), wake=lambda *_: None,
        )  # fmt: skip

    await open_one(new, "INC-1", "llm")
    await new.next_incident_id()
    more = [builders.alert(fingerprint=f"more-{number}", deployment="llm") for number in range(BATCH + 2)]
    await old.accept([*more, builders.alert(fingerprint="x", deployment="other")], truncated=0)
    with capture_logs() as logged:
        await routing(old)()
    assert {line["event"] for line in logged} >= {"alert.left"}
    assert len(await old.intake(1000)) == len(more)
    assert await old.open_incident(builders.TARGET.model_copy(update={"name": "other"}).key) == "INC-2"
    await routing(new)()
    assert await new.intake(1000) == []
    assert len(await new.inbox("INC-1")) == len(more)


@pytest.mark.fast
async def test_a_replica_of_the_older_version_keeps_running_beside_newer_incidents(
    client: aioredis.Redis, tag: str
) -> None:
    scene = await drill_scene(client, tag)
    scene.form_of = lambda owner: OLD if owner == "old" else NEW
    scene.eyes = RedisStore(Connection(client, tag=tag, clock=scene.time.prelude), owner="eyes", form=NEW)
    await Bot(scene, "new").turn()
    before = await scene.run()
    with capture_logs() as logged:
        await Bot(scene, "old").turn()
        await scene.time.advance(60)
        await Bot(scene, "old").turn()
    assert await scene.run() == before
    assert [line for line in logged if line["log_level"] == "error"] == []


@pytest.mark.fast
async def test_a_halt_reaches_the_older_incidents_beside_a_newer_one(
    redis: Connection, time: VirtualTime, old: RedisStore, new: RedisStore
) -> None:
    await open_one(new, "INC-1", "llm")
    await open_one(old, "INC-2", "other")
    claims = RedisClaims(redis)
    await claims.set_halt_of_all(HaltWord("U0ANA", "the rack is on fire"), halts=True)
    with capture_logs() as logged:
        await KeepHalts(old, claims, lambda incident_id: None, lambda: None).once()
    assert [event.kind for event in await old.inbox("INC-2")] == ["commanded"]
    assert [line["event"] for line in logged] == ["halt.left"]


@pytest.mark.fast
async def test_a_record_of_slack_by_a_newer_version_is_left_to_it(redis: Connection, new: RedisStore) -> None:
    await open_one(new, "INC-1", "llm")
    key = redis.key("shown", "INC-1")
    await redis.ask(redis.client.hset(key, "card", '{"ts": "1.0", "never_heard_of": 1}'))
    with pytest.raises(NewerFormError, match="a message of INC-1 was stored by a newer version"):
        await RedisShown(redis, Shown, dataclasses.asdict, RedisPace(redis, {})).load("INC-1")
