"""A change that hurts users stops between two steps; a person decides whether it continues."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.changes.plan import PlanResult, Wait
from bot.domain.incidents.effect import ApplyStep, ReleaseLeases
from bot.domain.incidents.impact import Impact
from tests import builders
from tests.domain.incidents.machine.steps import TWO_STEPS, Story

pytestmark = pytest.mark.fast
AT_THE_GRANT, NOW = Impact(ttft_p99_seconds=1.0, waiting=1.0), Impact(waiting=4.0)
ROLLOUT = Wait(condition="rolled_out", about=builders.call().target, within_seconds=60, title="All run it")


def stopped(*steps: Any, holds: bool | None = None) -> Story:
    """The first call is done, and before the next step the others wait."""
    steps = steps or TWO_STEPS.steps
    first = steps[0].model_copy(update={"holds": holds})
    plan = builders.plan(steps=(first, *steps[1:]))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    story.presses("approve").settles(impact=AT_THE_GRANT)
    return story.settles("affected", detail="requests waiting per replica 1.0 → 4.0", impact=NOW)


def test_it_sends_nothing_and_asks_with_what_rose() -> None:
    story = stopped()
    question = story.run.open_question
    assert question is not None
    assert "stopped before '5 replicas are Ready'" in question.text
    assert "requests waiting per replica 1.0 → 4.0" in question.text
    assert list(question.choices) == ["go_on", "undo", "hand_over"]
    assert "apply_step" not in story.kinds()


def test_a_person_who_says_go_on_accepts_what_it_costs_now() -> None:
    story = stopped().chooses("go_on")
    change = story.run.change
    assert change is not None
    assert (story.wanted(ApplyStep).step, change.step, change.stopped) == (1, 1, False)
    assert change.impact == Impact(ttft_p99_seconds=1.0, waiting=4.0), "what is unknown now stays as it was"
    assert change.step_started_at == story.at
    assert story.settles(call_id="").settles().run.visit.state == "watch"


def test_a_second_stop_is_a_question_of_its_own() -> None:
    story = stopped().chooses("go_on")
    first = story.run.questions
    story.settles("affected", detail="requests waiting per replica 4.0 → 9.0", impact=Impact(waiting=9.0))
    assert len(story.run.questions) == len(first) + 1
    assert story.chooses("go_on").wanted(ApplyStep).effect_id not in {
        effect.effect_id for effect in story.effects[:-2] if isinstance(effect, ApplyStep)
    }


@pytest.mark.parametrize("by", ["the question", "the command"])
def test_taking_it_back_is_proposed_as_any_undo(by: str) -> None:
    story = stopped()
    if by == "the question":
        story.chooses("undo")
    else:
        story.says("undo")
    assert story.run.change is not None
    assert story.run.change.undo_of == ("INC-1/R2/0",)
    assert story.run.requests["R2"].outcome == "stopped"
    assert story.run.open_question is None


def test_who_takes_it_over_finds_it_as_it_stands_and_the_workload_free() -> None:
    story = stopped().chooses("hand_over")
    assert story.wanted(ReleaseLeases)
    assert (story.run.change, story.run.lead) == (None, "ana")
    assert [entry.call_id for entry in story.run.held] == ["INC-1/R2/0"]
    assert story.run.open_question is not None
    assert {"undo", "close"} <= story.run.open_question.choices.keys()


def test_a_stopped_change_may_be_left_by_closing() -> None:
    story = stopped().says("resolve", text="the other team does it")
    assert (story.run.is_open, story.run.change) == (False, None)


@pytest.mark.parametrize(("holds", "says_so"), [(None, True), (True, False)])
def test_that_kubernetes_goes_on_by_itself_is_shown_unless_the_rollout_is_held(
    *, holds: bool | None, says_so: bool
) -> None:
    question = stopped(builders.call(), ROLLOUT, holds=holds).run.open_question
    assert question is not None
    assert ("Kubernetes continues the rollout" in question.text) is says_so
