"""The storage at the edges of its promises: to the second, after interleaved writes, and without leftovers."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.redis.claims import NODE_BREAKER, BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.store import RedisStore, StoreLimits
from bot.adapters.redis.summary import CLAIM_SECONDS, RedisSummary
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.incidents.effect import ReadSignals, ShowInSlack
from bot.domain.incidents.event import Commanded, Due, OpenedByHand, Progressed
from bot.domain.incidents.run import Run
from bot.domain.incidents.stored_form import FORMS, StoredForm
from bot.domain.kernel.errors import StaleRunError
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.flow.ports.storage import Intake, Owed, Settled
from tests import builders
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
SHOW = ShowInSlack(effect_id="show")
READ = ReadSignals(effect_id="v1/read", visit=1, state="look", names=())
DAY = 24 * 3600


@pytest.fixture
def store(redis: Connection) -> RedisStore:
    return RedisStore(redis, owner="one", limits=StoreLimits(retention_seconds=DAY))


@pytest.fixture
def two(redis: Connection) -> RedisStore:
    """Another process."""
    return RedisStore(redis, owner="two")


def due(event_id: str) -> Due:
    return Due(event_id=event_id, deadline="x", due_at=1.0)


async def arrived(store: RedisStore, fingerprint: str) -> Intake:
    await store.accept([builders.alert(fingerprint=fingerprint)], truncated=0)
    *_, entry = await store.intake(10)
    return entry


async def opened(store: RedisStore, incident_id: str = "INC-1") -> Run:
    run = builders.run(incident_id=incident_id)
    assert await store.route(await arrived(store, incident_id), run, "opens", bundle=builders.bundle())
    return run


async def committed(store: RedisStore, run: Run, *effects: Any, consumed: int = 0, **fields: Any) -> Run:
    after = run.with_(version=run.version + 1, **builders.nested(fields, run.visit, run.findings))
    await store.commit(after, consumed=consumed, entries=(), effects=effects)
    return after


async def taken(store: RedisStore, effect_id: str = "show") -> Owed:
    owed = await store.take("INC-1", effect_id)
    assert owed is not None
    return owed


async def effects_of(redis: Connection) -> list[str]:
    return sorted(map(str, await redis.client.hkeys(redis.key("effects", "INC-1"))))


# --- alerts and events ------------------------------------------------------------------------------------------------


async def test_a_repeat_does_not_lengthen_how_long_an_alert_is_known(store: RedisStore, time: VirtualTime) -> None:
    await store.accept([builders.alert()], truncated=0)
    await time.advance(3000)
    assert await store.accept([builders.alert()], truncated=0) == 0
    await time.advance(700)
    assert await store.accept([builders.alert()], truncated=0) == 1


async def test_an_event_that_waits_makes_its_incident_pending(store: RedisStore, time: VirtualTime) -> None:
    await committed(store, await opened(store), consumed=1)
    await time.advance(2)
    assert await store.pending(10) == [], "nothing waits"
    assert await store.append("INC-1", [due("d1")])
    await time.advance(2)
    assert await store.pending(10) == ["INC-1"]


async def test_all_events_of_one_call_are_stored_in_order(store: RedisStore) -> None:
    await committed(store, await opened(store), consumed=1)
    await store.append("INC-1", [due("d1"), due("d2"), due("d3")])
    assert [event.event_id for event in await store.inbox("INC-1")] == ["d1", "d2", "d3"]


async def test_a_deadline_that_was_cleared_wakes_nobody(store: RedisStore, time: VirtualTime) -> None:
    run = await committed(store, await opened(store), consumed=1, deadlines={"q": time.now() + 60})
    await committed(store, run, deadlines={})
    await time.advance(61)
    assert await store.pending(10) == []


async def test_a_later_event_does_not_make_an_earlier_one_wait_longer(store: RedisStore, time: VirtualTime) -> None:
    await committed(store, await opened(store), consumed=1)
    await store.append("INC-1", [due("d1")])
    await time.advance(1)
    await store.append("INC-1", [due("d2")])
    assert await store.pending(10) == ["INC-1"]


async def test_an_event_that_is_known_already_makes_nothing_pending(store: RedisStore, time: VirtualTime) -> None:
    run = await opened(store)
    await store.append("INC-1", [due("d1")])
    await committed(store, run, consumed=2)
    assert await store.append("INC-1", [due("d1")])
    await time.advance(2)
    assert (await store.pending(10), await store.inbox("INC-1")) == ([], [])


async def test_what_a_commit_did_not_consume_keeps_the_incident_pending(store: RedisStore, time: VirtualTime) -> None:
    run = await opened(store)
    await store.append("INC-1", [due("d1")])
    await committed(store, run, consumed=1)
    await time.advance(2)
    assert await store.pending(10) == ["INC-1"]
    assert [event.event_id for event in await store.inbox("INC-1")] == ["d1"]


# --- commits ----------------------------------------------------------------------------------------------------------


async def test_a_commit_that_is_refused_says_why(store: RedisStore) -> None:
    run = await opened(store)
    with pytest.raises(StaleRunError, match="missing"):
        await committed(store, builders.run(incident_id="INC-9"))
    await committed(store, run)
    with pytest.raises(StaleRunError, match="stale"):
        await committed(store, run)


async def test_entries_and_effects_of_one_commit_are_not_mixed_up(store: RedisStore, redis: Connection) -> None:
    run = (await opened(store)).with_(version=1)
    notes = [Entry(kind="note", at=1.0, text=text) for text in ("a", "b", "c")]
    await store.commit(run, consumed=1, entries=chain(notes, head=GENESIS, length=0), effects=[SHOW, READ])
    assert [item.entry.text for item in await store.timeline("INC-1")] == ["a", "b", "c"]
    assert await effects_of(redis) == ["show", "v1/read"]


async def test_an_effect_of_an_earlier_visit_leaves_nothing_behind(store: RedisStore, redis: Connection) -> None:
    run = await committed(store, await opened(store), READ, SHOW, number=1)
    run = await committed(store, run, number=1)
    assert await effects_of(redis) == ["show", "v1/read"], "of this visit it stays"
    await committed(store, run, number=2)
    member = "INC-1|v1/read"
    assert await effects_of(redis) == ["show"]
    assert await redis.client.zscore(redis.key("owed"), member) is None
    assert await redis.client.hget(redis.key("owners"), member) is None


async def test_a_commit_takes_what_it_owes_as_if_each_was_taken(
    store: RedisStore, two: RedisStore, time: VirtualTime
) -> None:
    run = builders.in_visit((await opened(store)).with_(version=1), number=1)
    first = await store.commit(run, consumed=1, entries=(), effects=[SHOW, READ])
    assert [owed.effect for owed in first.taken] == [SHOW, READ]
    assert await taken(store) == first.taken[0]
    assert (await store.settle(first.taken[1], ())).again is None
    await time.advance(14)
    again = await store.commit(run.with_(version=2), consumed=0, entries=(), effects=[SHOW])
    await time.advance(14)
    assert await two.take("INC-1", "show") is None, "the lease is as long again"
    assert (await store.settle(first.taken[0], ())).again is not None
    assert again.taken[0].version == 2


async def test_a_commit_does_not_take_what_another_process_performs(
    store: RedisStore, two: RedisStore, time: VirtualTime
) -> None:
    run = await committed(store, await opened(store), SHOW)
    await time.advance(16)
    theirs = await taken(two)
    again = await store.commit(run.with_(version=run.version + 1), consumed=0, entries=(), effects=[SHOW])
    assert again.taken == []
    assert await store.take("INC-1", "show") is None
    assert await two.renew(theirs)


async def test_a_commit_shows_what_waits_after_it(store: RedisStore) -> None:
    run = (await opened(store)).with_(version=1)
    await store.append("INC-1", [due("d1")])
    after = await store.commit(run, consumed=1, entries=(), effects=())
    assert (after.waiting.run, [event.event_id for event in after.waiting.events]) == (run, ["d1"])
    assert after.waiting == await store.look("INC-1")


async def test_an_effect_that_was_put_back_and_is_owed_again_is_due_at_once(store: RedisStore) -> None:
    run = await committed(store, await opened(store), SHOW)
    await store.put_back(await taken(store), after_seconds=500, failed=True)
    await committed(store, run, SHOW)
    assert (await taken(store)).attempts == 0


async def test_a_lease_lasts_to_the_part_of_a_second(store: RedisStore, two: RedisStore, time: VirtualTime) -> None:
    run = await opened(store)
    await time.advance(0.7)
    await committed(store, run, SHOW)
    await time.advance(14.9)
    assert await two.take("INC-1", "show") is None
    await time.advance(0.2)
    assert await two.take("INC-1", "show") is not None


async def test_an_incident_that_is_closed_does_not_take_its_target_from_the_next_one(store: RedisStore) -> None:
    run = await committed(store, await opened(store), consumed=1, closed_at=1.0)
    await opened(store, "INC-2")
    await committed(store, run, lead="ana")
    assert await store.open_incident(run.target.key) == "INC-2"


async def test_a_closed_incident_is_kept_for_its_time_and_an_open_one_for_good(
    store: RedisStore, redis: Connection
) -> None:
    names = ("run", "inbox", "timeline", "effects", "known")
    run = (await opened(store)).with_(version=1, closed_at=1.0)
    await store.append("INC-1", [due("d1")])
    notes = chain([Entry(kind="note", at=1.0, text="a")], head=GENESIS, length=0)
    await store.commit(run, consumed=0, entries=notes, effects=[SHOW])
    left = [await redis.client.ttl(redis.key(name, "INC-1")) for name in names]
    assert all(0 < seconds <= DAY for seconds in left), left
    await committed(store, run, closed_at=None)
    assert [await redis.client.ttl(redis.key(name, "INC-1")) for name in names] == [-1] * len(names)


# --- effects ----------------------------------------------------------------------------------------------------------


async def test_what_was_voided_while_it_was_performed_is_not_owed_when_it_is_put_back(
    store: RedisStore, time: VirtualTime
) -> None:
    run = await committed(store, await opened(store), READ, number=1)
    owed = await taken(store, "v1/read")
    await committed(store, run, number=2)
    await store.put_back(owed, after_seconds=0, failed=True)
    await time.advance(60)
    assert await store.owed_now(10) == []


async def test_what_was_owed_anew_meanwhile_has_failed_never(store: RedisStore, time: VirtualTime) -> None:
    run = await committed(store, await opened(store), SHOW)
    owed = await taken(store)
    await committed(store, run, SHOW)
    await store.put_back(owed, after_seconds=5, failed=True)
    assert await store.owed_now(10) == [("INC-1", "show", "cards")], "due at once"
    assert (await taken(store)).attempts == 0


async def test_what_is_put_back_is_free_after_its_time_to_the_part_of_a_second(
    store: RedisStore, two: RedisStore, time: VirtualTime
) -> None:
    await committed(store, await opened(store), SHOW)
    await time.advance(0.7)
    await store.put_back(await taken(store), after_seconds=5, failed=False)
    await time.advance(4.9)
    assert await two.take("INC-1", "show") is None
    await time.advance(0.2)
    assert (await taken(two)).attempts == 0


async def test_what_is_settled_leaves_nothing_behind(store: RedisStore, redis: Connection, time: VirtualTime) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    await store.settle(await taken(store), [Progressed(event_id="e1", effect_id="show", text="shown")])
    assert await effects_of(redis) == []
    assert await redis.client.zscore(redis.key("owed"), "INC-1|show") is None
    assert await redis.client.hget(redis.key("owners"), "INC-1|show") is None
    await time.advance(2)
    assert await store.pending(10) == ["INC-1"], "its outcome waits"


async def test_all_events_of_an_outcome_are_kept_in_order(store: RedisStore) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    await store.settle(await taken(store), [due("d1"), due("d2"), due("d3")])
    assert [event.event_id for event in await store.inbox("INC-1")] == ["d1", "d2", "d3"]


@pytest.mark.open_index_is_broken("the run is deleted by hand, as if its retention had ended")
async def test_an_outcome_of_an_incident_that_is_gone_is_not_kept(store: RedisStore, redis: Connection) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    owed = await taken(store)
    await redis.client.delete(redis.key("run", "INC-1"), redis.key("inbox", "INC-1"))
    await store.settle(owed, [due("d1")])
    assert await store.inbox("INC-1") == []


async def test_an_outcome_does_not_make_what_waits_already_wait_longer(store: RedisStore, time: VirtualTime) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    await store.append("INC-1", [due("d1")])
    await time.advance(1)
    await store.settle(await taken(store), [due("d2")])
    assert await store.pending(10) == ["INC-1"]


async def shown(redis: Connection) -> Any:
    return await redis.client.hgetall(redis.key("shown", "INC-1"))


async def test_what_was_shown_is_kept_with_the_end_of_the_effect(store: RedisStore, redis: Connection) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    await store.settle(await taken(store), [due("d1")], {"card": "{}", "closed:3": "{}"})
    assert await shown(redis) == {"card": "{}", "closed:3": "{}"}
    assert [event.event_id for event in await store.inbox("INC-1")] == ["d1"]


async def test_what_was_shown_under_a_lost_lease_replaces_nothing_newer(
    store: RedisStore, two: RedisStore, redis: Connection, time: VirtualTime
) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    owed = await taken(store)
    await time.advance(16)
    await two.settle(await taken(two), [], {"card": "new"})
    await store.settle(owed, [], {"card": "old"})
    assert await shown(redis) == {"card": "new"}


@pytest.mark.open_index_is_broken("the run is deleted by hand, as if its retention had ended")
async def test_nothing_that_was_shown_is_kept_of_an_incident_that_is_gone(store: RedisStore, redis: Connection) -> None:
    await committed(store, await opened(store), SHOW, consumed=1)
    owed = await taken(store)
    await redis.client.delete(redis.key("run", "INC-1"))
    await store.settle(owed, [], {"card": "{}"})
    assert await shown(redis) == {}


async def owed_twice(store: RedisStore) -> tuple[Owed, Run]:
    """The card as it was taken, which the run has owed again since; and that run before it did."""
    run = await committed(store, await opened(store), SHOW)
    owed = await taken(store)
    await committed(store, run, SHOW)
    return owed, run


async def test_what_was_owed_again_while_it_was_settled_is_taken_until_its_lease_ends(
    store: RedisStore, two: RedisStore, time: VirtualTime
) -> None:
    owed, _ = await owed_twice(store)
    again = (await store.settle(owed, [])).again
    assert again == await store.take("INC-1", "show")
    await time.advance(14)
    assert await two.take("INC-1", "show") is None
    await time.advance(2)
    assert await two.take("INC-1", "show") is not None


async def test_what_was_owed_again_by_a_newer_version_is_free_at_once_for_that_version(
    store: RedisStore, redis: Connection, two: RedisStore
) -> None:
    owed, run = await owed_twice(store)
    await redis.client.set(redis.key("run", "INC-1"), StoredForm(max(FORMS) + 1).text(run))
    assert await store.settle(owed, []) == Settled(again=None)
    assert list(await two.owed_now(10)) == [("INC-1", "show", "cards")]


async def test_a_lease_is_held_on_for_as_long_again(store: RedisStore, two: RedisStore, time: VirtualTime) -> None:
    await committed(store, await opened(store), SHOW)
    owed = await taken(store)
    await time.advance(14)
    assert await store.renew(owed)
    await time.advance(14)
    assert await two.take("INC-1", "show") is None
    await time.advance(2)
    assert await two.take("INC-1", "show") is not None


async def test_an_owed_effect_whose_incident_is_gone_is_owed_no_more(
    store: RedisStore, redis: Connection, time: VirtualTime
) -> None:
    await committed(store, await opened(store), SHOW)
    await redis.client.delete(redis.key("effects", "INC-1"))
    assert await store.take("INC-1", "show") is None
    await time.advance(60)
    assert await store.owed_now(10) == []
    assert await redis.client.hget(redis.key("owners"), "INC-1|show") is None


async def test_what_was_taken_again_is_leased_for_as_long_again(
    store: RedisStore, two: RedisStore, time: VirtualTime
) -> None:
    await committed(store, await opened(store), SHOW)
    await time.advance(14.5)
    await taken(store)
    await time.advance(14.9)
    assert await two.take("INC-1", "show") is None
    await time.advance(0.1)
    assert await two.take("INC-1", "show") is not None, "free to the moment"


# --- routing ----------------------------------------------------------------------------------------------------------


async def test_a_bundle_is_stored_once_and_only_where_there_is_one(store: RedisStore, redis: Connection) -> None:
    run = await opened(store)
    assert await store.route(await arrived(store, "f2"), run, "extends", bundle=builders.bundle("other"))
    assert await store.bundle(run.digest) == {"source": "playbook"}
    await committed(store, run, consumed=2, closed_at=1.0)
    second = builders.run(incident_id="INC-2")
    assert await store.route(await arrived(store, "f3"), second, "opens", bundle=builders.bundle("changed since"))
    assert await store.bundle(run.digest) == {"source": "playbook"}, "a digest names one text"


async def test_a_bundle_that_redis_lost_is_stored_again(store: RedisStore, redis: Connection) -> None:
    run = await opened(store)
    await redis.client.delete(redis.key("bundle", run.digest))
    second = builders.run(incident_id="INC-2", target=builders.TARGET.model_copy(update={"name": "other"}))
    assert await store.route(await arrived(store, "f3"), second, "opens", bundle=builders.bundle())
    assert await store.bundle(run.digest) == {"source": "playbook"}
    assert await store.load("INC-2") is not None


async def test_an_alert_that_joins_leaves_the_run_as_it_is(store: RedisStore) -> None:
    run = await opened(store)
    now = await committed(store, run, consumed=1, lead="ana")
    assert await store.route(
        await arrived(store, "f2"), run.with_(digest="of another"), "extends", bundle=builders.bundle()
    )
    assert await store.load("INC-1") == now
    assert await store.bundle("of another") is None


async def test_an_alert_that_is_accepted_again_is_another_event_of_its_incident(
    store: RedisStore, time: VirtualTime
) -> None:
    """The run decides whether it says anything new: a closed one may have to open again."""
    run = await opened(store)
    await time.advance(4000)
    assert await store.route(await arrived(store, "INC-1"), run, "extends", bundle=builders.bundle())
    assert len(await store.inbox("INC-1")) == 2
    assert await store.intake(10) == []


@pytest.mark.parametrize("how", ["reopens", "notifies"])
async def test_only_the_last_incident_of_a_target_hears_of_it_after_its_end(store: RedisStore, how: Any) -> None:
    run = await opened(store)
    assert not await store.route(await arrived(store, "f2"), run, how, bundle=builders.bundle()), "it is open"
    await committed(store, run, closed_at=1.0, consumed=1)
    stranger = builders.run(incident_id="INC-7")
    assert not await store.route(await arrived(store, "f3"), stranger, how, bundle=builders.bundle())
    entry = await arrived(store, "f4")
    assert await store.route(entry, run, how, bundle=builders.bundle())
    assert await store.open_incident(run.target.key) == ("INC-1" if how == "reopens" else None)
    assert [event.kind for event in await store.inbox("INC-1")] == ["alert_changed"]


async def test_an_alert_goes_only_to_the_incident_that_is_open(store: RedisStore) -> None:
    await opened(store)
    entry = await arrived(store, "f2")
    assert not await store.route(entry, builders.run(incident_id="INC-2"), "extends", bundle=builders.bundle())
    assert len(await store.intake(10)) == 1


async def test_a_routed_alert_makes_its_incident_pending_and_listed(store: RedisStore, time: VirtualTime) -> None:
    run = await opened(store)
    assert await store.recent_incidents(10) == ["INC-1"]
    await time.advance(1)
    assert await store.route(await arrived(store, "f2"), run, "extends", bundle=builders.bundle())
    assert await store.pending(10) == ["INC-1"], "since the first alert"


async def test_one_submission_opens_one_incident(store: RedisStore, time: VirtualTime) -> None:
    event = OpenedByHand(event_id="opened/1", user="ana", fields={})
    first, again = builders.run(), builders.run(incident_id="INC-2")
    assert await store.open(first, event, bundle=builders.bundle(), submission_id="s1") == "INC-1"
    assert await store.open(again, event, bundle=builders.bundle(), submission_id="s1") == "INC-1"
    assert await store.open(again, event, bundle=builders.bundle(), submission_id="s2") is None, "its target is taken"
    assert await store.load("INC-2") is None
    assert len(await store.inbox("INC-1")) == 1


async def test_a_person_reopens_only_what_is_the_last_and_closed(store: RedisStore) -> None:
    run = await opened(store)
    event = Commanded(event_id="c1", command="reopen", user="ana", text="again")
    assert not await store.reopen(run, event)
    await committed(store, run, closed_at=1.0, consumed=1)
    assert await store.reopen(run, event)
    assert await store.open_incident(run.target.key) == "INC-1"
    assert [one.event_id for one in await store.inbox("INC-1")] == ["c1"]


async def test_an_alert_that_was_kept_as_unmatched_is_kept_once(store: RedisStore) -> None:
    entry = await arrived(store, "f1")
    for _ in range(2):
        await store.keep_unmatched(entry, "no playbook wants it")
    assert len(await store.unmatched(10)) == 1
    assert await store.intake(10) == []


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def claims(redis: Connection) -> RedisClaims:
    return RedisClaims(redis, BreakerLimits(disruptive_changes=2))


async def claim(claims: RedisClaims, incident: str, call: str, **more: Any) -> str:
    wanted: dict[str, Any] = {
        "workload_key": "w",
        "lease_keys": ["workload/w"],
        "disruption": f"{incident}/{call.partition('/')[0]}",
    } | more
    return await claims.claim(incident, f"{incident}/{call}", **wanted)


async def takes(claims: RedisClaims, number: int, name: str, **fields: Any) -> str:
    """The claim of one node of a hundred, by an incident and on a workload of its own."""
    node = NodeDisruption(name, **({"gpus": 8, "fleet_gpus": 800} | fields))
    return await claim(claims, f"INC-{number}", "R1/0", workload_key=f"w{number}", lease_keys=[], node=node)


async def test_a_lease_is_free_in_the_moment_in_which_it_ends(claims: RedisClaims, time: VirtualTime) -> None:
    await claim(claims, "INC-1", "R1/0")
    await time.advance(599)
    assert await claim(claims, "INC-2", "R1/0") == "lease_held"
    await time.advance(1)
    assert await claim(claims, "INC-2", "R1/0") == "claimed"


async def test_room_is_free_again_before_a_workload_is(claims: RedisClaims, time: VirtualTime) -> None:
    await claim(claims, "INC-1", "R1/0", lease_keys=["workload/w", "room/c"])
    await time.advance(29)
    assert await claim(claims, "INC-2", "R1/0", lease_keys=["room/c"]) == "room_held"
    await time.advance(1)
    assert await claim(claims, "INC-2", "R1/0", lease_keys=["room/c"]) == "claimed"
    assert await claim(claims, "INC-3", "R1/0", lease_keys=["workload/w"]) == "lease_held"


async def test_a_change_counts_from_its_first_call(claims: RedisClaims, time: VirtualTime) -> None:
    await claim(claims, "INC-1", "R1/0")
    await time.advance(3000)
    await claim(claims, "INC-1", "R1/1")
    await claim(claims, "INC-1", "R2/0")
    assert await claim(claims, "INC-1", "R3/0") == "breaker_open"
    await time.advance(600)
    assert await claim(claims, "INC-1", "R3/0") == "claimed"


async def test_a_node_counts_from_its_first_call_for_an_hour_to_the_second(
    claims: RedisClaims, time: VirtualTime
) -> None:
    await takes(claims, 1, "a")
    await time.advance(1000)
    await takes(claims, 2, "a")
    await takes(claims, 3, "b")
    await time.advance(2599)
    assert await takes(claims, 4, "c") == "node_breaker_open"
    await time.advance(1)
    assert await takes(claims, 4, "c") == "claimed"


async def test_a_node_that_is_taken_again_after_the_hour_counts_again(claims: RedisClaims, time: VirtualTime) -> None:
    await takes(claims, 1, "a")
    await time.advance(3601)
    assert [await takes(claims, 2, "b"), await takes(claims, 3, "a")] == ["claimed", "claimed"]
    assert await takes(claims, 4, "c") == "node_breaker_open"


async def test_each_cluster_has_its_own_node_breaker(claims: RedisClaims) -> None:
    east, west = {"cluster": "east", "fleet_gpus": 80}, {"cluster": "west", "fleet_gpus": 80}
    assert await takes(claims, 1, "a", **east) == "claimed"
    assert await takes(claims, 2, "b", **west) == "claimed"
    assert await takes(claims, 3, "b", **east) == "too_many_gpus"
    await claims.reset_breakers("w1", cluster="west")
    assert await takes(claims, 3, "b", **east) == "too_many_gpus"
    await claims.reset_breakers("w1", cluster="east")
    assert await takes(claims, 3, "b", **east) == "claimed"


async def test_a_node_weighs_only_until_the_cluster_must_show_it(claims: RedisClaims, time: VirtualTime) -> None:
    await takes(claims, 1, "a", fleet_gpus=80)
    await time.advance(599)
    assert await takes(claims, 2, "b", fleet_gpus=80) == "too_many_gpus"
    await time.advance(1)
    assert await takes(claims, 2, "b", fleet_gpus=80) == "claimed"


async def test_a_node_that_the_cluster_shows_already_is_not_weighed_twice(claims: RedisClaims) -> None:
    await takes(claims, 1, "a", fleet_gpus=160)
    assert await takes(claims, 2, "b", fleet_gpus=160, cordoned={"a": 8}) == "claimed"


async def test_nodes_with_one_accelerator_weigh_too(claims: RedisClaims) -> None:
    small = {"gpus": 1, "fleet_gpus": 10}
    assert await takes(claims, 1, "a", **small) == "claimed"
    assert await takes(claims, 2, "b", **small) == "too_many_gpus"


async def test_what_the_breakers_counted_is_forgotten_by_itself(claims: RedisClaims, redis: Connection) -> None:
    await takes(claims, 1, "a")
    for key in (redis.key("breaker", "w1"), redis.key(NODE_BREAKER, "")):
        assert 0 < await redis.client.ttl(key) <= 3600


async def test_releasing_gives_back_ones_own_leases_only(claims: RedisClaims) -> None:
    await claim(claims, "INC-1", "R1/0")
    await claim(claims, "INC-2", "R1/0", lease_keys=["workload/v"])
    await claims.release("INC-1")
    assert await claim(claims, "INC-3", "R1/0", lease_keys=["workload/v"], disruption="") == "lease_held"
    assert await claim(claims, "INC-3", "R1/0", disruption="") == "claimed"


# --- the claim of the summary -----------------------------------------------------------------------------------------


async def test_the_claim_of_the_summary_is_one_process_s_to_the_part_of_a_second(
    redis: Connection, time: VirtualTime
) -> None:
    summary = RedisSummary(redis, (1, 1.0))
    await time.advance(0.7)
    claim = await summary.claim()
    assert claim
    await time.advance(CLAIM_SECONDS - 0.1)
    assert await summary.claim() == ""
    await time.advance(0.1)
    other = await summary.claim()
    assert other not in ("", claim)
    assert not await summary.keep("1.1", claim), "it was lost"
    assert await summary.keep("1.1", other)
    assert await summary.claim() == "", "what is kept does not end the claim"
    await summary.release(other)
    assert await summary.claim()


# --- pace -------------------------------------------------------------------------------------------------------------


async def test_a_bucket_fills_at_its_own_rate_and_says_how_long_that_takes(
    redis: Connection, time: VirtualTime
) -> None:
    pace = RedisPace(redis, {"post": (2.0, 1.0)})
    assert await pace.take("post", "C1") == 0.0
    assert await pace.take("post", "C1") == pytest.approx(0.5)
    await time.advance(0.25)
    assert await pace.take("post", "C1") == pytest.approx(0.25)
    assert await pace.take("post", "C2") == 0.0, "another channel has a bucket of its own"
    await time.advance(0.25)
    assert await pace.take("post", "C1") == 0.0
    await time.advance(60)
    assert [await pace.take("post", "C1") for _ in range(2)] == [0.0, pytest.approx(0.5)], "no more than its burst"
