"""A notice is posted once by all replicas, and none is taken for posted that was not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.domain.kernel.errors import MessengerError, StorageUnavailableError
from bot.flow.notify_once import POSTING_SECONDS, NotifyOnce

pytestmark = pytest.mark.fast


class Channel:
    """A messenger whose posts fail by these faults, one after the other, and then arrive."""

    def __init__(self, *faults: BaseException) -> None:
        self._faults = list(faults)
        self.posted: list[str] = []

    async def announce(self, text: str, *, mentions: Collection[str] = ()) -> None:
        if self._faults:
            raise self._faults.pop(0)
        self.posted.append(text)


def notifier(redis: Connection, channel: Channel, owner: str = "one") -> NotifyOnce:
    return NotifyOnce(RedisStore(redis, owner=owner), channel)  # type: ignore[arg-type]


async def test_two_replicas_post_a_notice_once(redis: Connection) -> None:
    channel = Channel()
    for owner in ("one", "two"):
        await notifier(redis, channel, owner)("epoch/1", "Redis lost the bot's data")
    assert channel.posted == ["Redis lost the bot's data"]


@pytest.mark.parametrize(
    "fault",
    [
        MessengerError("rate limited", lasting=False),
        StorageUnavailableError("Redis did not answer 'pace'"),
        asyncio.CancelledError(),
    ],
    ids=["Slack refuses", "Redis is silent", "the bot stops"],
)
async def test_a_notice_that_was_not_posted_is_posted_at_the_next_try(redis: Connection, fault: BaseException) -> None:
    channel = Channel(fault)
    with pytest.raises(type(fault)):
        await notifier(redis, channel)("epoch/1", "Redis lost the bot's data")
    await notifier(redis, channel)("epoch/1", "Redis lost the bot's data")
    assert channel.posted == ["Redis lost the bot's data"]


async def test_a_replica_that_died_while_posting_is_followed_by_another(redis: Connection) -> None:
    store, channel = RedisStore(redis, owner="dead"), Channel()
    assert await store.is_first("posting/epoch/1", seconds=1)
    with pytest.raises(MessengerError, match="another replica"):
        await notifier(redis, channel)("epoch/1", "Redis lost the bot's data")
    assert channel.posted == []
    assert 0 < await redis.client.ttl(store._first("posting/epoch/1")) <= POSTING_SECONDS
    await store.unclaim("posting/epoch/1")
    await notifier(redis, channel)("epoch/1", "Redis lost the bot's data")
    assert channel.posted == ["Redis lost the bot's data"]
