"""Each branch of the runbook kv-compression-no-savings in the sandbox world, to where its flow ends.

Real engines' pages, a real API and a real bot; the main ways are in test_other_playbooks.py.
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
IN_VAIN: tuple[Branch, ...] = (
    (scenarios.FP8_NOT_DOUBLED, ["remeasure", "by_class", "quantised", "not_doubled", "reclassify", "as_designed"]),
    (
        scenarios.SCATTERED,
        ["isolate", "probe", "no_compaction", "turn_off", "off", "off_verify", "is_off", "backed_out"],
    ),
)
NOBODY_KNOWS: tuple[Branch, ...] = (
    (scenarios.NEVER_SET, ["classify", "none_is_on", "not_applicable"]),
    (scenarios.KIND_UNKNOWN, ["classify", "ask_class", "hand_over", "handed_over"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(NOT_ENABLED, id="not-enabled"),
        pytest.param(IN_VAIN, id="in-vain"),
        pytest.param(NOBODY_KNOWS, id="never-set-and-unknown"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
