"""The runbook kv-compression-no-savings for each class, in the sandbox world, to its end.

Real engines' pages, a real API and a real bot.
"""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import Branch, must_end_as_written

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(420)]

NOT_ENABLED: tuple[Branch, ...] = (
    (
        scenarios.SET_FP8,
        [
            "none_is_on",
            "set_quantised",
            "length_probe",
            "score",
            "confirm",
            "promote",
            "grown",
            "verify_calm",
            "length_proved",
            "sizing_back",
            "fixed",
        ],
    ),
    (scenarios.FP8_LOSES, ["none_is_on", "set_quantised", "score", "confirm", "waive", "back_out", "backed_out"]),
)
AT_ONCE: tuple[Branch, ...] = (
    (
        scenarios.FP8_AS_DESIGNED,
        ["classify", "enabled", "before", "remeasure", "by_design", "which_gauge", "flat_device"],
    ),
    (scenarios.NEVER_SET, ["classify", "none_is_on", "not_applicable"]),
    (scenarios.KIND_UNKNOWN, ["classify", "ask_class", "hand_over", "handed_over"]),
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
