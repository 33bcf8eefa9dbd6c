"""The short playbooks, each once from a real alert to its end: a faulty GPU, a hot node, a slow fleet."""

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
    ],
)
def test_a_short_playbook_comes_from_its_alert_to_a_verified_end(scenario: demo.Scenario, entered: list[str]) -> None:
    said: list[str] = []
    with demo.world(scenario=scenario) as world:
        stage = Stage(world, said)
        approver = Approver(world.slack_url, demo.CHANNEL, scenario.answers, said.append)
        world.load(scenario.healthy_load)
        world.cause_trouble(scenario)

        def closed() -> object:
            approver.look()
            return stage.closed_run()

        until(closed, "the incident is closed", 200, seen=stage.told)
        run = stage.closed_run()
        assert run is not None
        assert is_verified(run, stage.timeline(), scenario), stage.told()
        way = [entry.state for entry in stage.entries("entered")]
        assert [state for state in entered if state not in way] == []
