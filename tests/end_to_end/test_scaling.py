"""Fleets that something else scales: node autoscalers, HPA and KEDA at the maximum.

Real engines' pages, a real API and a real bot, each incident to its end.
"""

from __future__ import annotations

from bot.sandbox import scenarios
from tests.end_to_end.playing import MARKS, Branch, must_end_as_written

pytestmark = MARKS

RAISED_AND_RESTORED = [
    "relieve_scale_more",
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
    (scenarios.KEDA_AT_MAX, RAISED_AND_RESTORED),
)


def test_what_something_else_scales_is_scaled_and_put_back() -> None:
    must_end_as_written(SCALED)
