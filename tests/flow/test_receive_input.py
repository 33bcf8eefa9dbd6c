"""Clicks and commands are stored first, and a halt counts before any run has received it."""

from __future__ import annotations

import pytest

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import InSlack
from bot.flow.keep_halts import KeepHalts
from bot.flow.receive_input import OPEN_READ, ReceiveInput
from tests import builders
from tests.kit.opened import command, opened

pytestmark = pytest.mark.fast


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def claims(redis: Connection) -> RedisClaims:
    return RedisClaims(redis)


@pytest.fixture
def inputs(store: RedisStore, claims: RedisClaims, woken: list[str]) -> ReceiveInput:
    return ReceiveInput(store, store, claims, woken.append)


@pytest.fixture
def halts(store: RedisStore, claims: RedisClaims, woken: list[str]) -> KeepHalts:
    return KeepHalts(store, claims, woken.append, lambda: None)


async def commands(store: RedisStore, incident: str) -> list[str]:
    return [event.command for event in await store.inbox(incident) if isinstance(event, Commanded)]


async def call_is(claims: RedisClaims, incident: str) -> str:
    return await claims.claim(
        incident, f"{incident}/R1/0", workload_key=incident, lease_keys=[], disruption=f"{incident}/R1"
    )


async def test_a_press_is_stored_once_and_wakes_its_incident(
    store: RedisStore, inputs: ReceiveInput, woken: list[str]
) -> None:
    await opened(store, "INC-1")
    assert await inputs.press(builders.press(), "INC-1")
    assert await inputs.press(builders.press(), "INC-1")
    assert [event.kind for event in await store.inbox("INC-1")] == ["alert_changed", "pressed"]
    assert set(woken) == {"INC-1"}


async def test_a_press_for_an_unknown_incident_is_not_acknowledged(inputs: ReceiveInput, woken: list[str]) -> None:
    assert not await inputs.press(builders.press(), "INC-9")
    assert woken == []


async def test_a_halt_counts_before_the_run_has_received_it(
    store: RedisStore, inputs: ReceiveInput, claims: RedisClaims
) -> None:
    await opened(store, "INC-1", "INC-2")
    await inputs.command(command("halt"), "INC-1")
    run = await store.load("INC-1")
    assert run is not None
    assert run.halt is None
    assert await call_is(claims, "INC-1") == "halted"
    assert await call_is(claims, "INC-2") == "claimed"


async def test_a_halt_of_all_counts_for_incidents_that_open_later(
    store: RedisStore, inputs: ReceiveInput, claims: RedisClaims
) -> None:
    await inputs.halt_all("ana")
    await opened(store, "INC-1")
    assert await call_is(claims, "INC-1") == "halted"


async def test_all_open_incidents_are_notified_of_a_halt_and_of_its_end(
    store: RedisStore, inputs: ReceiveInput, halts: KeepHalts
) -> None:
    await opened(store, "INC-1", "INC-2")
    await inputs.halt_all("ana")
    await halts.once()
    await inputs.resume_all("ana")
    await halts.once()
    assert [await commands(store, incident) for incident in ("INC-1", "INC-2")] == [["halt", "resume"]] * 2


async def test_resuming_all_leaves_an_incident_halted_that_was_halted_by_itself(
    store: RedisStore, inputs: ReceiveInput, claims: RedisClaims, halts: KeepHalts
) -> None:
    await opened(store, "INC-1", "INC-2")
    await inputs.command(command("halt"), "INC-1")
    await inputs.halt_all("ben")
    await halts.once()
    await inputs.resume_all("ben")
    await halts.once()
    assert await commands(store, "INC-1") == ["halt", "halt", "halt"]
    assert await commands(store, "INC-2") == ["halt", "resume"]
    assert await call_is(claims, "INC-1") == "halted"
    assert await call_is(claims, "INC-2") == "claimed"


async def test_a_reset_lets_the_breaker_of_its_workload_count_anew(
    store: RedisStore, inputs: ReceiveInput, claims: RedisClaims
) -> None:
    await opened(store, "INC-1")
    run = await store.load("INC-1")
    assert run is not None

    async def change(number: int) -> str:
        call = f"INC-1/R{number}/0"
        return await claims.claim("INC-1", call, workload_key=run.target.key, lease_keys=[], disruption=call)

    assert [await change(number) for number in range(4)] == ["claimed"] * 3 + ["breaker_open"]
    assert await inputs.command(command("reset"), "INC-1")
    assert await commands(store, "INC-1") == ["reset"]
    assert await change(4) == "claimed"
    assert not await inputs.command(command("reset"), "INC-9")


async def test_an_export_is_owed_only_by_an_incident_that_exists(store: RedisStore, inputs: ReceiveInput) -> None:
    await opened(store, "INC-1")
    assert await inputs.export("INC-1", "md", "ana")
    assert not await inputs.export("INC-9", "md", "ana")
    assert await commands(store, "INC-1") == ["export"]


async def test_the_incident_of_a_channel_is_found_however_many_are_open(
    store: RedisStore, inputs: ReceiveInput
) -> None:
    await opened(store, *(f"INC-{number}" for number in range(1, OPEN_READ + 3)))
    run = await store.load("INC-1")
    assert run is not None
    places = {"card": ("C0HOME", "1.1"), "request:R1": ("C0OWN", "1.2")}
    run = run.with_(version=run.version + 1, in_slack=InSlack(places=places))
    await store.commit(run, consumed=1, entries=(), effects=())
    assert run not in (await inputs.open_page()).runs
    assert await inputs.of_channel("C0OWN") == run
    assert await inputs.of_channel("C0HOME") is None
    await store.commit(run.with_(version=run.version + 1, closed_at=1.0), consumed=0, entries=(), effects=())
    assert await inputs.of_channel("C0OWN") is None


async def test_a_closed_incident_gets_its_target_back_once_and_only_while_that_is_free(
    store: RedisStore, inputs: ReceiveInput, woken: list[str]
) -> None:
    await opened(store, "INC-1")
    run = await store.load("INC-1")
    assert run is not None
    assert not await inputs.reopen(command("reopen"), run)
    closed = run.with_(version=run.version + 1, closed_at=1.0)
    await store.commit(closed, consumed=len(await store.inbox("INC-1")), entries=(), effects=())
    assert await store.open_incidents() == []
    assert await inputs.reopen(command("reopen"), closed)
    assert not await inputs.reopen(command("reopen"), closed)
    assert await store.open_incident(run.target.key) == "INC-1"
    assert await commands(store, "INC-1") == ["reopen"]
    assert woken == ["INC-1"]
