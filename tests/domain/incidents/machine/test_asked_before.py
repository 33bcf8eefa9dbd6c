"""A request identical to one just refused, expired or applied is approved only with a new reason."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals.repeats import asked_before
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import Notify
from tests import builders
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast
HALF_HOUR = 1800.0


def asked_again(story: Story, *, after: float = 0.0, **plan: object) -> Story:
    """The same playbook comes to the same change once more, from its question."""
    story.at += after
    found = PlanResult(outcome="planned", plan=builders.plan(**plan))
    return story.chooses("grow").planned(found).posted()


def refused() -> Story:
    return Story().asked().presses("refuse", user="ben")


def expired() -> Story:
    story = Story().asked()
    story.at = story.run.deadlines[f"request:{story.request}:expiry"]
    return story.due(f"request:{story.request}:expiry").chooses("goto:choose")


def applied() -> Story:
    return Story().applied().watched("not_held")


def is_approved(story: Story, **press: str) -> bool:
    story.presses("approve", **press)
    return story.run.requests[story.request].status == "granted"


@pytest.mark.parametrize("before", [refused, expired, applied])
def test_what_was_just_asked_for_is_approved_again_only_with_a_new_reason(before: object) -> None:
    assert callable(before)
    story = before()
    first = story.request
    asked_again(story)
    assert story.request != first
    assert story.run.requests[story.request].asked_before == first
    assert not is_approved(story)
    assert "exactly this was asked for" in story.wanted(Notify).text
    assert not is_approved(story, reason="  ")
    assert is_approved(story, reason="the queue has doubled since")
    assert story.run.requests[story.request].decision_reason == "the queue has doubled since"


def test_that_another_incident_asked_for_it_changes_nothing() -> None:
    found = PlanResult(outcome="planned", plan=builders.plan(), asked_before="INC-6/R3")
    story = Story().opened().reads(0.95).chooses("grow").planned(found).posted()
    assert not is_approved(story)
    assert "exactly this was asked for" in story.wanted(Notify).text
    assert is_approved(story, reason="the other incident was about a test")


@pytest.mark.parametrize("before", [refused, expired, applied])
def test_half_an_hour_later_it_is_an_ordinary_request(before: object) -> None:
    assert callable(before)
    story = asked_again(before(), after=HALF_HOUR)
    assert story.run.requests[story.request].asked_before == ""
    assert is_approved(story)


def test_another_plan_is_another_request() -> None:
    story = asked_again(refused(), choices={"to": 6})
    assert is_approved(story)


def test_what_puts_things_back_may_be_done_again_without_another_reason() -> None:
    back = builders.plan(steps=(builders.call(restores=True),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=back)).posted()
    story.presses("approve").settles().watched("not_held")
    story.chooses("grow").planned(PlanResult(outcome="planned", plan=back)).posted()
    assert is_approved(story)


def test_a_grant_that_lapsed_was_a_yes_and_is_asked_for_again_as_before() -> None:
    story = Story().granted().settles("lapsed", detail="it took too long")
    story.planned(PlanResult(outcome="planned", plan=builders.plan()))
    asked = story.run.requests[story.request]
    assert (len(story.run.requests), asked.asked_before) == (2, "")


def test_of_several_that_asked_for_it_the_newest_is_named() -> None:
    first, second = builders.request(status="refused"), builders.request(status="refused", request_id="R2")
    ended = {"decided_at": builders.START}
    earlier = [one.model_copy(update=ended) for one in (first, second)]
    assert asked_before(builders.plan(), earlier, at=builders.START + 1) == "R2"


@pytest.mark.parametrize(
    ("fields", "needs_a_reason"),
    [
        pytest.param({"status": "refused", "decided_at": builders.START}, True, id="refused"),
        pytest.param({"status": "withdrawn", "expires_at": builders.START}, False, id="withdrawn"),
        pytest.param({"status": "granted", "outcome": "done", "ended_at": builders.START}, True, id="applied"),
        pytest.param({"status": "granted", "outcome": "failed", "ended_at": builders.START}, False, id="failed"),
    ],
)
def test_only_a_no_a_silence_or_a_success_makes_the_next_one_need_a_reason(
    fields: dict[str, Any], needs_a_reason: bool
) -> None:
    earlier = (builders.request(**fields),)
    assert bool(asked_before(builders.plan(), earlier, at=builders.START + 1)) == needs_a_reason


def test_one_call_that_changes_something_is_enough_to_need_a_reason() -> None:
    plan = builders.plan(steps=(builders.call(), builders.call(restores=True)))
    earlier = (builders.request(plan=plan, status="granted", outcome="done", ended_at=builders.START),)
    assert asked_before(plan, earlier, at=builders.START + 1) == "R1"
