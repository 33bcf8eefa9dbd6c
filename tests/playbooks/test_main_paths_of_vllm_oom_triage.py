"""What the main paths of vllm-oom-triage cost: presses, people, and minutes to relief."""

from __future__ import annotations

from typing import Any

import pytest

from bot.flow import rehearse_run
from tests.kit.main_paths import FLEETS_AND_MINUTES, MAIN_PATHS, MINUTE, Cost, Fleet, cost_of

BURST, LEAK, NEW_REVISION = MAIN_PATHS["vllm-oom-triage"]


async def main_path(case: str, fleet: Fleet, relieved_by: str, **given: Any) -> Cost:
    return await cost_of("vllm-oom-triage", case, fleet, relieved_by, **given)


@pytest.mark.parametrize(("fleet", "minutes"), FLEETS_AND_MINUTES)
async def test_an_edit_takes_two_presses_of_one_person_and_relieves_in_time(fleet: Fleet, minutes: float) -> None:
    cost = await main_path(BURST, fleet, "roll_out_roll_out")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


@pytest.mark.parametrize(("fleet", "minutes"), FLEETS_AND_MINUTES)
@pytest.mark.parametrize(
    ("case", "relieved_by"),
    [pytest.param(LEAK, "leak_restart", id="leak"), pytest.param(NEW_REVISION, "way_back_rollback", id="new-revision")],
)
async def test_restarts_and_rollbacks_take_one_press_however_many_replicas(
    case: str, relieved_by: str, fleet: Fleet, minutes: float
) -> None:
    cost = await main_path(case, fleet, relieved_by)
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


async def test_with_plan_once_an_edit_takes_one_press(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = rehearse_run.RULES.approvals.model_copy(update={"plan_once": True})
    monkeypatch.setattr(rehearse_run, "RULES", rehearse_run.RULES.model_copy(update={"approvals": approvals}))
    cost = await main_path(BURST, Fleet(4, 2), "roll_out_roll_out")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.relief <= 15


async def test_where_no_replica_serves_nothing_is_waited_for() -> None:
    """Nobody asks for anything there, so what users ask for cannot be read."""
    nobody = {"arrivals": {"unknown": "no samples"}, "rotation": {"in_rotation": 0, "ready": 0}}
    cost = await main_path(NEW_REVISION, Fleet(4, 2), "way_back_rollback", at={"gather": nobody})
    assert cost.first_message <= MINUTE
