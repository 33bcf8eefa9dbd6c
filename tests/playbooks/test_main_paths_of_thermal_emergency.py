"""What the main paths of thermal-emergency cost: presses, people, and minutes until the load leaves the hot node."""

from __future__ import annotations

import pytest

from tests.kit.main_paths import FLEETS, MAIN_PATHS, MINUTE, Fleet, cost_of

NODE, HALL = MAIN_PATHS["thermal-emergency"]


@pytest.mark.parametrize("fleet", FLEETS)
async def test_a_hot_node_takes_two_presses_of_one_person_and_loses_its_load_at_once(fleet: Fleet) -> None:
    """The third gives the node back, once it has been cool."""
    cost = await cost_of("thermal-emergency", NODE, fleet, "ours_evict")
    assert (cost.presses, cost.people) == (3, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= 2


async def test_a_hot_hall_sheds_load_with_one_press() -> None:
    """The second brings the replica back once the hall is cool."""
    cost = await cost_of("thermal-emergency", HALL, Fleet(4, 2), "facility_shed")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.begun["facility_shed"] < cost.begun["grow_back"]
