"""Days of incidents leave nothing in Redis once they have expired: no keys, no entries of shared lists and sets."""

from __future__ import annotations

import redis.asyncio as aioredis
from structlog.testing import capture_logs

from bot.sandbox import valkey
from tests.life.soak import RETENTION_SECONDS, soak_of

A_DAY = 4
KEPT_DAYS = RETENTION_SECONDS // 86_400 + 1
"""The sweep of one night finds what expired on the day before."""


async def test_what_incidents_store_is_gone_after_their_retention(redis_server: valkey.Embedded, tag: str) -> None:
    async with aioredis.from_url(redis_server.url, decode_responses=True) as client:
        await nothing_is_left(client, tag)


async def nothing_is_left(client: aioredis.Redis, tag: str) -> None:
    soak = await soak_of(client, tag, seed=1)
    with capture_logs():
        days = [await soak.day(day, A_DAY) for day in range(1, 6)]
        quiet = [await soak.day(day, 0) for day in range(6, 6 + KEPT_DAYS)]
    assert soak.opened == 5 * A_DAY
    for left in days:
        assert left.entries["incidents"] <= KEPT_DAYS * A_DAY
        assert left.entries["last"] <= KEPT_DAYS * A_DAY
        assert left.keys["run"] <= KEPT_DAYS * A_DAY
        assert left.keys["bundle"] == 1, "all of one playbook"
    assert days[-1].of_incidents <= days[KEPT_DAYS - 1].of_incidents
    end = quiet[-1]
    assert end.of_incidents == 0
    left_behind = {name: count for name, count in end.entries.items() if name not in ("pace", "seen", "summary-cards")}
    assert left_behind == {}, "what is left has a bound of its own: an hour, a day, ten cards"
    assert all(count <= 2 for count in end.entries.values())
