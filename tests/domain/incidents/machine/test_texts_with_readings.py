"""Texts with readings: a question, a request and an end are true when people read them."""

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.event import Planned
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

WRITTEN = (
    TEXT.replace(
        "ask: What now?",
        "ask: \"${results.look.usage > settings.ceiling ? 'The pool is full.' : 'The pool has room.'} What now?\"",
    )
    .replace("why: More room.", "why: More room, since ${usage} of the pool is used.")
    .replace("say: It is calm.", "say: 'The pool was used to ${baseline.usage}, now to ${results.watch.usage}.'")
)
BUNDLE = Bundle.of(load_text(WRITTEN, file="small.yaml"))


def asked(story: Story) -> str:
    return story.run.questions[story.run.question].text


def test_a_question_says_what_the_readings_say() -> None:
    assert asked(Story(BUNDLE).opened().reads(0.95)) == "The pool is full. What now?"


def test_a_question_says_what_is_not_known() -> None:
    assert asked(Story(BUNDLE).opened().reads(None)) == "not known What now?"


def test_a_request_says_what_was_read_for_it() -> None:
    story = Story(BUNDLE).opened().reads(0.95).chooses("grow")
    usage = Reading(name="usage", value=0.97, at=story.at)
    result = PlanResult(outcome="planned", plan=builders.plan())
    effect_id = f"v{story.run.visit.number}/plan/0"
    story.happens(Planned(event_id=story.id(), effect_id=effect_id, result=result, readings={"usage": usage}))
    assert story.run.requests[story.request].why == "More room, since 0.97 of the pool is used."


def test_an_end_shows_before_and_after() -> None:
    story = Story(BUNDLE).opened().reads(0.95).chooses("stop")
    assert story.entries[-1].text.endswith("The pool was used to 0.95, now to not known.")
