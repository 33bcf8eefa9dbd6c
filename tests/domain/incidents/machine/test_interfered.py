"""A foreign change to an object of the run: the run stops, releases the object, and asks."""

from __future__ import annotations

import pytest

from bot.domain.changes.plan import PlanResult, Wait
from bot.domain.incidents.effect import ReleaseLeases
from tests import builders
from tests.domain.incidents.machine.steps import TWO_STEPS, Story

pytestmark = pytest.mark.fast
DETAIL = "Deployment serving/llm: /spec/replicas is 7, the bot left 5"


def halfway() -> Story:
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted()
    return story.presses("approve").settles().settles(call_id="")


def test_it_stops_before_the_next_call_and_asks_with_both_values() -> None:
    assert isinstance(TWO_STEPS.steps[1], Wait)
    story = halfway().settles("interfered", detail=DETAIL, evidence={"calls": []})
    question = story.run.open_question
    assert question is not None
    assert DETAIL in question.text
    assert "stopped after step 2" in question.text
    assert {"again", "undo", "close"} <= question.choices.keys()
    assert "apply_step" not in story.kinds()
    assert story.wanted(ReleaseLeases)


def test_what_somebody_else_took_over_is_held_no_longer() -> None:
    story = halfway()
    (held,) = story.run.held
    story.settles("interfered", detail=DETAIL, evidence={"calls": [held.call_id]})
    assert story.run.held == ()
    [outcome] = [entry for entry in story.last.entries if entry.kind == "outcome"]
    assert outcome.data == {"request": "R2", "outcome": "interfered", "held": []}
    assert story.run.open_question is not None
    assert "undo" not in story.run.open_question.choices


def test_before_the_first_call_nothing_was_changed_and_the_request_is_withdrawn() -> None:
    story = Story().granted().settles("interfered", detail=DETAIL, evidence={"calls": []})
    assert story.run.open_question is not None
    assert "Nothing was changed." in story.run.open_question.text
    assert {request.status for request in story.run.requests.values()} == {"withdrawn"}


def test_a_call_that_ends_a_pod_ends_what_was_done_to_it() -> None:
    marked = builders.call(
        title="mark", target=builders.call().target.model_copy(update={"kind": "Pod", "uid": "pod-1"})
    )
    ending = builders.call(title="let it end", ends=("pod-1",))
    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="planned", plan=builders.plan(steps=(marked, ending)))).posted().presses("approve")
    story.settles()
    assert "mark" in [entry.title for entry in story.run.held]
    story.settles()
    assert [entry.title for entry in story.run.held] == ["let it end"]
