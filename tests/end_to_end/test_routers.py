"""Fleets behind routers: an inference pool, and a router that cannot be read.

Real engines' pages, a real API and a real bot, each incident to its end.
"""

from __future__ import annotations

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written, play

pytestmark = MARKS

POOL: tuple[Branch, ...] = (
    (scenarios.INFERENCE_POOL, ["scope", "replace_mode", "replace_out", "replace_evict", "verify_calm", "fixed_end"]),
)


def test_a_bad_replica_of_an_inference_pool_is_taken_out_and_replaced() -> None:
    must_end_as_written(POOL)


def test_behind_a_router_that_cannot_be_read_the_rollout_settles_and_people_are_notified() -> None:
    played = play(scenarios.UNREADABLE_ROUTER)
    assert played.is_verified, played.description
    assert "roll_out_settle" in played.path
    assert "undo_or_hold_which" not in played.path
    promoted = next(plan for plan in played.plans if plan.verb == "promote")
    (text,) = [each.text for each in promoted.circumstances if each.name == "rotation"]
    assert text.startswith("which replicas get requests cannot be read: no Service and no InferencePool selects")
