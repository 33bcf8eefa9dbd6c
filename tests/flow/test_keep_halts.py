"""The kill switch reaches every open incident, even if a process dies in between."""

from __future__ import annotations

import pytest

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.event import ALL, Commanded
from bot.domain.incidents.run import ActiveChange, Halt
from bot.flow.keep_halts import AT_A_TIME, CHECKS_PER_INCIDENT, KeepHalts
from bot.flow.ports.storage import EVERYTHING
from bot.flow.receive_input import ReceiveInput
from tests import builders
from tests.domain.incidents.machine.steps import Story
from tests.kit.opened import command, opened

pytestmark = pytest.mark.fast


class Changes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def claims(redis: Connection) -> RedisClaims:
    return RedisClaims(redis)


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def halts(store: RedisStore, claims: RedisClaims, changes: Changes, woken: list[str]) -> KeepHalts:
    return KeepHalts(store, claims, woken.append, changes)


@pytest.fixture
def hear(store: RedisStore, claims: RedisClaims, woken: list[str]) -> ReceiveInput:
    return ReceiveInput(store, store, claims, woken.append)


async def commands(store: RedisStore, incident: str) -> list[tuple[str, str]]:
    inbox = await store.inbox(incident)
    return [(event.command, event.user) for event in inbox if isinstance(event, Commanded)]


async def test_a_halt_of_all_that_died_halfway_reaches_every_incident_in_the_next_round(
    store: RedisStore, claims: RedisClaims, halts: KeepHalts, woken: list[str]
) -> None:
    await opened(store, "INC-1", "INC-2")
    await claims.set_halt(EVERYTHING, by="ana")
    await halts.once()
    assert [await commands(store, incident) for incident in ("INC-1", "INC-2")] == [[("halt", "ana")]] * 2
    assert woken == ["INC-1", "INC-2"]


async def test_a_resume_of_all_that_died_halfway_reaches_every_incident_in_the_next_round(
    store: RedisStore, claims: RedisClaims, hear: ReceiveInput, halts: KeepHalts
) -> None:
    await opened(store, "INC-1", "INC-2")
    await hear.command(command("halt"), "INC-2")
    await hear.halt_all("ben")
    await halts.once()
    await hear.resume_all("cat")
    await halts.once()
    assert await commands(store, "INC-1") == [("halt", "ben"), ("resume", "cat")]
    assert await commands(store, "INC-2") == [("halt", "ana"), ("halt", "ben"), ("halt", "ana")]


async def test_a_halt_of_one_and_a_halt_of_all_are_distinguished_since_another_word_lifts_it(
    store: RedisStore, hear: ReceiveInput, halts: KeepHalts
) -> None:
    await opened(store, "INC-1")
    await hear.command(command("halt"), "INC-1")
    await hear.halt_all("ana")
    await halts.once()
    await hear.resume_all("ana")
    await halts.once()
    events = [event for event in await store.inbox("INC-1") if isinstance(event, Commanded)]
    assert [(event.user, event.to) for event in events] == [("ana", ""), ("ana", "all"), ("ana", "")]


async def test_a_new_bot_finds_what_an_old_one_left_half_notified(
    store: RedisStore, claims: RedisClaims, hear: ReceiveInput, halts: KeepHalts
) -> None:
    await opened(store, "INC-1")
    await hear.halt_all("ben")
    await halts.once()
    await hear.resume_all("ben")
    new = KeepHalts(store, claims, lambda incident: None, lambda: None)
    await new.once()
    assert await commands(store, "INC-1") == [("halt", "ben"), ("resume", "ben")]


async def test_an_incident_that_opens_while_everything_is_halted_says_so(
    store: RedisStore, claims: RedisClaims, halts: KeepHalts
) -> None:
    await claims.set_halt(EVERYTHING, by="ana")
    await halts.once()
    await opened(store, "INC-1")
    await halts.once()
    assert await commands(store, "INC-1") == [("halt", "ana")]


def test_resuming_one_incident_while_everything_is_halted_does_not_make_its_card_say_otherwise() -> None:
    story = Story().asked().says("halt", user="ben", to=ALL).says("resume")
    assert story.run.halt == Halt(by="ben", with_all=True)
    assert "/incident resume all" in str(story.run.posts[-1].data)
    assert story.says("resume", user="ben", to=ALL).run.halt is None


async def test_a_halt_of_all_is_one_write_and_reaches_incidents_a_bounded_number_a_round(
    store: RedisStore, hear: ReceiveInput, halts: KeepHalts, woken: list[str]
) -> None:
    many = [f"INC-{number}" for number in range(1, AT_A_TIME + 3)]
    await opened(store, *many)
    await hear.halt_all("ana", "the rack burns")
    assert woken == []
    for reached in (AT_A_TIME, AT_A_TIME + 2, AT_A_TIME + 2):
        await halts.once()
        assert len(woken) == reached
    assert [await commands(store, incident) for incident in (many[0], many[-1])] == [[("halt", "ana")]] * 2
    events = [event for event in await store.inbox("INC-1") if isinstance(event, Commanded)]
    assert [(event.text, event.to) for event in events] == [("the rack burns", ALL)]


async def test_a_call_that_was_stopped_in_the_moment_of_the_resume_goes_on_too(
    store: RedisStore, hear: ReceiveInput, halts: KeepHalts
) -> None:
    await opened(store, "INC-1")
    await hear.halt_all("ana")
    await hear.resume_all("ben")
    await halts.once()
    assert await commands(store, "INC-1") == []
    run = await store.load("INC-1")
    assert run is not None
    stopped = ActiveChange(state="grow", verb="scale", halted=True)
    await store.commit(run.with_(version=run.version + 1, change=stopped), consumed=1, entries=(), effects=())
    await halts.once()
    assert await commands(store, "INC-1") == [("resume", "ben")]


async def test_while_much_is_under_way_no_incident_is_notified_of_a_halt_and_all_are_after_it(
    store: RedisStore, claims: RedisClaims, hear: ReceiveInput, woken: list[str]
) -> None:
    busy = [True, False]
    halts = KeepHalts(store, claims, woken.append, lambda: None, lambda: busy.pop(0))
    await opened(store, "INC-1")
    await hear.halt_all("ana")
    await halts.once()
    assert await commands(store, "INC-1") == []
    await halts.once()
    assert await commands(store, "INC-1") == [("halt", "ana")]


async def test_a_halt_of_one_incident_looks_at_no_other(
    store: RedisStore, hear: ReceiveInput, halts: KeepHalts, woken: list[str]
) -> None:
    await opened(store, "INC-1", "INC-2")
    for _ in range(CHECKS_PER_INCIDENT):
        await halts.once()
    run = await store.load("INC-2")
    assert run is not None
    differing = run.with_(version=1, halt=Halt(by="nobody"))
    await store.commit(differing, consumed=1, entries=(), effects=())
    await hear.command(command("halt"), "INC-1")
    await halts.once()
    assert await commands(store, "INC-2") == []


async def test_while_the_switch_stands_nobody_is_notified_twice_also_by_two_bots(
    store: RedisStore, claims: RedisClaims, halts: KeepHalts, changes: Changes, woken: list[str]
) -> None:
    await opened(store, "INC-1")
    await claims.set_halt(EVERYTHING, by="ana")
    other = KeepHalts(store, claims, woken.append, changes)
    for bot in (halts, other, halts, other):
        await bot.once()
    assert await commands(store, "INC-1") == [("halt", "ana")]
    assert changes.count == 2


async def test_a_call_that_was_stopped_before_its_run_received_the_halt_goes_on_when_all_is_resumed(
    store: RedisStore, hear: ReceiveInput, halts: KeepHalts
) -> None:
    await opened(store, "INC-1")
    run = await store.load("INC-1")
    assert run is not None
    stopped = ActiveChange(state="grow", verb="scale", halted=True)
    await store.commit(run.with_(version=run.version + 1, change=stopped), consumed=1, entries=(), effects=())
    await hear.resume_all("ben")
    await halts.once()
    assert await commands(store, "INC-1") == [("resume", "ben")]


def test_a_halt_that_is_notified_twice_stands_on_the_timeline_once() -> None:
    story = Story().asked().says("halt").says("halt").says("resume").says("resume")
    assert [len(story.texts(kind)) for kind in ("halt", "resume")] == [1, 1]
    assert story.run.halt is None


def test_a_press_may_be_received_before_the_bot_learns_that_its_message_stands() -> None:
    plan = PlanResult(outcome="planned", plan=builders.plan())
    story = Story().opened().reads(0.95).chooses("grow").planned(plan).presses("approve")
    assert story.run.requests[story.request].status == "granted"
    story.posted().settles()
    assert story.run.requests[story.request].outcome == "done"
    assert story.run.requests[story.request].posted_at is None
    assert not [name for name in story.run.deadlines if name.startswith("request:")]
