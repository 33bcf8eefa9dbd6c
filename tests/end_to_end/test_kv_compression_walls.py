"""The walls of the runbook kv-compression-no-savings in the sandbox world, to their ends.

Real engines' pages, a real API and a real bot.
"""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

WALLS: tuple[Branch, ...] = (
    (
        scenarios.FP8_NOT_DOUBLED,
        ["remeasure", "by_class", "quantised", "not_doubled", "frees_nothing", "as_designed_end"],
    ),
    (
        scenarios.SCATTERED,
        ["isolate_canary", "probe", "reclaim", "turn_off_switch", "off_verify", "is_off", "backed_out_end"],
    ),
    (
        scenarios.EAGER_FALLBACK,
        ["wall_one", "ask_wall_one", "turn_off_switch", "off_verify", "is_off", "backed_out_end"],
    ),
    (
        scenarios.COMPACTS,
        ["by_class", "isolate_canary", "probe", "reclaim", "fleet_score", "still_pressed", "verify_calm", "fixed_end"],
    ),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(WALLS, id="flag-scattered-eager-compacts"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)
