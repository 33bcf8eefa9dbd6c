"""One of two bots is frozen right before a step, outlives its leases, and goes on later as if nothing had happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.shown import RedisShown
from bot.adapters.slack.outbound.shown import Shown
from tests.flow.harness import Bot, Ending, Scene, differences, play
from tests.flow.scenes import drill_scene

SPEAKING = ("slack chat", "redis keep_shown")
UPLOADING = ("slack files", "slack upload")
BESIDES = ("redis settle", "redis commit", "redis claim", "redis take", "redis put_back", "redis append", "cluster")
SHORT, LONG = 20.0, 90.0
"""Longer than a lease; and so long that the incident is over before the frozen bot goes on."""
PLAYS = 5


def contents(scene: Scene) -> Mapping[str, object]:
    found = [message for message in scene.messages() if "metadata" in message]
    return {
        str(message["metadata"]["event_payload"]["slot"]): [_unnumbered(block) for block in message.get("blocks", ())]
        for message in found
    }


def _unnumbered(block: Mapping[str, Any]) -> dict[str, Any]:
    """Slack gives each block an id when it is posted or edited."""
    return {name: part for name, part in block.items() if name != "block_id"}


async def outdated(client: aioredis.Redis, scene: Scene) -> list[str]:
    """The messages that are not as the run has them: everything is shown once more, as if nothing were recorded."""
    run = await scene.run()
    assert run is not None
    connection = Connection(client, tag=scene.tag)
    store = RedisShown(connection, Shown, dataclasses.asdict, RedisPace(connection, {}))
    before = contents(scene)
    for slot, entry in (await store.load(run.incident_id)).items():
        if not slot.startswith("file:"):
            await store.save(run.incident_id, {slot: dataclasses.replace(entry, hash="", lasting="")})
    await Bot(scene, "again").messenger.show(run)
    after = contents(scene)
    return [slot for slot in {*before, *after} if before.get(slot) != after.get(slot)]


async def frozen(client: aioredis.Redis, tag: str, k: int, seconds: float) -> tuple[Scene, Ending]:
    """A play in which one of two bots freezes before step k.

    Two bots at once take a step more or less from play to play, so the last steps may not come.
    """
    for attempt in range(PLAYS):
        scene = await drill_scene(client, f"{tag}-{attempt}")
        scene.stage.freezes_at, scene.stage.frozen_seconds = k, seconds
        ending = await play(scene, bots=2, at_once=True)
        if not scene.stage.will_freeze:
            break
    return scene, ending


@pytest.mark.parametrize(
    ("steps", "every", "seconds"),
    [
        pytest.param(SPEAKING, 5, SHORT, id="speaking, the incident goes on"),
        pytest.param(SPEAKING, 4, LONG, id="speaking, the incident is over"),
        pytest.param(UPLOADING, 1, SHORT, id="uploading, the incident goes on"),
        pytest.param(UPLOADING, 1, LONG, id="uploading, the incident is over"),
        pytest.param(BESIDES, 17, LONG, id="other steps, the incident is over"),
    ],
)
async def test_a_bot_that_goes_on_after_its_leases_lapsed_changes_nothing_that_lasts(
    client: aioredis.Redis, tag: str, steps: tuple[str, ...], every: int, seconds: float
) -> None:
    wanted = await play(await drill_scene(client, f"{tag}-alone"))
    together = await drill_scene(client, f"{tag}-together")
    await play(together, bots=2, at_once=True)
    chosen = [k for k, what in enumerate(together.stage.points, start=1) if what.startswith(steps)][::every]
    with capture_logs():
        for k in chosen:
            scene, ending = await frozen(client, f"{tag}-{k}", k, seconds)
            what = f"frozen before step {k} ({together.stage.points[k - 1]})"
            assert not scene.stage.will_freeze, f"never came: {what}"
            assert differences(wanted, ending) == [], what
            assert await outdated(client, scene) == [], what
