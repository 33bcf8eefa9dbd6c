"""The playbooks of nodes and GPUs, each once from a real alert to its end."""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

NODES: tuple[Branch, ...] = (
    (scenarios.GPU_FAULT, ["evidence", "cordon_node", "more", "ticket", "uncordon", "false_alarm"]),
    (scenarios.HOT_NODE, ["scope", "cordon_node", "next", "cooling", "uncordon", "again", "cooled_end"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(NODES, id="fault-and-heat"),
    ],
)
def test_a_playbook_comes_from_its_alert_to_a_verified_end(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
