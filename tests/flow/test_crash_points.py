"""Kill the bot at every step of a run that changes something outside its memory: the run ends as if uninterrupted.

`k` counts those steps in the order of the undisturbed run, which is the same each time; `drill_scene(…, (k, side))`
dies there again. To die before step k is to die after step k-1, since nothing that survives changes in between; that
side is tried where somebody waits for the answer (an alert, a press) and where a step leaves something outside Redis.
The short playbook is killed at every step, the shipped one at every `EVERY`th death; with a digest, and in a channel of
its own, at some of the steps in which the bot speaks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from tests.flow.harness import Ending, Scene, differences, play
from tests.flow.scenes import channel_scene, drill_scene, folded_scene, shipped_scene
from tests.flow.stage import Side

PARTS = 8
EVERY = 37
SPOKEN_EVERY = 7
BOTH_SIDES = (
    "redis accept",
    "redis append",
    "cluster",
    "people",
    "slack chat.postMessage",
    "slack files",
    "slack conv",
)
SPEAKING = ("redis digest", "redis hdel digest", "redis keep_shown", "slack")
Death = tuple[int, Side]
Staged = Callable[[aioredis.Redis, str, Death | None], Awaitable[Scene]]


async def undisturbed(stage: Staged, client: aioredis.Redis, tag: str) -> tuple[Ending, Sequence[str]]:
    scene = await stage(client, f"{tag}-undisturbed", None)
    return await play(scene), scene.stage.points


def deaths(points: Sequence[str], about: tuple[str, ...] = ("",)) -> list[Death]:
    """Every crash in those steps that leaves something different behind, in order."""
    found: list[Death] = []
    steps = [(k, what) for k, what in enumerate(points, start=1) if what.startswith(about)]
    for k, what in steps:
        if what.startswith(BOTH_SIDES):
            found.append((k, "before"))
        found.append((k, "after"))
    return found


async def faults_of(
    stage: Staged,
    client: aioredis.Redis,
    tag: str,
    choose: Callable[[list[Death]], list[Death]],
    about: tuple[str, ...] = ("",),
) -> list[str]:
    """What differs from the undisturbed run after each of the chosen deaths."""
    wanted, points = await undisturbed(stage, client, tag)
    faults: list[str] = []
    # Printing what hundreds of runs log would take as long as the runs.
    with capture_logs():
        for k, side in choose(deaths(points, about)):
            scene = await stage(client, f"{tag}-{k}-{side}", (k, side))
            try:
                found = differences(wanted, await play(scene))
            except AssertionError as error:
                found = [str(error)]
            assert scene.stage.points[:k] == points[:k], f"the run was another one before step {k} already"
            faults += [f"death {side} step {k} ({points[k - 1]}): {what}" for what in found]
    return faults


@pytest.mark.parametrize("stage", [drill_scene, shipped_scene], ids=["the drill", "the shipped playbook"])
async def test_the_undisturbed_run_is_the_same_each_time_and_leaves_nothing(
    client: aioredis.Redis, tag: str, stage: Staged
) -> None:
    ending, points = await undisturbed(stage, client, tag)
    assert ending.ending == "fixed"
    assert set(ending.calls.values()) == {1}
    assert tuple(ending.calls) == ending.ledger
    assert (ending.broken_chain, ending.left) == (None, {})
    assert set(ending.slack.values()) == {1}
    again, same_points = await undisturbed(stage, client, f"{tag}-again")
    assert (again, same_points) == (ending, points)


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_crash_at_any_step_changes_nothing_that_lasts(client: aioredis.Redis, tag: str, part: int) -> None:
    faults = await faults_of(drill_scene, client, tag, lambda every: every[part::PARTS])
    assert not faults, "\n".join(faults)


async def test_a_crash_within_the_shipped_playbook_changes_nothing_that_lasts(client: aioredis.Redis, tag: str) -> None:
    faults = await faults_of(shipped_scene, client, tag, lambda every: every[::EVERY])
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("stage", [folded_scene, channel_scene], ids=["in the digest first", "in a channel of its own"])
async def test_a_crash_while_the_bot_speaks_elsewhere_changes_nothing_that_lasts(
    client: aioredis.Redis, tag: str, stage: Staged
) -> None:
    faults = await faults_of(stage, client, tag, lambda every: every[::SPOKEN_EVERY], SPEAKING)
    assert not faults, "\n".join(faults)
