"""Fleets that something else scales or routes: node autoscalers, HPA and KEDA at the maximum, pools, unknown routers.

Real engines' pages, a real API and a real bot, each incident to its end.
"""

from __future__ import annotations

import pytest

from bot.sandbox import scenarios
from tests.end_to_end.playing import Branch, must_end_as_written, play

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(420)]

RAISED_AND_RESTORED = [
    "relieve_scale_out",
    "verify_calm",
    "restore_bounds",
    "restore_own_bounds",
    "restore_short",
    "restore_again",
    "fixed_end",
]
SCALED: tuple[Branch, ...] = (
    (scenarios.AUTOSCALER, ["relieve_scale_out", "settle", "verify_calm", "fixed_end"]),
    (scenarios.HPA_AT_MAX, RAISED_AND_RESTORED),
)
KEDA: tuple[Branch, ...] = ((scenarios.KEDA_AT_MAX, RAISED_AND_RESTORED),)
POOL: tuple[Branch, ...] = (
    (scenarios.INFERENCE_POOL, ["scope", "replace_mode", "replace_out", "replace_evict", "verify_calm", "fixed_end"]),
)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(SCALED, id="scaled"),
        pytest.param(KEDA, id="keda"),
        pytest.param(POOL, id="inference-pool"),
    ],
)
def test_each_branch_ends_where_its_flow_says(branches: tuple[Branch, ...]) -> None:
    must_end_as_written(branches)


def test_behind_a_router_that_cannot_be_read_the_rollout_settles_and_people_are_told() -> None:
    played = play(scenarios.UNREADABLE_ROUTER)
    assert played.is_verified, played.told
    assert "roll_out_settle" in played.path
    assert "undo_or_hold_which" not in played.path
    promoted = next(plan for plan in played.plans if plan.verb == "promote")
    (said,) = [each.text for each in promoted.circumstances if each.name == "rotation"]
    assert said.startswith("which replicas get requests cannot be read: no Service and no InferencePool selects")
