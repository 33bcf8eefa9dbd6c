"""Actions on a request besides approval: edit, extend, break the glass, press twice or on a copy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.domain.approvals.announced import PreApproved
from bot.domain.approvals.grant import Demand
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import ApplyStep, Notify, PlanChange
from bot.domain.incidents.event import AlertChanged, Due, Planned
from bot.domain.incidents.run import Severity
from tests import builders
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast

PLAN = builders.plan(choices={"to": 5})
LARGER = builders.plan(choices={"to": 6}, title="Scale llm from 4 to 6")
SERVING, LEAD = Demand(team="serving", users=("ana",)), Demand(team="lead", users=("lea",))
BOTH = builders.policy(demands=(SERVING, Demand(team="model", users=("mia",))))


def asked(severity: Severity = "page", *, glass: bool = False, **policy: Any) -> Story:
    """A request to scale to 5 that Ana asked for; with `glass`, Lea leads."""
    story = Story()
    rules: dict[str, Any] = {"teams": {"lead": LEAD}, "escalate_to": "lead", "break_glass": "lead"} if glass else {}
    if policy or glass:
        rules["low"] = BOTH.model_copy(update=policy)
    approvals = story.rules.approvals.model_copy(update=rules)
    story.rules = story.rules.model_copy(update={"approvals": approvals})
    story.run = story.run.with_(severity=severity)
    return story.opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=PLAN)).posted()


def planned_anew(story: Story, result: PlanResult) -> Story:
    effect = story.wanted(PlanChange).effect_id
    story.happens(Planned(event_id=story.id(), effect_id=effect, result=result))
    return story


def edits(story: Story, replicas: str, user: str = "ana") -> Story:
    request = story.run.requests[story.request]
    press = builders.press(
        press_id=story.id(), action="edit", about=request.request_id, digest=request.digest, user=user,
        value=json.dumps({"replicas": replicas}),
    )  # fmt: skip
    return story.judged(press)


def breaks_glass(story: Story, *, reason: str = "users are cut off", team: str = "lead", **press: Any) -> Story:
    request = story.run.requests[story.request]
    pressed = builders.press(
        press_id=story.id(), action="break_glass", about=request.request_id, digest=request.digest, reason=reason,
        **({"user": "lea"} | press),
    )  # fmt: skip
    return story.judged(pressed, teams=(team,))


def half_time(story: Story) -> Story:
    deadline = f"request:{story.request}:half"
    due_at = story.run.deadlines[deadline]
    story.at = due_at
    story.happens(Due(event_id=story.id(), deadline=deadline, due_at=due_at))
    return story


# --- edits ------------------------------------------------------------------------------------------------------------


def test_an_edit_supersedes_the_request_and_is_planned_before_anybody_is_asked() -> None:
    story = edits(asked(), "6")
    assert (story.run.requests["R2"].status, story.run.requests["R2"].decided_by) == ("superseded", "ana")
    assert story.run.visit.machine_state == "grow/planning"
    change = story.run.change
    assert change is not None
    assert (change.values, change.edited_by) == ({"replicas": 6}, "ana")
    assert story.kinds() == ["plan_change"]
    planned_anew(story, PlanResult(outcome="planned", plan=LARGER))
    newer = story.run.requests["R3"]
    assert (newer.status, newer.edited_by, newer.plan.choices) == ("open", "ana", {"to": 6})
    assert story.run.visit.machine_state == "grow/awaiting"


def test_an_approval_of_the_old_request_does_not_count_for_the_edited_one() -> None:
    story = asked(needed=2, demands=(Demand(needed=2, users=("ana", "ben", "cay")),)).presses("approve", user="ben")
    planned_anew(edits(story, "6", user="cay"), PlanResult(outcome="planned", plan=LARGER))
    assert story.run.requests["R3"].presses == ()


def test_the_person_who_edited_a_request_may_approve_it() -> None:
    story = edits(asked(demands=(Demand(users=("ana", "ben")),)), "6", user="ben")
    planned_anew(story, PlanResult(outcome="planned", plan=LARGER)).posted().presses("approve", user="ben")
    assert story.run.visit.machine_state == "grow/applying"


def test_edited_values_are_asked_about_even_where_the_settings_pre_approve_them() -> None:
    story, rule = asked(), PreApproved(change="scale", at_most=1)
    edits(story, "6")
    approvals = story.rules.approvals.model_copy(update={"pre_approved": (rule,)})
    story.rules = story.rules.model_copy(update={"approvals": approvals})
    planned_anew(story, PlanResult(outcome="planned", plan=LARGER))
    assert story.run.requests["R3"].status == "open", "the form says that an edit approves nothing"
    assert not any(isinstance(effect, ApplyStep) for effect in story.effects)


def test_an_edit_that_cannot_be_planned_is_reported_and_the_playbooks_values_come_back() -> None:
    story = edits(asked(), "900")
    planned_anew(story, PlanResult(outcome="impossible", reason="0 free accelerators"))
    assert any("The edited values cannot be applied: 0 free" in text for text in story.texts("planned"))
    assert story.run.posts[-1].data["text"].startswith("The edited values cannot be applied")
    assert story.run.question == ""
    planned_anew(story, PlanResult(outcome="planned", plan=PLAN))
    again = story.run.requests["R4"]
    assert (again.edited_by, again.plan.choices, again.status) == ("", {"to": 5}, "open")


@pytest.mark.parametrize("replicas", ["0", "5", "many"])
def test_values_out_of_range_or_unchanged_leave_the_request_open(replicas: str) -> None:
    story = edits(asked(), replicas)
    assert story.run.requests["R2"].status == "open"
    assert "didn't count" in story.wanted(Notify).text


def test_an_edit_of_a_plan_that_is_not_the_newest_does_not_count() -> None:
    story = asked()
    old = builders.press(press_id="e", action="edit", about="R2", digest="0ld", value='{"replicas": "6"}')
    story.judged(old)
    assert "the plan changed after this form was opened; use the newer request" in story.wanted(Notify).text
    assert story.run.requests["R2"].status == "open"


def test_an_edit_on_the_deadline_is_too_late() -> None:
    story = asked()
    request = story.run.requests["R2"]
    late = builders.press(press_id="e", action="edit", about="R2", digest=request.digest, value='{"replicas": "6"}')
    story.judged(late, at=request.expires_at)
    assert "its deadline has passed" in story.wanted(Notify).text
    assert story.run.requests["R2"].status == "open"


# --- reasons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["approve", "refuse"])
def test_a_secret_in_the_reason_of_a_decision_is_not_shown(action: str) -> None:
    plan = builders.plan(risk="high")
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    story.presses(action, reason="tried it with PASSWORD=hunter2")
    assert story.run.requests["R2"].decision_reason == "tried it with PASSWORD=(masked)"


# --- more time --------------------------------------------------------------------------------------------------------


def test_more_time_is_given_once_and_is_on_the_timeline() -> None:
    story = asked()
    before = story.run.requests["R2"].expires_at
    assert before is not None
    story.presses("more_time", user="ben")
    extended = story.run.requests["R2"]
    assert (extended.expires_at, extended.extended_by) == (before + 900, "ben")
    assert story.run.deadlines["request:R2:expiry"] == before + 900
    assert "15 more minutes for R2" in story.texts("request")
    story.presses("more_time", user="ana")
    assert "<@ben> has already asked for more time" in story.wanted(Notify).text
    assert story.run.requests["R2"].expires_at == before + 900


def test_the_old_deadline_of_an_extended_request_decides_nothing() -> None:
    story = asked()
    due_at = story.run.deadlines["request:R2:expiry"]
    story.presses("more_time", user="ben")
    story.happens(Due(event_id="old", deadline="request:R2:expiry", due_at=due_at))
    assert story.run.requests["R2"].status == "open"


def test_time_that_is_over_cannot_be_made_longer() -> None:
    story = asked()
    story.presses("more_time", user="ben", at=story.run.requests["R2"].expires_at)
    assert "its deadline has passed" in story.wanted(Notify).text


def test_a_request_that_is_not_posted_yet_has_no_time_to_make_longer() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned().presses("more_time")
    assert "its time has not started" in story.wanted(Notify).text
    assert story.run.requests[story.request].extended_by == ""


# --- the glass --------------------------------------------------------------------------------------------------------


def test_after_half_time_one_lead_may_decide_alone_with_a_reason_that_everybody_reads() -> None:
    story = half_time(asked(glass=True))
    assert story.run.requests["R2"].half_passed
    assert "half of the time for R2 has passed; asked again, and lead too" in story.texts("request")
    [note] = [post.data["text"] for post in story.run.posts if post.slot == "half:R2"]
    assert " left to decide: " in note
    assert "Without an approval nothing changes" in note
    story.presses("approve", user="ana", teams=("serving",))
    breaks_glass(story)
    granted = story.run.requests["R2"]
    assert (granted.status, granted.decided_by, granted.decision_reason) == ("granted", "lea", "users are cut off")
    assert story.wanted(ApplyStep).request_id == "R2"
    notice = next(post for post in story.run.posts if post.slot == "glass:R2")
    assert (notice.data["ping"], "users are cut off" in notice.data["text"]) == ("all", True)


def test_the_glass_can_be_broken_for_a_request_that_was_open_before_the_incident_became_critical() -> None:
    story = asked("ticket", glass=True)
    breaks_glass(half_time(story))
    assert "only in a critical incident" in story.wanted(Notify).text
    alert = builders.alert(fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    story.happens(AlertChanged(event_id=story.id(), alert=alert))
    breaks_glass(story)
    assert story.run.requests["R2"].decided_by == "lea"


def test_the_glass_stays_whole_before_half_time() -> None:
    story = breaks_glass(asked(glass=True))
    assert "half of the time" in story.wanted(Notify).text
    assert story.run.requests["R2"].status == "open"


@pytest.mark.parametrize(
    ("press", "why"),
    [
        pytest.param({"team": "serving", "user": "ana"}, "only one of lead", id="not-a-lead"),
        pytest.param({"reason": "  "}, "needs a reason", id="no-reason"),
    ],
)
def test_who_may_not_break_the_glass_reads_why(press: dict[str, Any], why: str) -> None:
    story = breaks_glass(half_time(asked(glass=True)), **press)
    assert why in story.wanted(Notify).text
    assert story.run.requests["R2"].status == "open"


def test_the_glass_stays_whole_once_somebody_of_every_team_has_approved() -> None:
    demands = (SERVING.model_copy(update={"needed": 2}), Demand(team="model", users=("mia",)))
    story = half_time(asked(glass=True, demands=demands))
    story.presses("approve", user="ana", teams=("serving",)).presses("approve", user="mia", teams=("model",))
    breaks_glass(story)
    assert "somebody of every team has approved" in story.wanted(Notify).text
    request = story.run.requests["R2"]
    assert (request.status, [judged.press.action for judged in request.presses]) == ("open", ["approve", "approve"])


def test_a_lead_who_is_not_asked_cannot_approve_and_what_he_edited_needs_somebody_else() -> None:
    story = asked(glass=True)
    story.presses("approve", user="lea", teams=("lead",))
    assert "you may only break the glass" in story.wanted(Notify).text
    planned_anew(edits(story, "6", user="lea"), PlanResult(outcome="planned", plan=LARGER)).posted()
    breaks_glass(half_time(story))
    assert "somebody else must approve what you edited" in story.wanted(Notify).text
    assert story.run.requests["R3"].status == "open"


def test_there_is_no_glass_in_an_incident_that_is_not_critical() -> None:
    story = breaks_glass(half_time(asked("ticket", glass=True)))
    assert "only in a critical incident" in story.wanted(Notify).text


def test_breaking_the_glass_after_an_approval_of_ones_own_is_no_second_approval() -> None:
    serving_leads = SERVING.model_copy(update={"team": "lead", "users": ("lea",), "needed": 1})
    story = asked(glass=True, demands=(serving_leads, Demand(team="model", users=("mia",))))
    story.presses("approve", user="lea", teams=("lead",))
    breaks_glass(half_time(story))
    assert (story.run.requests["R2"].status, story.run.requests["R2"].decided_by) == ("granted", "lea")


# --- quiet answers ----------------------------------------------------------------------------------------------------


def test_a_second_press_says_what_it_waits_for_and_is_counted_once_on_the_timeline() -> None:
    story = asked(demands=(Demand(needed=2, users=("ana", "ben")),))
    for _ in range(4):
        story.presses("approve", user="ben")
    assert "you have approved this already; 1 more approval needed" in story.wanted(Notify).text
    assert len([text for text in story.texts("press") if "does not count" in text]) == 1
    assert len(story.run.requests["R2"].presses) == 1


def test_a_press_on_an_old_card_names_the_request_that_waits() -> None:
    story = edits(asked(), "6")
    planned_anew(story, PlanResult(outcome="planned", plan=LARGER))
    old = builders.press(press_id="old", about="R2", digest=PLAN.digest, user="ben")
    for _ in range(3):
        story.judged(old)
    assert story.wanted(Notify).text.endswith(
        "request R2 was already replaced by <@ana>; R3 is the one that is waiting."
    )
    assert len([text for text in story.texts("press") if "R2" in text and "approve" in text]) == 2
    assert story.run.requests["R3"].status == "open"


def test_an_answer_to_a_question_that_was_left_behind_does_not_count() -> None:
    story = Story().opened().reads(0.95)
    asked_then = story.run.question
    story.run = story.run.with_(question="")
    story.chooses("grow", about=asked_then)
    assert story.run.visit.state == "choose"
    assert story.wanted(Notify).text == f"⚠️ That didn't count: question {asked_then} was already withdrawn."


@pytest.mark.parametrize(
    ("place", "why"),
    [
        pytest.param({"channel": "C9"}, "a copy in another channel", id="another-channel"),
        pytest.param({"message_ts": "9.9"}, "that is a copy", id="another-message"),
    ],
)
def test_a_press_on_a_copy_does_not_count_and_names_the_original(place: dict[str, str], why: str) -> None:
    story = asked()
    press = builders.press(press_id="copy", about="R2", digest=PLAN.digest, user="ben", **place)
    story.judged(press)
    assert why in story.wanted(Notify).text
    assert story.run.visit.machine_state == "grow/awaiting"
    story.judged(press.model_copy(update={"press_id": "own", "channel": "C1", "message_ts": "1.1"}))
    assert story.run.requests["R2"].status == "granted"


# --- what a playbook may not do ---------------------------------------------------------------------------------------


def test_a_playbook_may_shorten_the_time_and_never_lengthen_it() -> None:
    story = asked(expires_seconds=30.0)
    assert story.run.requests["R2"].policy.expires_seconds == 30.0


# --- the lead ---------------------------------------------------------------------------------------------------------


def offers_of_the_lead(story: Story) -> int:
    return sum("Take the lead" in effect.text for effect in story.effects if isinstance(effect, Notify))


def opened_as(severity: Severity) -> Story:
    story = Story()
    story.run = story.run.with_(severity=severity)
    return story.opened().reads(0.95)


def test_the_first_person_who_decides_is_offered_the_lead_once() -> None:
    story = opened_as("page").chooses("grow")
    assert offers_of_the_lead(story) == 1
    story.planned(PlanResult(outcome="planned", plan=PLAN)).posted().presses("refuse")
    assert offers_of_the_lead(story) == 1


def test_nobody_is_offered_a_lead_that_somebody_has_or_that_is_not_urgent() -> None:
    led = opened_as("page")
    led.run = led.run.with_(lead="lea")
    assert offers_of_the_lead(led.chooses("grow")) == 0
    assert offers_of_the_lead(opened_as("ticket").chooses("grow")) == 0
