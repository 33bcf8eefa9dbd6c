"""SIGKILL of the bot at three points of one incident, and of Redis at a fourth: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from bot.cli.demo import is_verified
from bot.domain.incidents.run import Run
from bot.domain.kernel.timeline import first_break
from bot.sandbox.scenarios import OVERLOAD
from tests.end_to_end.stage import Stage, alert, as_body, slots, stage, webhook
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(600)]

DEPLOYMENTS = "/apis/apps/v1/namespaces/serving/deployments"
CANARY = f"{DEPLOYMENTS}/llm-incident-bot-canary-inc-1"
FLEET = f"{DEPLOYMENTS}/llm"


def test_crashes_at_the_worst_moments_neither_lose_nor_repeat_anything() -> None:
    with stage() as world:
        world.world.cause_trouble(OVERLOAD)
        crash_right_after_an_acknowledged_press(world)
        lose_redis_for_a_while(world)
        crash_in_the_middle_of_the_rollout(world)
        crash_during_the_watch(world)
        run = world.pressing_until(world.closed_run, "the incident is closed", 150)

        timeline = world.timeline()
        assert is_verified(run, timeline), world.describe()
        assert first_break(timeline) is None
        assert world.changes() == [("create", DEPLOYMENTS), ("patch", FLEET), ("delete", CANARY)]
        calls = [entry.data["call"] for entry in world.entries("call")]
        assert (len(calls), repeated(calls)) == (3, [])
        assert any("VllmKVCacheNearFull" in entry.text for entry in world.entries("alert"))
        until(
            lambda: sorted(slots(world.messages())) == sorted(wanted_slots(run)),
            "the card and every message of the thread stand in Slack, each once", 30,
            seen=lambda: (slots(world.messages()), wanted_slots(run)),
        )  # fmt: skip


def crash_right_after_an_acknowledged_press(world: Stage) -> None:
    world.pressing_until(lambda: world.has_pressed("Approve canary", "Start one canary"), "the canary is approved", 120)
    world.world.family.kill("bot")
    world.world.start_bot()


def lose_redis_for_a_while(world: Stage) -> None:
    world.pressing_until(lambda: world.state() == "roll_out_judge", "the canary is watched", 120)
    before = len(world.timeline())
    world.world.redis.kill()
    refused = world.post(as_body(webhook(alert("VllmKVCacheNearFull"))))
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    world.world.redis.restart()
    assert len(world.timeline()) >= before
    until(
        lambda: world.post(as_body(webhook(alert("VllmKVCacheNearFull")))).status_code == 200,
        "the bot accepts alerts again", 15,
    )  # fmt: skip


def crash_in_the_middle_of_the_rollout(world: Stage) -> None:
    world.pressing_until(lambda: is_half_way(world), "some replicas have the new flags and some have not", 180)
    world.world.family.kill("bot")
    world.world.start_bot()


def is_half_way(world: Stage) -> bool:
    found = world.cluster(FLEET)
    updated, wanted = int(found["status"].get("updatedReplicas", 0)), int(found["spec"]["replicas"])
    return 0 < updated < wanted


def crash_during_the_watch(world: Stage) -> None:
    def watches() -> bool:
        run = world.run()
        return run is not None and run.visit.state == "verify_calm" and run.watch is not None

    world.pressing_until(watches, "the fleet is verified", 120)
    world.world.family.kill("bot")
    world.world.start_bot()


def repeated(items: Iterable[str]) -> list[str]:
    return [item for item, times in Counter(items).items() if times > 1]


def wanted_slots(run: Run) -> list[str]:
    """The card and every message of the thread, each once."""
    return [f"{run.incident_id}/{slot}" for slot in ("card", *(post.slot for post in run.posts))]
