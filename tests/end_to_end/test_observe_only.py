"""A thrash while the bot only observes: it says what it would propose, changes nothing, and sums it up."""

from __future__ import annotations

import contextlib

import pytest

from bot.domain.approvals.grant import Request
from bot.sandbox import demo
from bot.sandbox.scenarios import THRASH
from tests.end_to_end.stage import Stage
from tests.kit.commands import incident_bot
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(420)]


def advice_of(stage: Stage) -> Request | None:
    run = stage.run()
    return run.advised if run is not None else None


def test_a_thrash_is_only_observed_and_people_end_it() -> None:
    with demo.world(scenario=THRASH, start_bot=False) as world, contextlib.closing(Stage(world)) as stage:
        world.bot_environment["INCIDENT_BOT_OBSERVE_ONLY"] = "true"
        world.start_bot()
        world.prepare(THRASH)
        until(
            lambda: stage.has_history_of(THRASH.healthy_seconds), "the time before is sampled", 60, seen=stage.describe
        )
        world.cause_trouble(THRASH)
        advised = stage.pressing_until(lambda: advice_of(stage), "it is advised", 180)
        name = advised.request_id

        message = until(lambda: stage.message(f"Would propose {name}"), "the advice is in Slack", 60)
        stage.press("U0ANA", message, "carry_out")
        until(lambda: (advice := advice_of(stage)) and advice.carried_out, "it is recorded", 60, seen=stage.describe)
        world.load(THRASH.healthy_load)  # what people did helps
        run = until(stage.closed_run, "the incident is over", 180, seen=stage.describe)
        assert run is not None

        assert (run.ending, run.requests[name].outcome) == ("observed", "recovered")
        assert not stage.cluster("/__sandbox__/mutations"), "not even a dry run was sent"
        assert [entry.text for entry in stage.entries("call")] == []
        output = incident_bot("observed", **world.bot_environment).output
        assert "the bot would have proposed 1 change to workloads that it only observes" in output
        assert advised.plan.title in output
        assert "U0ANA carried it out; recovered after" in output
