"""The other playbooks, each once from a real alert, or from `/incident open`, to its end."""

from __future__ import annotations

import pytest

from bot.cli.demo import is_verified
from bot.sandbox import demo
from bot.sandbox.approver import Approver
from tests.end_to_end.stage import Stage
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("scenario", "entered"),
    [
        pytest.param(
            demo.GPU_FAULT, ["evidence", "cordon", "more", "ticket", "uncordon", "false_alarm"], id="gpu-fault"
        ),
        pytest.param(
            demo.HOT_NODE, ["scope", "cordon", "next", "cooling", "uncordon", "again", "cooled"], id="hot-node"
        ),
        pytest.param(demo.SLO_BREACH, ["real", "scope", "phase", "scale", "verify_calm", "fixed"], id="slo-breach"),
        pytest.param(
            demo.CRASH_LOOP,
            [
                "look",
                "stuck_rollout",
                "way_back",
                "name_revision",
                "rollback_named",
                "stays_up",
                "verify_calm",
                "fixed",
            ],
            id="crash-loop",
        ),
        pytest.param(
            demo.FP8_AS_DESIGNED,
            ["classify", "enabled", "before", "remeasure", "by_design", "fixed"],
            id="fp8-as-designed",
        ),
    ],
)
def test_a_playbook_comes_from_its_opening_to_a_verified_end(scenario: demo.Scenario, entered: list[str]) -> None:
    said: list[str] = []
    with demo.world(scenario=scenario) as world:
        stage = Stage(world, said)
        approver = Approver(world.slack_url, demo.CHANNEL, scenario.answers, said.append, scenario.filled)
        world.load(scenario.healthy_load)
        until(lambda: stage.has_history_of(scenario.healthy_seconds), "the time before the trouble is sampled", 60)
        world.cause_trouble(scenario)
        if scenario.opened_by:
            approver.command(scenario.opened_by)

        def closed() -> object:
            approver.look()
            return stage.closed_run()

        until(closed, "the incident is closed", 200, seen=stage.told)
        run = stage.closed_run()
        assert run is not None
        assert is_verified(run, stage.timeline(), scenario), stage.told()
        way = [entry.state for entry in stage.entries("entered")]
        assert [state for state in entered if state not in way] == []
