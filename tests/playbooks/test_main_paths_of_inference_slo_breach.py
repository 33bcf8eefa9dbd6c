"""What the main paths of inference-slo-breach cost: presses, people, and minutes to relief."""

from __future__ import annotations

import pytest

from bot.flow import rehearse_run
from tests.kit.main_paths import FLEETS_AND_MINUTES, MAIN_PATHS, MINUTE, Cost, Fleet, cost_of

QUEUE, BATCH, REPLICA, MAXIMUM, DEPLOY = MAIN_PATHS["inference-slo-breach"]


async def main_path(case: str, fleet: Fleet, relieved_by: str) -> Cost:
    return await cost_of("inference-slo-breach", case, fleet, relieved_by)


@pytest.mark.parametrize("case", [QUEUE, MAXIMUM])
@pytest.mark.parametrize("fleet", [Fleet(4, 2), Fleet(4, 10), Fleet(20, 2), Fleet(20, 10)])
async def test_one_more_replica_takes_one_press_and_relieves_as_soon_as_it_serves(case: str, fleet: Fleet) -> None:
    cost = await main_path(case, fleet, "relieve_scale_out")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= fleet.start_minutes + 1


@pytest.mark.parametrize(("fleet", "minutes"), FLEETS_AND_MINUTES)
async def test_a_smaller_batch_takes_two_presses_of_one_person_and_relieves_in_time(
    fleet: Fleet, minutes: float
) -> None:
    cost = await main_path(BATCH, fleet, "roll_out_roll_out")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


async def test_with_plan_once_a_smaller_batch_takes_one_press(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = rehearse_run.RULES.approvals.model_copy(update={"plan_once": True})
    monkeypatch.setattr(rehearse_run, "RULES", rehearse_run.RULES.model_copy(update={"approvals": approvals}))
    cost = await main_path(BATCH, Fleet(4, 2), "roll_out_roll_out")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.relief <= 15


@pytest.mark.parametrize(("fleet", "minutes"), FLEETS_AND_MINUTES)
async def test_a_rollback_takes_one_press_and_relieves_in_time(fleet: Fleet, minutes: float) -> None:
    cost = await main_path(DEPLOY, fleet, "way_back_choose_rollback")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


async def test_replacing_one_slow_replica_takes_two_presses() -> None:
    """One for the replica that comes first, one for taking the slow one out, which covers ending it."""
    cost = await main_path(REPLICA, Fleet(4, 2), "replace_evict")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= 5
