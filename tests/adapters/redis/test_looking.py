"""Data that people view: a page of open incidents, repeated views, and the last known identities from Slack."""

from __future__ import annotations

import pytest

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.people import RedisPeople
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.effect import ShowInSlack
from bot.flow.ports.storage import EVERYTHING, HaltWord
from tests import builders
from tests.kit.opened import opened

pytestmark = pytest.mark.fast
SHOW = ShowInSlack(effect_id="show")


@pytest.fixture
def store(connection: Connection) -> RedisStore:
    return RedisStore(connection, owner="one")


async def is_due(store: RedisStore) -> bool:
    return ("INC-1", "show", "cards") in await store.owed_now(10)


async def test_a_page_has_the_newest_and_says_how_many_there_are(store: RedisStore) -> None:
    assert (await store.open_page(2)).count == 0
    await opened(store, *(f"INC-{number}" for number in (9, 10, 8)))
    page = await store.open_page(2)
    assert (page.count, [run.incident_id for run in page.runs]) == (3, ["INC-10", "INC-9"])


async def test_an_effect_that_waits_for_its_time_is_due_once_somebody_looks(store: RedisStore) -> None:
    await opened(store, "INC-1")
    run = await store.load("INC-1")
    assert run is not None
    await store.commit(
        builders.in_visit(run.with_(version=run.version + 1), number=1), consumed=1, entries=(), effects=[SHOW]
    )
    taken = await store.take("INC-1", "show")
    assert taken is not None
    assert not await store.owe_now("INC-1", SHOW, again=True)
    await store.put_back(taken, after_seconds=60, failed=False)
    assert not await is_due(store)
    assert await store.owe_now("INC-1", SHOW, again=False)
    assert await is_due(store)


async def test_an_effect_that_was_given_up_is_owed_again_only_anew(store: RedisStore) -> None:
    await opened(store, "INC-1")
    assert not await store.owe_now("INC-1", SHOW, again=False)
    assert not await is_due(store)
    assert await store.owe_now("INC-1", SHOW, again=True)
    taken = await store.take("INC-1", "show")
    assert taken is not None
    assert taken.effect == SHOW
    assert (await store.settle(taken, ())).again is None
    assert not await store.owe_now("INC-9", SHOW, again=True)


async def test_a_halt_of_all_and_its_end_are_kept_with_their_words(connection: Connection) -> None:
    claims = RedisClaims(connection)
    assert await claims.halt_word() == HaltWord()
    await claims.set_halt(EVERYTHING, by="before")
    await claims.set_halt_of_all(HaltWord("ana", "the rack burns"), halts=True)
    assert (await claims.halts(), await claims.halt_word()) == ({"*": "ana"}, HaltWord("ana", "the rack burns"))
    await claims.set_halt_of_all(HaltWord("ben"), halts=False)
    assert (await claims.halts(), await claims.halt_word()) == ({}, HaltWord("ben"))


async def test_the_last_answer_is_kept_with_its_time(connection: Connection) -> None:
    people = RedisPeople(connection)
    assert await people.last("account:U0ANA") is None
    await people.keep("account:U0ANA", "", at=1.5)
    assert await people.last("account:U0ANA") == ("", 1.5)
    await people.keep("account:U0ANA", "guests | bots", at=2.5)
    assert await people.last("account:U0ANA") == ("guests | bots", 2.5)
