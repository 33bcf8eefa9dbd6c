"""An isolated replica under test: one generation, never sent twice, one Job, and both results read by later states."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from bot.domain.incidents.event import Commanded
from bot.domain.incidents.run import Run
from bot.flow.ports.cluster import Generated
from tests.flow.harness import Bot, Scene, play, timeline_text, until
from tests.flow.scenes import trial_scene
from tests.flow.stage import Side
from tests.flow.test_crash_points import deaths

WHOLE_WAY = ("aside", "probe", "weigh", "judge", "score", "back", "over")
EVERY = 23
MAX_SECONDS = 20.0


@pytest.fixture
async def scene(client: aioredis.Redis, tag: str) -> Scene:
    return await trial_scene(client, tag)


@pytest.mark.fast
async def test_what_a_change_comes_back_with_decides_in_later_states(scene: Scene) -> None:
    ending = await play(scene)
    run = await scene.run()
    assert run is not None
    assert (ending.ending, run.findings.path[1:]) == ("fixed", WHOLE_WAY[1:])
    assert run.findings.results["probe"]["probe_request"].fields == {
        "finished": True, "error": "", "tokens": 4112.0, "expected_blocks": 257.0, "used_blocks": 128.0,
        "reclaim": 1 - 128 / 257,
    }  # fmt: skip
    assert run.findings.results["judge"]["run_job"].fields["score"] == 0.71
    assert scene.engines.sent == ["llm-2"]
    assert [entry.verb for entry in run.held] == ["return_replica"], "a Job that ended is nothing to take back"


@pytest.mark.fast
async def test_neither_counts_for_the_breaker(scene: Scene, bot: Bot) -> None:
    await until(scene, bot, lambda run: "back" in run.findings.path, "back")
    key = scene.eyes._redis.key
    counted = [str(name) for name in await scene.client.keys(key("breaker*"))]
    total = sum([await scene.client.zcard(name) for name in counted])
    assert (len(counted), total) == (1, 1), "only taking the replica out of rotation is a disruption"


@pytest.mark.fast
async def test_a_job_without_a_score_is_unknown_and_not_zero(scene: Scene, bot: Bot) -> None:
    scene.cluster.job_log = "Traceback (most recent call last):"
    run = await until(scene, bot, lambda run: "rejected" in run.findings.path, "rejected")
    reading = run.findings.results["judge"]["run_job"]
    assert reading.unknown_parts["score"] == "no JSON line with a score in the last 100 lines of the Job's log"
    assert "cannot decide: baseline, score could not be read" in await timeline_text(scene)


@pytest.mark.fast
async def test_a_job_that_fails_is_reported_with_what_it_wrote_last(scene: Scene, bot: Bot) -> None:
    scene.cluster.job_log, scene.cluster.job_fails = "CUDA error", True
    await until(scene, bot, lambda run: "back" in run.findings.path, "back")
    await bot.turn()
    texts = "\n".join(str(message) for message in scene.messages())
    assert "failed: BackoffLimitExceeded; no result; the log ends with: CUDA error" in texts


@pytest.mark.fast
async def test_people_see_what_a_change_came_back_with(scene: Scene) -> None:
    await play(scene)
    texts = "\n".join(str(message) for message in scene.messages())
    assert "128 blocks of 257 expected, 50% reclaimed" in texts
    assert "score 0.71, baseline 0.73, eval gsm8k" in texts


@pytest.mark.fast
async def test_a_probe_that_breaks_is_a_result_and_not_a_failure(scene: Scene) -> None:
    scene.engines.answer = Generated("broken", detail="connection lost")
    await play(scene)
    run = await scene.run()
    assert run is not None
    reading = run.findings.results["probe"]["probe_request"]
    assert (run.requests["R2"].outcome, reading.fields["finished"], reading.fields["error"]) == (
        "done", False, "connection lost",
    )  # fmt: skip
    assert "reclaim" in reading.unknown_parts
    assert run.findings.path[-3:] == ("weigh", "back", "over")


@pytest.mark.fast
async def test_what_certainly_was_not_generated_failed(scene: Scene) -> None:
    scene.engines.answer = Generated("refused", detail="HTTP 404")
    await play(scene)
    run = await scene.run()
    assert run is not None
    assert run.requests["R2"].outcome == "failed"
    assert "probe" not in run.findings.results


@pytest.mark.fast
async def test_a_halt_ends_a_generation_under_way(scene: Scene, bot: Bot) -> None:
    scene.engines.lasts_for_ever = True
    working = asyncio.create_task(until(scene, bot, is_past_the_probe, "past the probe"))
    async with asyncio.timeout(MAX_SECONDS):
        await scene.engines.begun.wait()
    other = Bot(scene, "two")
    event = Commanded(event_id="halt/1", command="halt", user="U0ANA")
    assert await other.receive.command(event, "INC-1")
    run = await working
    assert run.requests["R2"].outcome == "failed"
    assert "halted by U0ANA" in await timeline_text(scene)


def is_past_the_probe(run: Run) -> bool:
    return "R2" in run.requests and bool(run.requests["R2"].outcome)


async def test_after_a_crash_nothing_is_generated_twice_and_a_person_or_the_playbook_decides(
    client: aioredis.Redis, tag: str
) -> None:
    undisturbed = await trial_scene(client, f"{tag}-whole")
    await play(undisturbed)
    points = undisturbed.stage.points
    begun = next(k for k, what in enumerate(points, start=1) if what.startswith("engine"))
    chosen = [
        (k, side)
        for k, side in deaths(points)
        if abs(k - begun) <= 1 or k % EVERY == 0 or points[k - 1].startswith("cluster")
    ]
    unclear: list[tuple[int, Side]] = []
    with capture_logs():
        for k, side in chosen:
            scene = await trial_scene(client, f"{tag}-{k}-{side}", (k, side))
            ending = await play(scene)
            run = await scene.run()
            assert run is not None
            assert len(scene.engines.sent) <= 1, f"death {side} step {k}: sent {len(scene.engines.sent)} times"
            assert max(ending.calls.values()) == 1
            assert ending.ending == "fixed"
            outcome = run.requests["R2"].outcome
            assert outcome in ("done", "unclear")
            unclear += [(k, side)] if outcome == "unclear" else []
    assert (begun, "after") in unclear
