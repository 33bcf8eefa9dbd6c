"""Forms: which input counts, and the messages for the person who filled them in."""

from __future__ import annotations

import pytest

from bot.domain.incidents.named_values import Moments
from bot.domain.incidents.run import Question
from bot.domain.kernel.form import Answer, FormField, answers, moment_in, problems
from tests import builders

pytestmark = pytest.mark.fast

FORM = {
    "revision": FormField(label="Revision", kind="integer", min=1, optional=True),
    "gain": FormField(label="Gain", kind="number", min=1, max=64, unit="times"),
    "method": FormField(label="Method", kind="choice", options={"fp8": "FP8", "evict": "Eviction"}),
    "since": FormField(label="Since", optional=True, max_length=5),
    "at": FormField(label="At", kind="time", optional=True),
}
GOOD: dict[str, Answer] = {"gain": "2", "method": "fp8"}


def test_what_was_filled_in_counts_in_its_kind() -> None:
    assert problems(FORM, GOOD) == {}
    assert answers(FORM, GOOD | {"since": ""}) == {"gain": 2.0, "method": "fp8"}
    timed = GOOD | {"at": "2026-11-20 14:30"}
    assert (problems(FORM, timed), answers(FORM, timed)["at"]) == ({}, "2026-11-20 14:30")


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        pytest.param({"gain": ""}, "gain", "Gain: this is needed", id="left-empty"),
        pytest.param({"gain": "much"}, "gain", "Gain: 'much' is not a number", id="no-number"),
        pytest.param({"revision": "1.5"}, "revision", "Revision: '1.5' is not a whole number", id="no-integer"),
        pytest.param({"gain": "nan"}, "gain", "Gain: 'nan' is not a number", id="not-finite"),
        pytest.param({"gain": 0.5}, "gain", "Gain: at least 1 times", id="too-little"),
        pytest.param({"gain": "65"}, "gain", "Gain: at most 64 times", id="too-much"),
        pytest.param({"method": "int4"}, "method", "Method: 'int4' is not one of fp8, evict", id="no-such-option"),
        pytest.param({"since": "yesterday"}, "since", "Since: at most 5 characters", id="too-long"),
        pytest.param(
            {"at": "last week"},
            "at",
            "At: 'last week' is not a date and a time (UTC). Example: 2026-11-20 14:30",
            id="no-time",
        ),
        pytest.param(
            {"at": "2026-11-20"},
            "at",
            "At: '2026-11-20' is not a date and a time (UTC). Example: 2026-11-20 14:30",
            id="a-day-alone",
        ),
        pytest.param({"strange": "x"}, "strange", "there is no field 'strange'", id="no-such-field"),
    ],
)
def test_what_does_not_count_is_reported_by_field(given: dict[str, Answer], field: str, says: str) -> None:
    assert problems(FORM, GOOD | given) == {field: says}


HALF_PAST_TWO = 1_795_185_000.0


@pytest.mark.parametrize(
    ("typed", "at"),
    [
        pytest.param("2026-11-20 14:30", HALF_PAST_TWO, id="as-the-label-shows-it"),
        pytest.param(" 2026-11-20T14:30:00Z ", HALF_PAST_TWO, id="copied-from-a-log"),
        pytest.param("2026-11-20T16:30+02:00", HALF_PAST_TWO, id="with-a-zone"),
        pytest.param("2026-11-20", HALF_PAST_TWO - 14.5 * 3600, id="a-day-is-its-beginning"),
        pytest.param("yesterday at half past two", None, id="words"),
        pytest.param("20.11.2026 14:30", None, id="another-order"),
        pytest.param("2026-13-40 14:30", None, id="no-such-day"),
        pytest.param("2026-11-20 14:30" + " " * 500, None, id="too-long"),
        pytest.param(20261120.0, None, id="a-number"),
    ],
)
def test_a_date_that_was_typed_is_a_moment_or_nothing(typed: Answer, at: float | None) -> None:
    assert moment_in(typed) == at


def test_a_typed_date_is_a_moment_at_which_a_window_may_end() -> None:
    run = builders.run(forms={"opening": {"enabled_at": "2026-11-20 14:30", "method": "fp8"}})
    assert Moments(run)["forms.opening.enabled_at"] == HALF_PAST_TWO
    assert "forms.opening.method" not in Moments(run)


def test_the_last_answer_to_a_question_is_a_moment_in_whatever_playbook_it_was_asked() -> None:
    asked = [
        Question(
            question_id=f"INC-1/Q{number}", state="probe", visit=number, text="Was it only slow?", asked_at=at - 60,
            status="answered" if at == answered_at else "open", answered_at=answered_at,
        )
        for number, (at, answered_at) in enumerate([(500.0, 500.0), (900.0, 900.0), (950.0, None)])
    ]  # fmt: skip
    run = builders.run(questions={one.question_id: one for one in asked})
    assert Moments(run)["answers.probe"] == 900.0
    assert "answers.probe" in list(Moments(run))
    assert "answers.unclear" not in Moments(run)
