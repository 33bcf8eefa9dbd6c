"""Forms: what counts, and what is told to who filled them in."""

from __future__ import annotations

import pytest

from bot.domain.form import Answer, FormField, answers, problems

pytestmark = pytest.mark.fast

FORM = {
    "gain": FormField(label="Gain", kind="number", min=1, max=64, unit="times"),
    "method": FormField(label="Method", kind="choice", options={"fp8": "FP8", "evict": "Eviction"}),
    "since": FormField(label="Since", optional=True, max_length=5),
}
GOOD: dict[str, Answer] = {"gain": "2", "method": "fp8"}


def test_what_was_filled_in_counts_in_its_kind() -> None:
    assert problems(FORM, GOOD) == {}
    assert answers(FORM, GOOD | {"since": ""}) == {"gain": 2.0, "method": "fp8"}


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        pytest.param({"gain": ""}, "gain", "Gain: this is needed", id="left-empty"),
        pytest.param({"gain": "much"}, "gain", "Gain: 'much' is not a number", id="no-number"),
        pytest.param({"gain": "nan"}, "gain", "Gain: 'nan' is not a number", id="not-finite"),
        pytest.param({"gain": 0.5}, "gain", "Gain: at least 1 times", id="too-little"),
        pytest.param({"gain": "65"}, "gain", "Gain: at most 64 times", id="too-much"),
        pytest.param({"method": "int4"}, "method", "Method: 'int4' is not one of fp8, evict", id="no-such-option"),
        pytest.param({"since": "yesterday"}, "since", "Since: at most 5 characters", id="too-long"),
        pytest.param({"strange": "x"}, "strange", "there is no field 'strange'", id="no-such-field"),
    ],
)
def test_what_does_not_count_is_told_by_field(given: dict[str, Answer], field: str, says: str) -> None:
    assert problems(FORM, GOOD | given) == {field: says}
