"""What the main paths of gpu-fault cost: presses, people, and minutes until our replica serves elsewhere."""

from __future__ import annotations

import pytest

from tests.kit.main_paths import FLEETS, MAIN_PATHS, MINUTE, Fleet, cost_of

FATAL, CONTAINED = MAIN_PATHS["gpu-fault"]


@pytest.mark.parametrize("fleet", FLEETS)
async def test_a_fatal_fault_takes_two_presses_of_one_person_and_leaves_rotation_at_once(fleet: Fleet) -> None:
    """One for the cordon, one for taking the replica out, which covers ending it once it is empty."""
    cost = await cost_of("gpu-fault", FATAL, fleet, "ours_out")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= 2


@pytest.mark.parametrize("fleet", FLEETS)
async def test_a_contained_fault_takes_two_presses_and_the_start_of_one_replica(fleet: Fleet) -> None:
    """One for the replica that comes first, one for taking ours out, which then ends in place of the added one."""
    cost = await cost_of("gpu-fault", CONTAINED, fleet, "gently_evict")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= fleet.start_minutes + 2


@pytest.mark.parametrize("fleet", FLEETS)
async def test_without_room_elsewhere_a_fatal_fault_costs_the_same(fleet: Fleet) -> None:
    none = {"free_gpus": 0, "replicas_that_fit": 0}
    cost = await cost_of("gpu-fault", FATAL, fleet, "ours_out", capacity=none)
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.relief <= 2
