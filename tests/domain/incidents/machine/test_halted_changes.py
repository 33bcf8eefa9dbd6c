"""A change that is halted or stopped between its steps: what it did is taken back, or it is given up."""

from __future__ import annotations

import pytest

from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.event import EffectFailed
from bot.domain.incidents.impact import Impact
from tests import builders
from tests.domain.incidents.machine.steps import TWO_STEPS, Story

pytestmark = pytest.mark.fast
SECOND = builders.plan(title="Scale llm from 5 to 6", choices={"to": 6})
EVICTS = builders.call(title="Evict llm-1", undo=(), no_undo="a replica that ended does not come back", method="evict")


def halted_first() -> Story:
    """Its first call was not sent; nothing else is in place."""
    return Story().granted().says("halt").settles("halted", detail="it was halted", call_id="")


def after_a_change_in_place(plan: object = SECOND) -> Story:
    """R2 is in place, and the next change is granted."""
    story = Story().applied().watched("not_held").chooses("grow")
    story.planned(PlanResult.model_validate({"outcome": "planned", "plan": plan})).posted()
    return story.presses("approve", reason="more is needed")


def test_a_change_that_is_halted_before_its_first_call_can_be_given_up() -> None:
    story = halted_first().says("undo")
    assert (story.run.change, story.run.requests["R2"].outcome) == (None, "halted")
    assert story.run.open_question is not None
    assert "is given up: it has done nothing that can be taken back. What now?" in story.run.open_question.text


def test_an_incident_whose_change_is_halted_before_its_first_call_can_be_resolved() -> None:
    run = halted_first().says("resolve").run
    assert (run.ending, run.requests["R2"].outcome) == ("resolved_by_hand", "halted")


def test_the_undo_of_a_halted_change_takes_back_no_other_change() -> None:
    story = after_a_change_in_place().says("halt").settles("halted", detail="it was halted", call_id="")
    assert "`/incident undo INC-1` gives it up" in story.due("change:halted:half").run.posts[-1].data["text"]
    story.says("undo")
    assert (story.run.change, [entry.call_id for entry in story.run.held]) == (None, ["INC-1/R2/0"])


def test_what_a_halted_change_has_done_is_taken_back() -> None:
    two = PlanResult(outcome="planned", plan=TWO_STEPS)
    story = Story().opened().reads(0.95).chooses("grow").planned(two).posted().presses("approve")
    story.settles().says("halt").settles("halted", detail="it was halted", call_id="")
    assert "`/incident undo INC-1` takes it back" in story.due("change:halted:half").run.posts[-1].data["text"]
    change = story.says("undo").run.change
    assert change is not None
    assert change.undo_of == ("INC-1/R2/0",)


def test_a_change_that_stopped_offers_to_take_back_only_its_own_calls() -> None:
    story = after_a_change_in_place(builders.plan(title="Replace llm-1", steps=(EVICTS, *TWO_STEPS.steps[1:])))
    story.settles(impact=Impact(waiting=1.0))
    story.settles("affected", detail="waiting 1 → 4", impact=Impact(waiting=4.0))
    assert story.run.open_question is not None
    assert list(story.run.open_question.choices) == ["go_on", "hand_over"]


@pytest.mark.parametrize("how", ["failed", "given up"])
def test_an_undo_that_cannot_be_planned_can_be_chosen_again(how: str) -> None:
    story = Story().applied().says("undo")
    if how == "failed":
        story.planned(PlanResult(outcome="failed", reason="the cluster cannot be read: no answer"))
    else:
        effect_id = f"v{story.run.visit.number}/plan/0"
        failed = EffectFailed(event_id="x", effect_id=effect_id, effect_kind="plan_change", reason="no answer")
        story.happens(failed)
    asked = story.run.open_question
    assert asked is not None
    assert {"again", "undo"} <= asked.choices.keys()
    change = story.chooses("undo").run.change
    assert change is not None
    assert change.undo_of == ("INC-1/R2/0",)


def test_after_an_undo_that_cannot_be_planned_the_playbook_can_go_on() -> None:
    story = Story().applied().says("undo").planned(PlanResult(outcome="unknown", reason="no answer"))
    asked = story.run.question
    assert story.chooses("again").run.visit.state == "watch"
    assert story.run.questions[asked].status == "answered"
