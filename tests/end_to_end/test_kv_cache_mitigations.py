"""Mitigations of the runbook kv-cache-oom during or before a thrash, in the sandbox world, to their ends.

Real engines' pages, a real API and a real bot; the main paths are in test_demo.py.
"""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

CHANGED: tuple[Branch, ...] = (
    (
        scenarios.DEPLOY_IN_TIME,
        [
            "changed",
            "way_back_choose",
            "way_back_other_which",
            "way_back_other_back",
            "verify_calm",
            "kept",
            "fixed_end",
        ],
    ),
    (
        scenarios.MORE_TRAFFIC,
        ["changed", "relieve", "relieve_scale_more", "settle", "verify_calm", "restore_cause", "fixed_end"],
    ),
)
MITIGATIONS: tuple[Branch, ...] = (
    (
        scenarios.SHED_THE_REST,
        [
            "relieve_limit_concurrency",
            "capacity_ask",
            "capacity_ask_refuse",
            "shed_roll_out",
            "verify_calm",
            "fixed_end",
        ],
    ),
    (
        scenarios.OFFLOADED_IN_VAIN,
        [
            "relieve_limit_concurrency",
            "relieve_host_memory",
            "roll_out_judge",
            "roll_out_drop",
            "relieve",
            "handed_over",
        ],
    ),
    (
        scenarios.EARLY_SIGNS,
        ["is_thrash", "early", "pressure", "relieve", "relieve_scale_more", "verify_calm"],
    ),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(CHANGED, id="deploy-and-traffic"),
        pytest.param(MITIGATIONS, id="shed-offload-early"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
