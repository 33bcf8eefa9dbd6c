"""Viewers of the app's Home are remembered for as long as it may be updated."""

from __future__ import annotations

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.viewers import FORGOTTEN_AFTER_SECONDS, RedisViewers

pytestmark = pytest.mark.fast


async def test_viewers_are_known_by_when_they_opened_it_with_what_stands_there(connection: Connection) -> None:
    viewers = RedisViewers(connection)
    assert await viewers.since(0.0) == {}
    await viewers.opened("U0ANA", 100.0)
    await viewers.opened("U0BEN", 200.0)
    await viewers.published("U0ANA", "a hash")
    assert list((await viewers.since(99.0)).items()) == [("U0BEN", ""), ("U0ANA", "a hash")]
    assert await viewers.since(100.0) == {"U0BEN": ""}


async def test_who_has_not_opened_it_for_a_week_is_forgotten_whole(connection: Connection) -> None:
    viewers = RedisViewers(connection)
    await viewers.opened("U0ANA", 100.0)
    await viewers.published("U0ANA", "a hash")
    await viewers.opened("U0BEN", 100.0 + FORGOTTEN_AFTER_SECONDS)
    assert await viewers.since(0.0) == {"U0BEN": ""}
    await viewers.opened("U0ANA", 100.0 + FORGOTTEN_AFTER_SECONDS)
    assert (await viewers.since(0.0))["U0ANA"] == ""
