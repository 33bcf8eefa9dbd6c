"""A person on call who chooses to hand over to those on call has the incident, without a second press."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.machine.questions import TAKEN_AND_CLOSED
from bot.domain.playbooks.bundle import Bundle
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast
PEOPLE = (
    "{divert: people, why: A person has to take over., taken: over}\n  over: {end: handed_over, say: A person took it.}"
)
CHOICE = "stop: {label: Stop, to: calm}"
OFFERED = TEXT.replace("{end: handed_over, say: Nobody answered.}", PEOPLE).replace(
    CHOICE, f"{CHOICE}\n      over: {{label: Hand over, to: left}}"
)


OF_OTHERS = {"grow": "Proposes a change: grow.", "stop": "Ends the incident: verified without a change by the bot."}


def asking(text: str = OFFERED) -> Story:
    return Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95)


def test_who_chooses_to_hand_over_has_it() -> None:
    story = asking().chooses("over", user="ben")
    assert (story.run.ending, story.run.lead) == ("handed_over", "ben")
    assert [question.state for question in story.run.questions.values()] == ["choose"]


def test_what_that_means_is_beside_the_choice() -> None:
    assert asking().run.questions["Q1"].notes == {**OF_OTHERS, "over": TAKEN_AND_CLOSED}


def test_without_an_answer_people_are_asked_who_takes_it() -> None:
    story = asking().due("question:Q1:expiry")
    assert story.run.open_question is not None
    assert story.run.open_question.text == "This needs people: A person has to take over."


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param(
            OFFERED.replace("why: A person", "to_group: facilities, why: A person"),
            {"over": "Calls facilities; changes nothing."},
            id="to another team",
        ),
        pytest.param(OFFERED.replace("ask: What now?", "ask: What now?\n    by: model"), {}, id="by another team"),
    ],
)
def test_another_team_is_not_taken_for_the_people_on_call(text: str, note: dict[str, str]) -> None:
    story = asking(text).chooses("over", user="ben")
    assert story.run.is_open
    assert story.run.open_question is not None
    assert story.run.open_question.text.startswith("This needs people")
    assert story.run.questions["Q1"].notes == OF_OTHERS | note


def test_a_change_that_only_cleans_up_is_not_called_a_proposal() -> None:
    text = OFFERED.replace(
        "  watch:\n", "  tidy: {change: remove_canary, why: It is over., done: calm, failed: left}\n  watch:\n", 1
    )
    text = text.replace(CHOICE, f"{CHOICE}\n      tidy: {{label: Back out, to: tidy}}", 1)
    assert asking(text).run.questions["Q1"].notes["tidy"] == "Cleans up: tidy."


def test_a_change_that_another_one_may_replace_is_not_named() -> None:
    text = OFFERED.replace(
        "  watch:\n", "  again: {change: restart, why: It hangs., done: calm, failed: left}\n  watch:\n", 1
    )
    text = text.replace("    done: watch\n", "    done: watch\n    not_needed: again\n", 1)
    assert asking(text).run.questions["Q1"].notes["grow"] == "Proposes a change."
