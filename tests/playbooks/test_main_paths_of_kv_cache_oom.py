"""What the main paths of kv-cache-oom cost: presses, people, and minutes to relief."""

from __future__ import annotations

from typing import Any

import pytest

from bot.flow import rehearse_run
from tests.kit.main_paths import MAIN_PATHS, MINUTE, Cost, Fleet, cost_of

MAIN, EMERGENCY, TESTED, REPLICA, REPLACE = MAIN_PATHS["kv-cache-oom"]


async def main_path(fleet: Fleet, relieved_by: str, **given: Any) -> Cost:
    return await cost_of("kv-cache-oom", MAIN, fleet, relieved_by, **given)


@pytest.mark.parametrize(
    ("fleet", "minutes"),
    [
        pytest.param(Fleet(4, 2), 15, id="4-replicas-that-start-in-2-minutes"),
        pytest.param(Fleet(4, 10), 60, id="4-replicas-that-start-in-10-minutes"),
        pytest.param(Fleet(20, 2), 15, id="20-replicas-that-start-in-2-minutes"),
        pytest.param(Fleet(20, 10), 60, id="20-replicas-that-start-in-10-minutes"),
    ],
)
async def test_a_limit_takes_two_presses_of_one_person_and_relieves_in_time(fleet: Fleet, minutes: float) -> None:
    cost = await main_path(fleet, "roll_out_roll_out")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= minutes


@pytest.mark.parametrize(
    ("fleet", "minutes"),
    [
        pytest.param(Fleet(4, 2), 8, id="4-replicas-that-start-in-2-minutes"),
        pytest.param(Fleet(20, 2), 8, id="20-replicas-that-start-in-2-minutes"),
        pytest.param(Fleet(20, 10), 32, id="20-replicas-that-start-in-10-minutes"),
    ],
)
async def test_the_emergency_set_takes_only_as_long_as_its_rollout(fleet: Fleet, minutes: float) -> None:
    """One approval, after the press that chose it."""
    cost = await cost_of("kv-cache-oom", EMERGENCY, fleet, "emergency")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.relief <= minutes


async def test_a_load_test_costs_one_approval_more_and_nothing_where_nobody_chooses_it() -> None:
    """The choice itself is another press, which is no approval."""
    cost = await cost_of("kv-cache-oom", TESTED, Fleet(4, 2), "roll_out_roll_tested")
    assert (cost.presses, cost.people) == (3, 1)
    main = await main_path(Fleet(4, 2), "roll_out_roll_out", load_test={"found": True, "name": "x", "detail": ""})
    assert (main.presses, main.relief) == (2, (await main_path(Fleet(4, 2), "roll_out_roll_out")).relief)


async def test_a_canary_with_much_traffic_relieves_sooner() -> None:
    """200 finished requests are enough evidence."""
    cost = await main_path(Fleet(4, 2), "roll_out_roll_out", canary_count=250.0)
    assert cost.relief <= 10


async def test_with_plan_once_a_limit_takes_one_press(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = rehearse_run.RULES.approvals.model_copy(update={"plan_once": True})
    monkeypatch.setattr(rehearse_run, "RULES", rehearse_run.RULES.model_copy(update={"approvals": approvals}))
    cost = await main_path(Fleet(4, 2), "roll_out_roll_out")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.relief <= 15


@pytest.mark.parametrize("start_minutes", [2, 10])
async def test_one_more_replica_takes_one_press_and_relieves_as_soon_as_it_serves(start_minutes: float) -> None:
    cost = await cost_of("kv-cache-oom", REPLICA, Fleet(4, start_minutes), "relieve_scale_out")
    assert (cost.presses, cost.people) == (1, 1)
    assert cost.first_message <= MINUTE
    assert cost.relief <= start_minutes + 1


async def test_replacing_one_bad_replica_takes_two_presses() -> None:
    """One for the replica that comes first, one for taking the bad one out, which covers ending it once it is empty."""
    cost = await cost_of("kv-cache-oom", REPLACE, Fleet(4, 2), "replace_evict")
    assert (cost.presses, cost.people) == (2, 1)
    assert cost.relief <= 5
