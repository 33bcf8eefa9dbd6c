"""Redis loses everything under a running bot: people are notified, firing alerts return, no number repeats."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import redis

from tests.end_to_end.stage import Stage, stage
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]
ALERT = "VllmKVCacheNearFull"


def incidents(world: Stage) -> list[str]:
    """Of the cards in the channel, in the order of their coming."""
    slots = [message.get("metadata", {}).get("event_payload", {}).get("slot", "") for message in world.messages()]
    return [slot.removesuffix("/card") for slot in slots if slot.endswith("/card")]


def readiness(world: Stage) -> dict[str, Any]:
    answer = httpx.get(f"{world.world.bot_url}/readyz", timeout=10)
    return dict(answer.raise_for_status().json())


def test_an_emptied_redis_is_announced_and_what_fires_is_reopened_under_a_number_far_above() -> None:
    with stage() as world:
        world.world.raise_alert(ALERT)
        until(lambda: incidents(world) == ["INC-1"], "the first incident has its card", 60, seen=world.describe)
        with redis.Redis.from_url(world.world.redis_url) as client:
            client.flushall()
        first, second = until(
            lambda: found if len(found := incidents(world)) == 2 else None,
            "the alert that fires is in another incident", 60, seen=lambda: incidents(world),
        )  # fmt: skip
        assert first == "INC-1"
        assert int(second.removeprefix("INC-")) > 2_000_000_000_000
        notices = [message["text"] for message in world.messages() if "Redis lost the bot's data" in message["text"]]
        assert len(notices) == 1
        assert second in notices[0]
        status = readiness(world)
        assert status["ready"]
        assert "Redis lost its data" in status["degraded"]["redis"]
        world.world.family.kill("bot")
        world.world.start_bot()
        assert "redis" in until(lambda: readiness(world)["degraded"], "the next process says so too", 30)
        assert incidents(world) == [first, second]
