"""Complete bots in a storm of incidents that need no action: one summary, a card each, and nothing twice or lost.

An incident that Slack has shown once, in the digest or by its card, is shown there from then on.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from tests.flow.harness import ALL_HAVE_CARDS, MAX_STEPS, Bot, Scene, quiet_about_crashes
from tests.flow.scenes import storm_scene
from tests.flow.stage import Side

INCIDENTS = 4
SECONDS_A_STEP = 2.0
SPEAKING = ("redis digest", "redis hdel digest", "redis keep_shown", "redis pace", "slack chat")
PARTS, EVERY = 3, 5


def cards(scene: Scene) -> Counter[str]:
    keys = [message["metadata"]["event_payload"]["slot"] for message in scene.messages() if "metadata" in message]
    return Counter(key.removesuffix("/card") for key in keys if key.endswith("/card"))


def shown(scene: Scene) -> set[str]:
    """The incidents that somebody who looks at the channel finds there."""
    text = "\n".join(scene.digests())
    return {name for number in range(1, 3 * INCIDENTS) if f"*{(name := f'INC-{number}')}*" in text} | set(cards(scene))


async def weather(scene: Scene) -> None:
    """Two bots work until every incident is closed and nothing is owed."""
    asyncio.get_running_loop().set_exception_handler(quiet_about_crashes)
    crew = [Bot(scene, f"bot-{number}") for number in range(2)]
    ever: set[str] = set()
    for _ in range(MAX_STEPS):
        await asyncio.gather(*(bot.turn() for bot in crew))
        lost, ever = ever - shown(scene), ever | shown(scene)
        assert not lost, f"lost after {scene.stage.points[-1]}: {lost}"
        assert len(scene.open_digests()) <= 1, f"two digests after {scene.stage.points[-1]}: {scene.digests()}"
        for number, bot in enumerate(crew):
            if bot.life.is_over:
                crew[number] = Bot(scene, f"{bot.life.owner}+")
        if not scene.alerts and len(cards(scene)) == INCIDENTS and not await scene.left():
            return
        await scene.time.advance(SECONDS_A_STEP)
    raise AssertionError(f"never over: {scene.slots()}, {scene.digests()}, {await scene.left()}")


def faults(scene: Scene) -> list[str]:
    twice = [f"{name} has {count} cards" for name, count in cards(scene).items() if count != 1]
    return twice + [f"a digest that nobody ends: {each}" for each in scene.open_digests()]


async def test_two_bots_share_one_digest(client: aioredis.Redis, tag: str) -> None:
    scene = await storm_scene(client, tag)
    await weather(scene)
    assert faults(scene) == []
    assert scene.digests() == [ALL_HAVE_CARDS]


@pytest.mark.parametrize("part", range(PARTS))
async def test_when_one_of_two_bots_dies_while_it_speaks_the_other_says_the_rest(
    client: aioredis.Redis, tag: str, part: int
) -> None:
    alive = await storm_scene(client, f"{tag}-alive")
    await weather(alive)
    speaks = [k for k, what in enumerate(alive.stage.points, start=1) if what.startswith(SPEAKING)]
    with capture_logs():
        for k in speaks[part * EVERY :: PARTS * EVERY]:
            what = alive.stage.points[k - 1]
            sides: tuple[Side, ...] = ("before", "after") if what.startswith("slack") else ("after",)
            for side in sides:
                scene = await storm_scene(client, f"{tag}-{k}-{side}", (k, side))
                await weather(scene)
                assert faults(scene) == [], f"death {side} step {k} ({what})"
