"""What the main paths of kv-compression-no-savings cost: presses, people, and minutes to relief."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.main_paths import MAIN_PATHS, MINUTE, Cost, Fleet, cost_of

LATE, SCATTERED, NEVER_SET = MAIN_PATHS["kv-compression-no-savings"]
FLEETS = pytest.mark.parametrize(
    ("fleet", "minutes"),
    [
        pytest.param(Fleet(4, 2), 15, id="4-replicas-that-start-in-2-minutes"),
        pytest.param(Fleet(4, 10), 60, id="4-replicas-that-start-in-10-minutes"),
        pytest.param(Fleet(20, 2), 15, id="20-replicas-that-start-in-2-minutes"),
        pytest.param(Fleet(20, 10), 60, id="20-replicas-that-start-in-10-minutes"),
    ],
)


async def main_path(case: str, fleet: Fleet, relieved_by: str, ends: str = "backed_out", **given: Any) -> Cost:
    return await cost_of("kv-compression-no-savings", case, fleet, relieved_by, ends, **given)


@FLEETS
async def test_turning_off_what_breached_the_slo_takes_one_press(fleet: Fleet, minutes: float) -> None:
    cost = await main_path(LATE, fleet, "turn_off_switch")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


@FLEETS
async def test_measuring_the_blocks_and_turning_it_off_takes_two_presses(fleet: Fleet, minutes: float) -> None:
    """One for the canary, which covers the probe on it, and one for the fleet."""
    cost = await main_path(SCATTERED, fleet, "turn_off_revision")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


@FLEETS
async def test_fp8_with_an_eval_takes_two_presses(fleet: Fleet, minutes: float) -> None:
    """One for the canary, which covers the eval on it, and one for the fleet."""
    cost = await main_path(NEVER_SET, fleet, "promote", "fixed")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes
