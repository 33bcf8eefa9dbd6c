"""The runbook kv-compression-no-savings for each class, in the sandbox world, to its end.

Real engines' pages, a real API and a real bot.
"""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

NOT_ENABLED: tuple[Branch, ...] = (
    (
        scenarios.SET_FP8,
        [
            "classify",
            "fp8",
            "fp8_canary",
            "fp8_length_try",
            "score",
            "confirm",
            "judge",
            "promote",
            "verify_calm",
            "old_length",
            "sized",
            "fixed_end",
        ],
    ),
    (
        scenarios.FP8_LOSES,
        ["fp8", "fp8_canary", "score", "confirm", "judge", "waive", "back_out", "refused"],
    ),
)
AT_ONCE: tuple[Branch, ...] = (
    (
        scenarios.FP8_AS_DESIGNED,
        ["classify", "enabled", "before", "remeasure", "by_design", "dashboard_end"],
    ),
    (scenarios.NEVER_SET, ["classify", "fp8", "unchanged", "not_applicable"]),
    (scenarios.KIND_UNKNOWN, ["classify", "by_class", "ask_class", "hand_over", "handed_over"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(NOT_ENABLED, id="not-enabled"),
        pytest.param(AT_ONCE, id="designed-never-set-unknown"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
