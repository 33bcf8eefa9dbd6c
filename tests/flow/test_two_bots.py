"""Two complete bots on one Redis: the first one does the work, and it is done once."""

from __future__ import annotations

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from tests.flow.harness import differences, play
from tests.flow.scenes import drill_scene

EVERY = 11


@pytest.mark.fast
@pytest.mark.parametrize("at_once", [False, True], ids=["in turns", "at the same moment"])
async def test_two_bots_do_each_call_and_each_message_once(client: aioredis.Redis, tag: str, at_once: bool) -> None:
    alone = await play(await drill_scene(client, f"{tag}-alone"))
    together = await play(await drill_scene(client, f"{tag}-together"), bots=2, at_once=at_once)
    assert differences(alone, together) == []


async def test_when_one_of_two_bots_dies_the_other_goes_on(client: aioredis.Redis, tag: str) -> None:
    alone = await play(await drill_scene(client, f"{tag}-alone"))
    together = await drill_scene(client, f"{tag}-together")
    await play(together, bots=2, at_once=True)
    with capture_logs():
        for k, what in list(enumerate(together.stage.points, start=1))[::EVERY]:
            ending = await play(await drill_scene(client, f"{tag}-{k}", (k, "after")), bots=2, at_once=True)
            assert differences(alone, ending) == [], f"death after step {k} ({what})"
