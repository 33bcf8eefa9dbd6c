"""docket carries the future: each requested wake-up comes once, in any replica of the bot."""

from __future__ import annotations

import asyncio
import time

from bot.adapters.docket import DocketAlarms
from bot.sandbox import valkey
from tests.waiting import until


async def test_an_incident_is_woken_when_it_wanted_and_once_however_often_it_asked(
    redis_server: valkey.Embedded, tag: str
) -> None:
    woken: list[str] = []
    one, two = (DocketAlarms(redis_server.url, tag=tag) for _ in range(2))
    await one.start(woken.append)
    await two.start(woken.append)
    try:
        far, soon = time.time() + 3600, time.time() + 0.5
        for alarms in (one, two, one):
            await alarms.wake_at("INC-1", soon)
        await one.wake_at("INC-2", far)
        await one.wake_at("INC-3", soon)
        await asyncio.to_thread(until, lambda: {"INC-1", "INC-3"} <= set(woken), "both are woken", 30)
        await two.wake_at("INC-4", time.time())
        await asyncio.to_thread(until, lambda: "INC-4" in woken, "what is due already wakes at once", 30)
    finally:
        await one.stop()
        await two.stop()
    assert sorted(woken) == ["INC-1", "INC-3", "INC-4"]
