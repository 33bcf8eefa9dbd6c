"""The other playbooks, each once from a real alert, or from `/incident open`, to its end."""

from __future__ import annotations

import pytest

from bot.sandbox import demo, scenarios
from tests.end_to_end.playing import play

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("scenario", "entered"),
    [
        pytest.param(
            scenarios.GPU_FAULT, ["evidence", "cordon", "more", "ticket", "uncordon", "false_alarm"], id="gpu-fault"
        ),
        pytest.param(
            scenarios.HOT_NODE, ["scope", "cordon", "next", "cooling", "uncordon", "again", "cooled"], id="hot-node"
        ),
        pytest.param(
            scenarios.SLO_BREACH, ["real", "scope", "phase", "scale", "verify_calm", "fixed"], id="slo-breach"
        ),
        pytest.param(
            scenarios.CRASH_LOOP,
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
            scenarios.FP8_AS_DESIGNED,
            ["classify", "enabled", "before", "remeasure", "by_design", "fixed"],
            id="fp8-as-designed",
        ),
    ],
)
def test_a_playbook_comes_from_its_opening_to_a_verified_end(scenario: demo.Scenario, entered: list[str]) -> None:
    played = play(scenario)
    assert played.is_verified, played.told
    assert [state for state in entered if state not in played.way] == []
