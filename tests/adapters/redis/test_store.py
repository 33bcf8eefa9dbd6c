"""The storage guarantees, on a real server: once, together, in order, and no work is taken twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.adapters.redis.claims import BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.store import RUNS_KEPT, RUNS_PER_READ, RedisStore, StoreLimits
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.incidents.effect import ApplyStep, ReadSignals, ShowInSlack, WatchSignals
from bot.domain.incidents.event import AlertChanged, Due, Progressed
from bot.domain.incidents.run import Offer, Run
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.incidents.subjects import HOT_HALL, about_node, about_target
from bot.domain.kernel.errors import StaleRunError, StorageUnavailableError
from bot.domain.kernel.timeline import GENESIS, Entry, chain, first_break
from bot.domain.signals.signal import Reading
from bot.flow.incident_history import MAX_INCIDENTS
from bot.flow.ports.storage import EVERYTHING, Joining
from bot.sandbox import valkey
from tests import builders
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
SHOW = ShowInSlack(effect_id="show")


@pytest.fixture
def store(redis: Connection) -> RedisStore:
    return RedisStore(redis, owner="one")


async def opened(store: RedisStore) -> Run:
    """An incident with one alert in its inbox."""
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    run = builders.run()
    assert await store.route(entry, run, "opens", bundle=builders.bundle())
    return run


def moved(run: Run, **fields: Any) -> Run:
    return run.with_(version=run.version + 1, **builders.nested(fields, run.visit, run.findings))


# --- alerts -----------------------------------------------------------------------------------------------------------


async def test_an_accepted_alert_waits_in_the_intake_with_the_storages_time(
    store: RedisStore, time: VirtualTime
) -> None:
    assert await store.accept([builders.alert()], truncated=3) == 1
    (entry,) = await store.intake(10)
    assert entry.alert.name == "VllmKVCacheThrash"
    assert entry.alert.received_at == time.now()
    assert entry.truncated == 3


async def test_what_was_just_accepted_is_read_without_asking_again(redis: Connection, store: RedisStore) -> None:
    await store.accept([builders.alert(fingerprint="f1"), builders.alert(fingerprint="f2")], truncated=0)
    await redis.client.delete(redis.key("intake"))
    assert [entry.alert.fingerprint for entry in await store.intake(10)] == ["f1", "f2"]
    assert await store.intake(10) == [], "it is known once"


async def test_what_others_accepted_before_is_not_overlooked(redis: Connection, store: RedisStore) -> None:
    await RedisStore(redis, owner="other").accept([builders.alert(fingerprint="f1")], truncated=0)
    await store.accept([builders.alert(fingerprint="f2")], truncated=0)
    assert [entry.alert.fingerprint for entry in await store.intake(10)] == ["f1", "f2"]


async def test_alerts_that_are_accepted_before_the_intake_is_read_are_all_in_it(store: RedisStore) -> None:
    await store.accept([builders.alert(fingerprint="f1")], truncated=0)
    at_once = (store.accept([builders.alert(fingerprint=f"f{number}")], truncated=0) for number in range(2, 9))
    await asyncio.gather(*at_once)
    assert {entry.alert.fingerprint for entry in await store.intake(10)} == {f"f{number}" for number in range(1, 9)}


async def test_alerts_that_are_accepted_at_once_are_all_in_the_intake(store: RedisStore) -> None:
    await asyncio.gather(*(store.accept([builders.alert(fingerprint=f"f{number}")], truncated=0) for number in "12"))
    assert len(await store.intake(10)) == 2


async def test_no_more_than_the_wanted_alerts_are_read(store: RedisStore) -> None:
    await store.accept([builders.alert(fingerprint=f"f{number}") for number in range(3)], truncated=0)
    assert [entry.alert.fingerprint for entry in await store.intake(2)] == ["f0", "f1"]


async def test_a_repeat_is_accepted_once_within_the_hour_and_again_after_it(
    store: RedisStore, time: VirtualTime
) -> None:
    await store.accept([builders.alert()], truncated=0)
    assert await store.accept([builders.alert(), builders.alert("resolved")], truncated=0) == 1
    await time.advance(3700)
    assert await store.accept([builders.alert()], truncated=0) == 1


async def test_an_alert_that_fires_again_with_the_same_start_is_new_each_time(store: RedisStore) -> None:
    history = ["firing", "resolved", "firing", "firing", "resolved", "resolved"]
    assert [await store.accept([builders.alert(status)], truncated=0) for status in history] == [1, 1, 1, 0, 1, 0]


async def test_an_incident_is_opened_only_while_its_target_has_none(store: RedisStore) -> None:
    await opened(store)
    await store.accept([builders.alert(fingerprint="f2")], truncated=0)
    (entry,) = await store.intake(10)
    assert not await store.route(entry, builders.run(incident_id="INC-2"), "opens", bundle=builders.bundle())
    assert len(await store.intake(10)) == 1
    assert await store.route(entry, builders.run(), "extends", bundle=builders.bundle())
    assert await store.intake(10) == []
    assert [event.kind for event in await store.inbox("INC-1")] == ["alert_changed", "alert_changed"]


async def test_a_routed_alert_is_not_routed_again_by_a_slower_process(store: RedisStore) -> None:
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    assert await store.route(entry, builders.run(), "opens", bundle=builders.bundle())
    assert await store.route(entry, builders.run(), "extends", bundle=builders.bundle())
    assert len(await store.inbox("INC-1")) == 1


async def test_unmatched_alerts_are_kept_newest_first_and_bounded(redis: Connection) -> None:
    store = RedisStore(redis, owner="one", limits=StoreLimits(unmatched_kept=2))
    for number in range(3):
        await store.accept([builders.alert(fingerprint=f"f{number}")], truncated=0)
        (entry,) = await store.intake(10)
        await store.keep_unmatched(entry, "no playbook wants it")
    assert [found.fingerprint for found, _reason in await store.unmatched(10)] == ["f2", "f1"]


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_an_event_is_stored_once_by_its_id_and_stamped_as_it_enters(store: RedisStore, time: VirtualTime) -> None:
    await opened(store)
    await time.advance(7)
    event = Due(event_id="due/1", deadline="request:R1:expiry", due_at=1.0)
    assert await store.append("INC-1", [event])
    assert await store.append("INC-1", [event])
    assert [found.at for found in await store.inbox("INC-1")] == [builders.START, builders.START + 7]


async def test_an_event_for_an_unknown_incident_is_refused(store: RedisStore) -> None:
    assert not await store.append("INC-9", [Due(event_id="d", deadline="x", due_at=1.0)])


async def test_a_commit_writes_run_timeline_and_effects_and_drops_what_it_consumed(store: RedisStore) -> None:
    run = moved(await opened(store), number=1)
    entries = chain([Entry(kind="opened", at=1.0, text="opened")], head=GENESIS, length=0)
    await store.commit(run, consumed=1, entries=entries, effects=[SHOW])
    loaded = await store.load("INC-1")
    assert loaded == run
    assert await store.inbox("INC-1") == []
    timeline = await store.timeline("INC-1")
    assert [item.entry.text for item in timeline] == ["opened"]
    assert first_break(timeline) is None
    assert await store.take("INC-1", "show") is not None


async def test_a_stale_commit_changes_nothing(store: RedisStore) -> None:
    run = moved(await opened(store))
    await store.commit(run, consumed=1, entries=(), effects=())
    with pytest.raises(StaleRunError):
        await store.commit(run.with_(title="other"), consumed=0, entries=(), effects=[SHOW])
    assert await store.load("INC-1") == run
    assert await store.take("INC-1", "show") is None


async def test_a_commit_voids_the_effects_of_earlier_visits(store: RedisStore) -> None:
    run = moved(await opened(store), number=1)
    old = ReadSignals(effect_id="v1/read", visit=1, state="look", names=())
    await store.commit(run, consumed=1, entries=(), effects=[old, SHOW])
    await store.commit(moved(run, number=2), consumed=0, entries=(), effects=())
    assert await store.take("INC-1", "v1/read") is None
    assert await store.take("INC-1", "show") is not None


async def test_an_incident_that_owes_a_reading_or_a_watch_is_reading(store: RedisStore) -> None:
    run = moved(await opened(store), number=1)
    watch = WatchSignals(effect_id="v1/watch", visit=1, state="look", started_at=0.0)
    await store.commit(run, consumed=1, entries=(), effects=[SHOW])
    assert await store.incidents_reading() == frozenset()
    await store.commit(moved(run), consumed=0, entries=(), effects=[watch])
    assert await store.incidents_reading() == {"INC-1"}


async def test_one_process_samples_a_cluster_until_it_is_overdue(redis: Connection) -> None:
    one, other = RedisStore(redis, owner="one"), RedisStore(redis, owner="other")
    assert await one.take_sampling("east", 10.0)
    assert not await other.take_sampling("east", 10.0)
    assert await other.take_sampling("west", 10.0)
    assert await one.take_sampling("east", 10.0)
    sampler = redis.key("sampler", "east")
    assert 0 < await redis.client.pttl(sampler) <= 10_000
    await redis.client.pexpire(sampler, 0)
    assert await other.take_sampling("east", 10.0)
    assert not await one.take_sampling("east", 10.0)


async def test_an_inbox_that_waits_or_a_deadline_that_passed_makes_an_incident_pending(
    store: RedisStore, time: VirtualTime
) -> None:
    run = await opened(store)
    assert await store.pending(10) == []
    await time.advance(2)
    assert await store.pending(10) == ["INC-1"]
    await store.commit(moved(run, deadlines={"q": time.now() + 60}), consumed=1, entries=(), effects=())
    assert await store.pending(10) == []
    await time.advance(61)
    assert await store.pending(10) == ["INC-1"]


async def test_news_of_an_older_incident_do_not_make_it_the_last_one_again(store: RedisStore) -> None:
    older = moved(await opened(store), closed_at=1.0)
    await store.commit(older, consumed=1, entries=(), effects=())
    await store.accept([builders.alert(fingerprint="f2")], truncated=0)
    (entry,) = await store.intake(10)
    newer = builders.run(incident_id="INC-10")
    assert await store.route(entry, newer, "opens", bundle=builders.bundle())
    await store.commit(moved(newer, closed_at=2.0), consumed=1, entries=(), effects=())
    await store.commit(moved(older), consumed=0, entries=(), effects=())
    assert await store.last_incident(older.target.key) == "INC-10"


async def test_a_closed_incident_leaves_the_open_index_and_is_the_last_one_of_its_target(store: RedisStore) -> None:
    run = await opened(store)
    assert await store.open_incident(run.target.key) == "INC-1"
    await store.commit(moved(run, closed_at=1.0), consumed=1, entries=(), effects=())
    assert await store.open_incident(run.target.key) is None
    assert await store.last_incident(run.target.key) == "INC-1"


async def test_an_incident_is_listed_under_each_of_its_subjects_and_as_long_as_it_is_kept(
    store: RedisStore, redis: Connection
) -> None:
    run = moved(await opened(store), ledger=(builders.ledger_entry(node="n1"),))
    target, node = about_target(run.target.key), about_node(run.target.cluster, "n1")
    await store.commit(run, consumed=1, entries=(), effects=())
    assert [await store.incidents_about(each, 10) for each in (target, node, HOT_HALL)] == [["INC-1"], ["INC-1"], []]
    assert await redis.client.ttl(redis.key("about", node)) == -1
    closed = moved(run, closed_at=1.0)
    await store.commit(closed, consumed=0, entries=(), effects=())
    kept = StoreLimits().retention_seconds
    assert [await redis.client.ttl(redis.key("about", each)) for each in (target, node)] == [kept, kept]
    await store.commit(moved(closed, closed_at=None), consumed=0, entries=(), effects=())
    assert await redis.client.ttl(redis.key("about", target)) == -1


async def test_the_newest_incidents_of_a_subject_are_listed(
    store: RedisStore, redis: Connection, time: VirtualTime
) -> None:
    heat = Reading(name="heat", value=None, fields={"scope": "facility"}, at=0.0)
    for number in range(MAX_INCIDENTS + 2):
        run = builders.run(incident_id=f"INC-{number}", closed_at=1.0, latest={"heat": heat})
        await redis.client.set(redis.key("run", run.incident_id), StoredForm().text(run))
        await store.commit(moved(run), consumed=0, entries=(), effects=())
        await time.advance(1)
    listed = await store.incidents_about(HOT_HALL, 2 * MAX_INCIDENTS)
    assert list(listed) == [f"INC-{number}" for number in range(MAX_INCIDENTS + 1, 1, -1)]


# --- effects ----------------------------------------------------------------------------------------------------------


async def test_an_effect_is_born_with_a_lease_of_its_process_and_passes_on_when_that_lapses(
    redis: Connection, store: RedisStore, time: VirtualTime
) -> None:
    other = RedisStore(redis, owner="two")
    run = moved(await opened(store))
    await store.commit(run, consumed=1, entries=(), effects=[SHOW])
    assert await other.take("INC-1", "show") is None
    assert await store.take("INC-1", "show") is not None
    await time.advance(16)
    assert list(await other.owed_now(10)) == [("INC-1", "show", "cards")]
    taken = await other.take("INC-1", "show")
    assert taken is not None
    assert await store.take("INC-1", "show") is None
    assert await other.renew(taken)


async def test_a_lost_lease_cannot_be_renewed(redis: Connection, store: RedisStore, time: VirtualTime) -> None:
    await store.commit(moved(await opened(store)), consumed=1, entries=(), effects=[SHOW])
    mine = await store.take("INC-1", "show")
    await time.advance(16)
    assert await RedisStore(redis, owner="two").take("INC-1", "show") is not None
    assert mine is not None
    assert not await store.renew(mine)


async def test_settling_appends_the_outcome_once_and_owes_the_effect_no_more(store: RedisStore) -> None:
    await store.commit(moved(await opened(store)), consumed=1, entries=(), effects=[SHOW])
    taken = await store.take("INC-1", "show")
    assert taken is not None
    outcome = Progressed(event_id="e1", effect_id="show", text="shown")
    assert (await store.settle(taken, [outcome])).again is None
    assert (await store.settle(taken, [outcome])).again is None
    assert len(await store.inbox("INC-1")) == 1
    assert await store.take("INC-1", "show") is None


async def test_an_effect_that_was_owed_anew_while_it_ran_stays_owed(store: RedisStore) -> None:
    run = moved(await opened(store))
    await store.commit(run, consumed=1, entries=(), effects=[SHOW])
    taken = await store.take("INC-1", "show")
    await store.commit(moved(run), consumed=0, entries=(), effects=[SHOW])
    assert taken is not None
    assert (await store.settle(taken, [])).again is not None
    assert await store.take("INC-1", "show") is not None


async def test_an_effect_that_was_put_back_is_free_later_and_remembers_its_failures(
    store: RedisStore, time: VirtualTime
) -> None:
    await store.commit(moved(await opened(store)), consumed=1, entries=(), effects=[SHOW])
    taken = await store.take("INC-1", "show")
    assert taken is not None
    assert await store.put_back(taken, after_seconds=5, failed=True) == 1
    assert await store.take("INC-1", "show") is None
    await time.advance(6)
    again = await store.take("INC-1", "show")
    assert again is not None
    assert again.attempts == 1


async def test_whoever_lost_the_lease_takes_nothing_from_the_process_that_has_it(
    redis: Connection, store: RedisStore, time: VirtualTime
) -> None:
    await store.commit(moved(await opened(store)), consumed=1, entries=(), effects=[SHOW])
    slow = await store.take("INC-1", "show")
    await time.advance(16)
    other, third = RedisStore(redis, owner="two"), RedisStore(redis, owner="three")
    theirs = await other.take("INC-1", "show")
    assert slow is not None
    assert theirs is not None
    await store.put_back(slow, after_seconds=0, failed=True)
    assert await third.take("INC-1", "show") is None
    assert await other.renew(theirs)


async def test_a_late_outcome_leaves_what_was_owed_anew_to_the_process_that_has_it(
    redis: Connection, store: RedisStore, time: VirtualTime
) -> None:
    run = moved(await opened(store))
    await store.commit(run, consumed=1, entries=(), effects=[SHOW])
    slow = await store.take("INC-1", "show")
    await time.advance(16)
    other, third = RedisStore(redis, owner="two"), RedisStore(redis, owner="three")
    assert await other.take("INC-1", "show") is not None
    await other.commit(moved(run), consumed=0, entries=(), effects=[SHOW])
    theirs = await other.take("INC-1", "show")
    assert slow is not None
    assert theirs is not None
    assert (await store.settle(slow, [Progressed(event_id="e1", effect_id="show", text="shown")])).again is None
    assert len(await store.inbox("INC-1")) == 1
    assert await third.take("INC-1", "show") is None
    assert await other.renew(theirs)


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def claims(redis: Connection) -> RedisClaims:
    return RedisClaims(redis, BreakerLimits(disruptive_changes=2))


async def claim(claims: RedisClaims, incident: str, call: str, *, disruption: str | None = None) -> str:
    """A call of a change that disrupts the workload, unless `disruption` is given."""
    disruption = call.rpartition("/")[0] if disruption is None else disruption
    return await claims.claim(incident, call, workload_key="w", lease_keys=["workload/w"], disruption=disruption)


async def test_a_call_is_claimed_once_and_known_ever_after(claims: RedisClaims) -> None:
    assert await claim(claims, "INC-1", "INC-1/R1/0") == "claimed"
    assert await claim(claims, "INC-1", "INC-1/R1/0") == "already_claimed"
    assert await claims.was_claimed("INC-1", "INC-1/R1/0")
    assert not await claims.was_claimed("INC-1", "INC-1/R1/1")


@pytest.mark.parametrize("meanwhile", ["another process performs the effect", "the incident went on"])
async def test_a_process_that_was_frozen_right_before_a_call_claims_nothing(
    redis: Connection, store: RedisStore, time: VirtualTime, meanwhile: str
) -> None:
    step = ApplyStep(effect_id="v1/apply/R1/0/0", visit=1, request_id="R1", step=0)
    run = moved(await opened(store))
    await store.commit(run, consumed=1, entries=(), effects=[step])
    other = RedisStore(redis, owner="two")
    await time.advance(16)
    if meanwhile == "the incident went on":
        await other.commit(moved(run, number=2), consumed=0, entries=(), effects=())
    else:
        assert await other.take("INC-1", step.effect_id) is not None

    async def claimed(owner: str) -> str:
        return await RedisClaims(redis, owner=owner).claim(
            "INC-1", "INC-1/R1/0", workload_key="w", lease_keys=["workload/w"], disruption="", effect_id=step.effect_id
        )

    assert await claimed("one") == "lost"
    assert await claim(RedisClaims(redis), "INC-2", "INC-2/R1/0") == "claimed", "it took no lease"


async def test_one_incident_at_a_time_changes_a_workload(claims: RedisClaims) -> None:
    await claim(claims, "INC-1", "INC-1/R1/0")
    assert await claim(claims, "INC-2", "INC-2/R1/0") == "lease_held"
    await claims.release("INC-1")
    assert await claim(claims, "INC-2", "INC-2/R1/0") == "claimed"


async def test_a_late_release_leaves_what_the_next_change_of_the_incident_claimed(claims: RedisClaims) -> None:
    assert await claim(claims, "INC-1", "INC-1/R1/0", disruption="") == "claimed"
    assert await claim(claims, "INC-1", "INC-1/R2/0", disruption="") == "claimed"
    await claims.release("INC-1", "R1")
    assert await claim(claims, "INC-2", "INC-2/R1/0", disruption="") == "lease_held"
    await claims.release("INC-1", "R2")
    assert await claim(claims, "INC-2", "INC-2/R1/0", disruption="") == "claimed"


async def test_a_lease_of_an_earlier_version_names_no_request(claims: RedisClaims, redis: Connection) -> None:
    await redis.client.hset(redis.key("leases"), "workload/w", "INC-1|9999999999")
    assert await claim(claims, "INC-2", "INC-2/R1/0", disruption="") == "lease_held"
    await claims.hold("INC-1", ["workload/w"])
    await claims.release("INC-1", "R1")
    assert await claim(claims, "INC-2", "INC-2/R1/0", disruption="") == "claimed"


async def test_holding_keeps_what_is_ours_and_takes_nothing_from_others(claims: RedisClaims, time: VirtualTime) -> None:
    await claim(claims, "INC-1", "INC-1/R1/0")
    await time.advance(400)
    await claims.hold("INC-2", ["workload/w"])
    await claims.hold("INC-1", ["workload/w", "workload/never-claimed"])
    await time.advance(400)
    assert await claim(claims, "INC-2", "INC-2/R1/0") == "lease_held"
    other = ["workload/never-claimed"]
    assert (
        await claims.claim("INC-2", "INC-2/R1/1", workload_key="v", lease_keys=other, disruption="INC-2/R1")
        == "claimed"
    )
    await time.advance(601)
    assert await claim(claims, "INC-2", "INC-2/R1/0") == "claimed"


async def test_the_breaker_counts_changes_not_calls_and_lets_restoring_pass(
    claims: RedisClaims, time: VirtualTime
) -> None:
    assert await claim(claims, "INC-1", "INC-1/R1/0") == "claimed"
    assert await claim(claims, "INC-1", "INC-1/R1/1") == "claimed"
    assert await claim(claims, "INC-1", "INC-1/R2/0") == "claimed"
    assert await claim(claims, "INC-1", "INC-1/R3/0") == "breaker_open"
    assert await claim(claims, "INC-1", "INC-1/R4/0", disruption="") == "claimed"
    await time.advance(3601)
    assert await claim(claims, "INC-1", "INC-1/R3/0") == "claimed"


@pytest.mark.parametrize("halted", ["INC-1", EVERYTHING], ids=["one incident", "everything"])
async def test_a_halt_stops_every_call_until_it_is_lifted(claims: RedisClaims, halted: str) -> None:
    await claims.set_halt(halted, by="ana")
    assert await claim(claims, "INC-1", "INC-1/R1/0") == "halted"
    assert await claims.halted_by("INC-1") == "ana"
    await claims.set_halt(halted, by="")
    assert await claim(claims, "INC-1", "INC-1/R1/0") == "claimed"


async def takes(claims: RedisClaims, number: int, node: NodeDisruption, *, step: int = 0, counts: bool = True) -> str:
    """The claim of a node, each by an incident and on a workload of its own."""
    call = f"INC-{number}/R1/{step}"
    return await claims.claim(
        f"INC-{number}", call, workload_key=f"w{number}", lease_keys=[], disruption="", node=node if counts else None
    )


def large(name: str, **fields: Any) -> NodeDisruption:
    """One of a hundred nodes."""
    return NodeDisruption(name, **({"gpus": 8, "fleet_gpus": 800} | fields))


async def test_two_nodes_an_hour_and_no_third_whoever_asks(claims: RedisClaims, time: VirtualTime) -> None:
    assert await takes(claims, 1, large("a")) == "claimed"
    assert await takes(claims, 1, large("a"), step=1) == "claimed"
    assert await takes(claims, 2, large("b")) == "claimed"
    assert await takes(claims, 3, large("c")) == "node_breaker_open"
    assert await takes(claims, 3, large("c"), counts=False) == "claimed"
    assert await takes(claims, 4, large("a")) == "claimed"
    await time.advance(3601)
    assert await takes(claims, 5, large("c")) == "claimed"


async def test_a_call_that_the_node_breaker_refused_has_taken_nothing(claims: RedisClaims, time: VirtualTime) -> None:
    for number, name in enumerate("ab", start=1):
        await takes(claims, number, large(name))
    assert await takes(claims, 3, large("c")) == "node_breaker_open"
    assert not await claims.was_claimed("INC-3", "INC-3/R1/0")
    await claims.claim("INC-3", "INC-3/R2/0", workload_key="w3", lease_keys=[], disruption="a change")
    assert (
        await claims.claim("INC-3", "INC-3/R3/0", workload_key="w3", lease_keys=[], disruption="a change") == "claimed"
    )


async def test_the_breaker_says_until_when_it_is_open(claims: RedisClaims, time: VirtualTime) -> None:
    began = time.now()
    for number in range(2):
        assert await claims.breaker_open_until("w", f"change {number}", at=began + 60 * number) == 0
        call = f"INC-1/R{number}/0"
        await claims.claim("INC-1", call, workload_key="w", lease_keys=[], disruption=f"change {number}")
        await time.advance(60)
    now = time.now()
    assert await claims.breaker_open_until("w", "change 2", at=now) == pytest.approx(began + 3600, abs=1)
    assert await claims.breaker_open_until("w", "change 1", at=now) == 0, "a step of the same change"
    assert await claims.breaker_open_until("w2", "change 2", at=now) == 0
    assert await claims.breaker_open_until("w", "change 2", at=began + 3601) == 0


async def test_a_reset_forgets_nodes_and_what_is_cordoned_still_weighs(claims: RedisClaims) -> None:
    for number, name in enumerate("ab", start=1):
        await takes(claims, number, large(name))
    await claims.reset_breakers("w3", cluster="")
    assert await takes(claims, 3, large("c", fleet_gpus=160, cordoned={"a": 8, "b": 8})) == "too_many_gpus"
    assert await takes(claims, 3, large("c", cordoned={"a": 8, "b": 8})) == "claimed"


async def test_a_node_too_many_for_the_fleet_is_refused(claims: RedisClaims) -> None:
    cordoned = {"x": 8, "y": 8}
    assert await takes(claims, 1, large("a", fleet_gpus=240, cordoned=cordoned)) == "claimed"
    assert await takes(claims, 2, large("b", fleet_gpus=239, cordoned=cordoned)) == "too_many_gpus"


async def test_the_first_node_of_a_small_fleet_may_go(claims: RedisClaims) -> None:
    assert await takes(claims, 1, large("a", fleet_gpus=16)) == "claimed"
    assert await takes(claims, 2, large("b", fleet_gpus=16, cordoned={"a": 8})) == "too_many_gpus"


async def test_a_node_claimed_a_moment_ago_weighs_before_the_cluster_shows_it(claims: RedisClaims) -> None:
    assert await takes(claims, 1, large("a", fleet_gpus=80)) == "claimed"
    assert await takes(claims, 2, large("b", fleet_gpus=80)) == "too_many_gpus"


async def test_a_node_that_is_cordoned_already_may_be_emptied(claims: RedisClaims) -> None:
    assert await takes(claims, 1, large("a", gpus=0, fleet_gpus=16, cordoned={"b": 8})) == "claimed"


async def test_a_claim_that_no_replica_confirms_is_no_claim(redis: Connection) -> None:
    with pytest.raises(StorageUnavailableError, match="replicas confirmed"):
        await claim(RedisClaims(redis, BreakerLimits(replicas=1)), "INC-1", "INC-1/R1/0")


async def test_a_bucket_gives_its_burst_and_then_its_pace(redis: Connection, time: VirtualTime) -> None:
    pace = RedisPace(redis, {"post": (1.0, 2.0)})
    assert [await pace.take("post", "C1") for _ in range(2)] == [0.0, 0.0]
    assert await pace.take("post", "C1") == pytest.approx(1.0)
    await time.advance(1)
    assert await pace.take("post", "C1") == 0.0


async def test_no_answer_is_reported_and_nothing_is_taken_for_stored(redis_server: valkey.Embedded, tag: str) -> None:
    nobody = Connection.open(f"redis://127.0.0.1:{valkey.free_port()}/0", tag=tag)
    with pytest.raises(StorageUnavailableError):
        await RedisStore(nobody, owner="one").accept([builders.alert()], truncated=0)
    await nobody.close()


async def test_one_of_all_replicas_is_first(redis: Connection) -> None:
    one, two = RedisStore(redis, owner="one"), RedisStore(redis, owner="two")
    assert [await one.is_first("a"), await two.is_first("a"), await two.is_first("b")] == [True, False, True]
    await one.unclaim("a")
    assert await two.is_first("a")


async def test_many_incidents_are_read_in_a_few_round_trips(store: RedisStore, redis: Connection) -> None:
    names = [f"INC-{number}" for number in range(2 * RUNS_PER_READ)]
    for name in names[1:]:
        run = builders.run(incident_id=name, closed_at=builders.START)
        await redis.client.set(redis.key("run", name), StoredForm().text(run))
    await redis.client.config_resetstat()
    assert [run.incident_id for run in await store.load_all(names)] == names[1:], "the first is not stored"
    calls = {name: found["calls"] for name, found in (await redis.client.info("commandstats")).items()}
    assert calls["cmdstat_mget"] == 2
    assert "cmdstat_get" not in calls


async def test_only_incidents_that_mention_something_are_parsed(store: RedisStore, redis: Connection) -> None:
    for name, title in (("INC-1", 'says "no"'), ("INC-2", "says no")):
        run = builders.run(incident_id=name, title=title, closed_at=builders.START)
        await redis.client.set(redis.key("run", name), StoredForm().text(run))
    found = await store.load_all(["INC-1", "INC-2"], mentioning='"no"')
    assert [run.incident_id for run in found] == ["INC-1"]


async def test_a_call_that_was_claimed_before_takes_no_lease_for_an_incident_that_is_over(
    store: RedisStore, redis: Connection, claims: RedisClaims
) -> None:
    run = await opened(store)
    assert await claim(claims, "INC-1", "c1") == "claimed"
    await store.commit(moved(run, closed_at=1.0), consumed=1, entries=(), effects=())
    await claims.release("INC-1")
    # A bot that was frozen right before this goes on only now.
    assert await claim(claims, "INC-1", "c1") == "already_claimed"
    assert await redis.ask(redis.client.hgetall(redis.key("leases"))) == {}


async def test_an_alert_joins_a_run_only_as_long_as_it_is_the_one_that_was_known(store: RedisStore) -> None:
    run = await opened(store)
    assert await store.load(run.incident_id) == run
    known = store.known(run.target.key)
    assert known == run
    await store.commit(moved(run), consumed=1, entries=(), effects=())
    await store.accept([builders.alert(fingerprint="f9")], truncated=0)
    (entry,) = await store.intake(10)
    joining = Joining(entry, builders.bundle(), None)
    assert await store.join([joining], run) is None, "it has moved on"
    assert [each.entry_id for each in await store.intake(10)] == [entry.entry_id]
    newest = store.known(run.target.key)
    assert newest is not None
    assert newest.version == run.version + 1
    assert await store.join([joining], newest) is not None
    assert await store.intake(10) == []
    closed = moved(newest, closed_at=1.0)
    await store.commit(closed, consumed=1, entries=(), effects=())
    assert store.known(run.target.key) is None


async def test_the_run_that_was_seen_last_is_the_one_that_is_known(store: RedisStore, redis: Connection) -> None:
    """Another process has closed the one before, and opened another one."""
    run, other = await opened(store), RedisStore(redis, owner="two")
    assert await store.load(run.incident_id) == run
    await other.commit(moved(run, closed_at=1.0), consumed=1, entries=(), effects=())
    newer = run.with_(incident_id="INC-9")
    await other.accept([builders.alert(fingerprint="f9")], truncated=0)
    (entry,) = await other.intake(10)
    assert await other.route(entry, newer, "opens", bundle=builders.bundle())
    assert await store.load("INC-9") == newer
    assert store.known(run.target.key) == newer


async def test_an_alert_that_another_process_gave_to_the_incident_does_not_join_it_twice(store: RedisStore) -> None:
    run = await opened(store)
    await store.accept([builders.alert(fingerprint="f8"), builders.alert(fingerprint="f9")], truncated=0)
    first, second = [Joining(entry, builders.bundle(), None) for entry in await store.intake(10)]
    assert await store.join([first], run) is not None
    routed = await store.join([first, second], run)
    assert routed is not None
    assert routed.waiting is not None
    assert [event.event_id for event in routed.waiting.events] == [
        event.event_id for event in await store.inbox(run.incident_id)
    ]
    assert len(routed.waiting.events) == 3


async def test_the_playbook_that_a_joining_alert_offers_is_kept_even_where_redis_lost_it(
    store: RedisStore, redis: Connection
) -> None:
    run = await opened(store)
    other = builders.bundle("other", "d2")
    offer = Offer(playbook="other", title="Other", priority=1, digest=other.digest)
    for fingerprint in ("f8", "f9"):
        await store.accept([builders.alert(fingerprint=fingerprint)], truncated=0)
        (entry,) = await store.intake(10)
        assert await store.join([Joining(entry, other, offer)], run) is not None
        assert await store.bundle(other.digest) is not None
        await redis.ask(redis.client.delete(redis.key("bundle", other.digest)))
    alerts = [event for event in await store.inbox(run.incident_id) if isinstance(event, AlertChanged)]
    assert [event.offer for event in alerts] == [None, offer, offer]


async def test_only_the_runs_that_were_loaded_last_are_kept(store: RedisStore) -> None:
    run = await opened(store)
    assert await store.load(run.incident_id) is await store.load(run.incident_id), "the same text is parsed once"
    for number in range(2, RUNS_KEPT + 2):
        await store.accept([builders.alert(fingerprint=f"f{number}", deployment=f"d{number}")], truncated=0)
        (entry,) = await store.intake(10)
        other = builders.run(incident_id=f"INC-{number}", target=run.target.model_copy(update={"name": f"d{number}"}))
        assert await store.route(entry, other, "opens", bundle=builders.bundle())
        await store.load(f"INC-{number}")
    assert len(store._kept) == RUNS_KEPT
    assert run.incident_id not in store._kept
