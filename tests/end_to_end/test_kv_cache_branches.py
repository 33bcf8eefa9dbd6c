"""Branches of the runbook kv-cache-oom without a thrash, in the sandbox world, to their ends.

Real engines' pages, a real API and a real bot; the main paths are in test_demo.py.
"""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

ELSEWHERE: tuple[Branch, ...] = (
    (scenarios.SICK_NODE, ["node_health", "crash", "is_thrash", "flap", "self_cleared_end"]),
    (scenarios.CRASHES, ["crash", "to_oom_triage", "serving", "hand_over", "handed_over"]),
)
ONE_REPLICA: tuple[Branch, ...] = (
    (scenarios.SAME_SELECTOR, ["scope", "replace_mode", "replace_way", "replace_out", "replace_evict", "fixed_end"]),
    (scenarios.HUNG_ENGINE, ["one_hangs", "polls", "end_hung", "verify_calm", "hangs_still", "fixed_end"]),
)
BAD_NODE: tuple[Branch, ...] = (
    (
        scenarios.BAD_NODE,
        [
            "scope",
            "some_bad_look",
            "some_bad_node",
            "some_bad_cordon_node",
            "replace_evict_as_it_is",
            "another",
            "scope",
            "replace_evict_as_it_is",
            "another",
            "verify_calm",
            "fixed_end",
        ],
    ),
)
NO_THRASH: tuple[Branch, ...] = (
    (scenarios.SHEDDING_ALREADY, ["is_thrash", "early", "flap", "self_cleared_recurs", "self_cleared_end"]),
    (scenarios.BUSY, ["is_thrash", "busy", "hand_over", "handed_over"]),
    (scenarios.BLIND, ["gather", "unreadable", "hand_over", "handed_over"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(ELSEWHERE, id="node-and-crash"),
        pytest.param(ONE_REPLICA, id="one-replica"),
        pytest.param(BAD_NODE, id="bad-node"),
        pytest.param(NO_THRASH, id="shedding-busy-blind"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
