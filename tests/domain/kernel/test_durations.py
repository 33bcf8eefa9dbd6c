"""The card, its thread and the report show the same duration in the same words."""

from __future__ import annotations

import pytest

from bot.domain.kernel.durations import lasting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-3, "0 s"),
        (12.4, "12 s"),
        (65, "65 s"),
        (120, "2 min"),
        (253, "4 min 13 s"),
        (853, "14 min"),
        (1790, "30 min"),
        (3840, "64 min"),
        (7190, "2 h"),
        (7500, "2 h 5 min"),
        pytest.param(1e300, "0 s", id="altered"),
        pytest.param(float("nan"), "0 s", id="no number"),
    ],
)
def test_a_duration_has_one_form(seconds: float | None, text: str) -> None:
    assert lasting(seconds) == text
