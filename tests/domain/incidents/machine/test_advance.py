"""The rules of a run: the result of each event, and that late, repeated or strange ones change nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bot.adapters.slack.outbound.messages import thread
from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import (
    ApplyStep,
    ExportTimeline,
    JudgePress,
    Notify,
    PlanChange,
    ReadSignals,
    ReleaseLeases,
    WatchSignals,
)
from bot.domain.incidents.event import AlertChanged, Due, EffectFailed, Posted, Progressed, SignalsRead
from bot.domain.incidents.machine import set_aside
from bot.domain.incidents.run import Halt
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests import builders
from tests.domain.incidents.machine.steps import BUNDLE, TEXT, TWO_STEPS, Story

pytestmark = pytest.mark.fast


# --- opening, reading, asking ---------------------------------------------------------------------------------------


def test_the_first_alert_opens_the_run_and_reads_the_start_state() -> None:
    story = Story().opened()
    assert (story.run.visit.state, story.run.visit.number) == ("look", 1)
    assert story.wanted(ReadSignals).names == ("usage",)
    assert story.entries[0].kind == "opened"
    assert story.entries[0].data["incident"] == "INC-1"


@pytest.mark.parametrize(
    ("usage", "goes_to"),
    [
        pytest.param(0.95, "choose", id="first clause that is true"),
        pytest.param(0.5, "calm", id="otherwise"),
        pytest.param(None, "choose", id="unknown goes its own way"),
    ],
)
def test_a_read_goes_where_its_clauses_say(usage: float | None, goes_to: str) -> None:
    assert Story().opened().reads(usage).run.visit.state == goes_to


def test_the_first_baseline_is_kept_for_good() -> None:
    story = Story().opened().reads(0.95)
    assert story.run.findings.baseline["usage"].value == 0.95
    assert story.texts("baseline") == ["baseline kept before any change"]


def test_readings_for_a_state_that_was_left_are_ignored_and_on_the_timeline() -> None:
    story = Story().opened().reads(0.95)
    before = story.run
    story.reads(0.2)
    assert story.run.visit.state == before.visit.state
    assert story.texts("ignored") == ["readings for a state that was left"]


def test_identical_strange_events_are_folded_into_a_count() -> None:
    story = Story().opened().reads(0.95).reads(0.2).reads(0.2)
    assert story.texts("ignored") == ["readings for a state that was left"]
    assert story.run.ignored == {"readings for a state that was left": 2}


def test_a_question_is_answered_once_and_the_loser_reads_who_did() -> None:
    story = Story().opened().reads(0.95)
    question = story.run.question
    story.chooses("grow", user="ana").chooses("stop", about=question, user="ben")
    assert story.run.visit.state == "grow"
    assert "was already answered by <@ana>" in story.wanted(Notify).text


def test_a_press_is_judged_before_anything_is_decided() -> None:
    story = Story().opened().reads(0.95)
    story.chooses("grow", allowed=False)
    assert JudgePress in {type(effect) for effect in story.effects}
    assert story.run.visit.state == "choose"
    assert "not on the list" in story.wanted(Notify).text


def test_a_choice_that_the_question_does_not_have_is_refused() -> None:
    story = Story().opened().reads(0.95).chooses("explode")
    assert story.run.visit.state == "choose"
    assert "'explode' is not a choice" in story.wanted(Notify).text


def test_a_question_that_nobody_answers_expires_where_the_playbook_says() -> None:
    story = Story().opened().reads(0.95)
    story.due(f"question:{story.run.question}:expiry")
    assert story.run.visit.state == "left"


# --- requests and grants --------------------------------------------------------------------------------------------


def test_a_change_is_planned_and_put_to_people_before_anything_is_applied() -> None:
    story = Story().opened().reads(0.95).chooses("grow")
    assert story.wanted(PlanChange).state == "grow"
    story.planned()
    assert story.run.visit.machine_state == "grow/awaiting"
    assert ApplyStep not in {type(effect) for effect in story.effects}


def test_a_requests_time_begins_when_it_is_posted() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned()
    assert story.run.requests[story.request].expires_at is None
    story.posted()
    assert story.run.requests[story.request].expires_at == story.at + 900


def test_a_repeated_posted_event_does_not_lengthen_a_requests_time() -> None:
    story = Story().asked()
    expires_at = story.run.requests[story.request].expires_at
    story.posted()
    assert story.run.requests[story.request].expires_at == expires_at


def test_a_press_that_counts_grants_and_the_first_step_is_applied() -> None:
    story = Story().granted()
    assert story.run.visit.machine_state == "grow/applying"
    assert story.wanted(ApplyStep).step == 0
    assert story.run.requests[story.request].decided_by == "ana"


@pytest.mark.parametrize(
    ("press", "why"),
    [
        pytest.param({"allowed": False}, "not on the list", id="stranger"),
        pytest.param({"digest": "0ld"}, "the plan changed", id="old button"),
        pytest.param({"at": builders.START + 10_000}, "expired", id="after the deadline"),
    ],
)
def test_a_press_that_does_not_count_changes_nothing_and_says_why(press: dict[str, Any], why: str) -> None:
    story = Story().asked()
    story.presses("approve", **press)
    assert story.run.visit.machine_state == "grow/awaiting"
    assert why in story.wanted(Notify).text


def test_two_people_are_needed_where_the_policy_says_so() -> None:
    story = Story()
    story.rules = story.rules.model_copy(
        update={"approvals": story.rules.approvals.model_copy(update={"low": builders.policy(needed=2)})}
    )
    story.asked().presses("approve", user="ana")
    assert story.run.visit.machine_state == "grow/awaiting"
    story.presses("approve", user="ana")
    assert "you have approved this already; 1 more approval needed" in story.wanted(Notify).text
    story.presses("approve", user="ben")
    assert story.run.visit.machine_state == "grow/applying"


def test_a_plan_that_asks_for_teams_waits_for_each_of_them() -> None:
    plan = builders.plan(approved_by=("platform", "serving"))
    story = Story()
    story.rules = builders.four_eyes(story.rules)
    story.opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    assert [demand.falls_back for demand in story.run.requests[story.request].policy.demands] == [True, True]
    story.presses("approve", user="ana", teams=("serving",))
    assert story.run.requests[story.request].status == "open"
    assert "approval 1 of 2: 1 more approval needed from platform" in story.texts("press")
    story.presses("approve", user="ben", teams=("serving",))
    assert story.run.requests[story.request].status == "open"
    story.presses("approve", user="pia", teams=("platform",))
    assert story.run.requests[story.request].status == "granted"


def test_a_request_is_decided_once() -> None:
    story = Story().asked().presses("refuse", user="ben")
    assert story.run.visit.state == "choose"
    story.happens(Posted(event_id="late", slot="request:R2", ts="1", channel="C1"))
    story.presses("approve", user="ana")
    assert "was already refused by <@ben>" in story.wanted(Notify).text


def test_a_press_on_an_expired_request_says_so_and_what_waits_now() -> None:
    story = Story().asked()
    request = story.request
    story.due(f"request:{request}:expiry")
    assert story.run.open_question is not None
    story.judged(builders.press(press_id="late", about=request, user="ana"))
    told = story.wanted(Notify).text
    assert f"request {request} has expired; the newest question in the thread waits for an answer" in told


def test_a_refusal_needs_authority_too() -> None:
    story = Story().asked().presses("refuse", allowed=False)
    assert story.run.visit.machine_state == "grow/awaiting"


def test_an_expired_request_is_never_applied_later() -> None:
    story = Story().asked()
    request = story.request
    story.due(f"request:{request}:expiry")
    assert story.run.requests[request].status == "expired"
    assert story.run.open_question is not None
    story.presses("approve")
    assert ApplyStep not in {type(effect) for effect in story.effects}


def test_at_half_time_it_is_asked_again() -> None:
    story = Story().asked()
    story.due(f"request:{story.request}:half")
    assert any(post.slot.startswith("half:") for post in story.run.posts)
    assert story.run.visit.machine_state == "grow/awaiting"


def test_when_all_alerts_resolve_a_waiting_request_needs_a_fresh_press() -> None:
    story = Story().asked()
    pressed_before = story.at
    story.happens(AlertChanged(event_id="resolved", alert=builders.alert("resolved")))
    story.presses("approve", at=pressed_before)
    assert story.run.visit.machine_state == "grow/awaiting"
    story.presses("approve", user="ben")
    assert story.run.visit.machine_state == "grow/applying"


def test_a_plan_that_is_superseded_is_asked_for_again() -> None:
    story = Story().granted()
    first = story.request
    other = PlanResult(outcome="planned", plan=builders.plan(choices={"to": 6}))
    story.settles("superseded", replanned=other, detail="there are 5 now", call_id="")
    assert story.run.requests[first].status == "superseded"
    assert story.request != first
    assert story.run.visit.machine_state == "grow/awaiting"


def test_a_plan_that_keeps_changing_goes_to_people() -> None:
    story = Story()
    story.rules = story.rules.model_copy(update={"replans_at_most": 1})
    story.granted()
    other = PlanResult(outcome="planned", plan=builders.plan(choices={"to": 6}))
    story.settles("superseded", replanned=other, detail="moved").posted().presses("approve")
    story.settles("superseded", replanned=other, detail="moved again")
    assert story.run.open_question is not None
    assert "moved again" in story.run.open_question.text


@pytest.mark.parametrize(
    ("outcome", "built_in_says"),
    [("not_needed", "reason is gone"), ("impossible", "no GPU"), ("failed", "the cluster cannot be read")],
)
def test_what_the_playbook_leaves_open_becomes_a_question(outcome: str, built_in_says: str) -> None:
    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult.model_validate({"outcome": outcome, "reason": built_in_says}))
    question = story.run.open_question
    assert question is not None
    assert question.built_in
    assert built_in_says in question.text
    assert {"again", "goto:watch", "hand_over", "close"} <= set(question.choices)


@pytest.mark.parametrize(
    ("change", "results"),
    [
        pytest.param("scale\n    with: {by: 1}", ["not_needed"], id="a change that people may expect"),
        pytest.param("remove_canary", [], id="a clean-up of nothing"),
        pytest.param("undo\n    with: {of: autoscaler}", [], id="bounds that nobody raised"),
        pytest.param("undo\n    with: {of: last}", ["not_needed"], id="an undo that people may expect"),
    ],
)
def test_people_read_that_a_change_was_not_needed_unless_it_only_cleans_up(change: str, results: list[str]) -> None:
    text = TEXT.replace("scale\n    with: {by: 1}", change).replace(
        "    done: watch\n", "    done: watch\n    not_needed: watch\n"
    )
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="not_needed", reason="there is none"))
    assert story.run.visit.state == "watch"
    assert [news.result for news in story.run.news] == results


# --- applying -------------------------------------------------------------------------------------------------------


def test_steps_are_applied_one_after_the_other_and_each_call_is_in_the_ledger() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted()
    story.presses("approve")
    story.settles()
    assert story.wanted(ApplyStep).step == 1
    story.settles(call_id="")
    assert story.wanted(ApplyStep).step == 2
    story.settles()
    assert story.run.visit.state == "watch"
    assert [entry.call_id for entry in story.run.ledger] == ["INC-1/R2/0", "INC-1/R2/2"]
    assert ReleaseLeases in {type(effect) for effect in story.last.effects}


def test_an_outcome_that_comes_twice_counts_once() -> None:
    story = Story().applied()
    assert story.run.visit.state == "watch"
    settled = story.run.ledger
    story.run = story.run.with_(change=None)
    late = {"request_id": "R2", "step": 0, "effect_id": "v3/apply", "event_id": "again", "call_id": "INC-1/R2/0"}
    from bot.domain.incidents.event import StepSettled

    story.happens(StepSettled.model_validate(late | {"result": "done"}))
    assert story.run.ledger == settled


@pytest.mark.parametrize("result", ["failed", "unclear"])
def test_a_call_that_did_not_go_well_is_never_repeated_blindly(result: str) -> None:
    story = Story().granted().settles(result, detail="no answer")
    assert story.run.open_question is not None
    assert "apply_step" not in story.kinds()


def test_a_lapsed_grant_is_planned_and_asked_again() -> None:
    story = Story().granted().settles("lapsed", detail="10 minutes")
    assert story.run.visit.machine_state == "grow/planning"
    assert "plan_change" in story.kinds()


def test_a_reason_that_cannot_be_read_again_asks() -> None:
    story = Story().granted().settles("still_unknown", detail="the page did not answer")
    assert story.run.open_question is not None
    assert "Nothing was changed" in story.run.open_question.text


def test_a_change_that_a_breaker_holds_back_is_neither_failed_nor_undone() -> None:
    story = Story().applied().watched("not_held").chooses("grow").planned().posted()
    second = story.presses("approve", reason="one more is needed").request
    story.settles("withheld", detail="the breaker is open")
    assert story.run.open_question is not None
    assert "was not started: the breaker is open. Nothing was changed." in story.run.open_question.text
    assert story.run.open_question.choices["undo"] == "Undo “scale llm from 4 to 5”"
    assert story.run.requests[second].status == "withdrawn"
    assert [entry.undone_by for entry in story.run.ledger] == [""]


def test_a_change_that_is_held_back_half_way_is_failed() -> None:
    plan = builders.plan()
    two = plan.model_copy(update={"steps": (*plan.steps, *plan.steps)})
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=two)).posted()
    story.presses("approve").settles().settles("withheld", detail="waited 10 minutes")
    assert "scale: failed — waited 10 minutes" in story.texts("outcome")


def test_the_question_that_no_playbook_wrote_calls_states_by_their_titles() -> None:
    titled = TEXT.replace("  grow:\n", "  grow:\n    title: One more replica\n")
    assert titled != TEXT
    lacking = PlanResult(outcome="unknown", reason="the cluster does not answer")
    story = Story(Bundle.of(load_text(titled, file="small.yaml"))).opened().reads(0.95).chooses("grow").planned(lacking)
    question = story.run.open_question
    assert question is not None
    assert question.choices["again"] == "Try again: One more replica"
    assert not [label for label in question.choices.values() if "'" in label]


def test_a_still_that_rests_on_what_was_not_read_leads_back_to_where_it_is_read() -> None:
    lacking = PlanResult(outcome="unknown", reason="not known", missing=("results.look.usage",))
    text = TEXT.replace("still: usage > settings.ceiling", "still: usage >= results.look.usage")
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95).chooses("grow").planned(lacking)
    question = story.run.open_question
    assert question is not None
    assert question.choices["goto:look"] == "Read again: look"
    assert "again" not in question.choices
    story.chooses("goto:look")
    assert (story.run.visit.state, story.kinds()[-1]) == ("look", "read_signals")


def test_a_halt_stops_at_the_next_call_and_resume_goes_on_with_it() -> None:
    story = Story().granted().says("halt").settles("halted", detail="the kill switch is on", call_id="")
    assert story.run.halt == Halt(by="ana")
    assert "apply_step" not in story.kinds()
    story.says("resume")
    assert story.wanted(ApplyStep).step == 0
    assert not story.run.is_halted
    assert story.run.change is not None
    assert story.run.change.step_started_at == story.at, "the time of the halt does not count against its patience"


# --- watching, undo, ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "goes_to"), [("held", "calm"), ("not_held", "choose"), ("broke", "choose")], ids=str
)
def test_a_watch_goes_where_its_verdict_says(verdict: str, goes_to: str) -> None:
    story = Story().applied()
    assert story.wanted(WatchSignals).state == "watch"
    story.watched(verdict, broke=0 if verdict == "broke" else None)
    assert story.run.visit.state == goes_to


def test_an_unknown_verdict_is_no_verdict() -> None:
    story = Story().applied().watched("unknown", detail="no page answered")
    assert story.run.open_question is not None
    assert story.run.is_open


def test_undo_goes_the_way_of_every_change() -> None:
    story = Story().applied().says("undo")
    assert story.run.visit.machine_state == "(undo)/planning"
    back = builders.plan(verb="undo", title="Scale back", steps=(builders.call().undo[0],))
    story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve").settles()
    assert story.run.held == ()
    assert story.run.open_question is not None
    assert story.run.open_question.text == "The undo is done. What next?"
    assert "goto:calm" not in story.run.open_question.choices, "that a watch held is not for people to say"


def test_an_undo_waits_for_the_call_that_may_be_on_its_way() -> None:
    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted().presses("approve").settles()
    story.says("halt").says("undo")
    assert story.run.visit.state == "grow", "it waits for its replicas: nothing is on its way"
    assert story.run.visit.machine_state == "(undo)/planning"

    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted().presses("approve").settles().settles()
    story.says("halt").says("undo")
    assert story.run.visit.machine_state == "grow/applying"
    assert "A call is under way" in story.run.posts[-1].data["text"]
    story.settles("halted").says("undo")
    assert story.run.visit.machine_state == "(undo)/planning"


def test_undo_without_anything_to_undo_says_so() -> None:
    story = Story().asked().says("undo")
    assert "nothing to undo" in story.texts("note")[-1].lower()
    assert story.run.visit.machine_state == "grow/awaiting"


def test_an_end_closes_the_run_and_voids_what_was_under_way() -> None:
    story = Story().applied().watched("held")
    assert story.run.ending == "fixed"
    assert not story.run.is_open
    assert story.run.deadlines == {}


def test_the_timeline_is_exported_once_the_end_stands_in_slack() -> None:
    story = Story().applied().watched("held")
    slot = story.run.posts[-1].slot
    story.happens(Posted(event_id="p", slot=slot, ts="1", channel="C1"))
    assert story.wanted(ExportTimeline).format == "md"
    story.happens(Posted(event_id="p2", slot=slot, ts="1", channel="C1"))
    assert "export_timeline" not in story.kinds()


def test_an_alert_that_was_no_case_for_the_playbook_leaves_no_file_in_slack() -> None:
    no_case = Bundle.of(load_text(TEXT.replace("end: fixed", "end: not_applicable")))
    at_once = Story(no_case).opened().reads(0.5)
    asked = Story(no_case).opened().reads(0.95).chooses("stop")
    fixed = Story().opened().reads(0.5)
    for story in (at_once, asked, fixed):
        assert not story.run.is_open
        story.happens(Posted(event_id="p", slot=story.run.posts[-1].slot, ts="1", channel="C1"))
    assert [("export_timeline" in story.kinds()) for story in (at_once, asked, fixed)] == [False, True, True]


def test_no_end_is_reached_while_a_canary_is_held_and_taking_it_back_undoes_the_canary_only() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    story.presses("approve").settles()
    ledger = story.run.ledger
    later = ledger[0].model_copy(update={"call_id": "INC-1/R9/0", "verb": "set_flags", "title": "The fix"})
    story.run = story.run.with_(ledger=(*ledger, later))
    story.watched("held")
    assert story.run.is_open
    assert story.run.open_question is not None
    assert "Create the canary" in story.run.open_question.text
    story.chooses("undo")
    assert story.run.change is not None
    assert story.run.change.undo_of == (ledger[0].call_id,)


def test_resolving_by_hand_closes_and_withdraws_what_waits() -> None:
    story = Story().asked().says("resolve", text="it was a test")
    assert story.run.ending == "resolved_by_hand"
    assert story.run.requests["R2"].status == "withdrawn"


def test_who_resolves_what_a_change_is_left_of_is_named_with_the_reason_where_people_are_asked() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    story.presses("approve").settles().says("resolve", text="a load test, HF_TOKEN=abcdefgh")
    assert story.run.open_question is not None
    assert story.run.open_question.text.startswith(
        "ana wants to close it: a load test, HF_TOKEN=(masked). Still in place: Create the canary. "
    )


def test_who_resolved_by_mistake_goes_on_where_it_was() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    state = story.presses("approve").settles().run.visit.state
    story.says("resolve", text="it is over").says("resolve", text="it is over")
    asked = [each for each in story.run.questions.values() if "keep" in each.choices]
    assert [each.status for each in asked] == ["open"], "asked once"
    story.chooses("stay")
    assert (story.run.is_open, story.run.visit.state, story.run.open_question) == (True, state, None)


def test_a_playbooks_own_question_with_a_choice_called_keep_does_not_hold_up_a_resolution() -> None:
    text = TEXT.replace("      stop: {label: Stop, to: calm}\n", "      keep: {label: Keep it, to: calm}\n")
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95)
    assert story.run.open_question is not None
    assert "keep" in story.run.open_question.choices
    assert story.says("resolve", text="it is over").run.ending == "resolved_by_hand"


def test_nothing_is_closed_while_a_change_is_being_applied() -> None:
    story = Story().granted().says("resolve")
    assert story.run.is_open
    assert story.run.visit.machine_state == "grow/applying"


def test_the_same_trouble_soon_after_the_end_reopens_the_incident() -> None:
    story = Story().opened().reads(0.5)
    assert story.run.ending == "fixed"
    again = builders.alert(starts_at=builders.START + 500)
    story.happens(AlertChanged(event_id="again", alert=again))
    assert story.run.is_open
    assert story.run.visit.state == "look"


def test_a_late_resolve_never_reopens_what_has_started_anew() -> None:
    story = Story().opened()
    story.happens(AlertChanged(event_id="new", alert=builders.alert(starts_at=builders.START + 500)))
    story.happens(AlertChanged(event_id="late", alert=builders.alert("resolved")))
    assert story.run.alerts["f1"].status == "firing"


@pytest.mark.parametrize(
    ("ended_at", "status"),
    [
        pytest.param(499, "firing", id="it ended before this one began"),
        pytest.param(600, "resolved", id="of two Prometheus servers, the one that reports later says an earlier start"),
    ],
)
def test_a_resolve_with_an_earlier_start_counts_if_the_alert_ended_later(ended_at: float, status: str) -> None:
    """Alertmanager takes the earliest start that it knows of, also after it has sent a later one."""
    story = Story().opened()
    story.happens(AlertChanged(event_id="new", alert=builders.alert(starts_at=builders.START + 500)))
    ended = {"ends_at": datetime.fromtimestamp(builders.START + ended_at, UTC)}
    story.happens(AlertChanged(event_id="end", alert=builders.alert("resolved").model_copy(update=ended)))
    assert story.run.alerts["f1"].status == status


def test_an_alert_that_fires_after_it_resolved_fires_though_it_says_the_same_start() -> None:
    story = Story().opened()
    story.happens(AlertChanged(event_id="resolved", alert=builders.alert("resolved")))
    story.happens(AlertChanged(event_id="again", alert=builders.alert()))
    assert story.run.alerts["f1"].status == "firing"
    assert story.run.alerts_resolved_at is None


def test_an_alert_that_goes_on_firing_after_the_end_reopens_the_incident() -> None:
    story = Story().opened().reads(0.5)
    story.happens(AlertChanged(event_id="repeated", alert=builders.alert()))
    assert story.run.is_open


def test_a_repeat_changes_nothing_while_the_incident_is_open() -> None:
    story = Story().opened()
    entries = list(story.entries)
    story.happens(AlertChanged(event_id="repeated", alert=builders.alert()))
    assert story.entries == entries


def test_a_press_after_the_end_is_answered_and_changes_nothing() -> None:
    story = Story().asked().says("resolve")
    story.presses("approve")
    assert "closed" in story.wanted(Notify).text
    assert story.run.ending == "resolved_by_hand"


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_an_effect_that_was_given_up_becomes_a_question() -> None:
    story = Story().opened()
    story.happens(EffectFailed(event_id="f", effect_id="v1/read", effect_kind="read_signals", reason="no route"))
    assert story.run.open_question is not None
    assert "no route" in story.run.open_question.text


def test_a_step_that_was_given_up_is_unclear_and_holds_nobody_up() -> None:
    story = Story().granted()
    step = story.wanted(ApplyStep)
    story.happens(EffectFailed(event_id="f", effect_id=step.effect_id, effect_kind="apply_step", reason="no route"))
    assert story.run.requests["R2"].outcome == "unclear"
    assert "no route" in (story.run.open_question.text if story.run.open_question else "")
    assert story.wanted(ReleaseLeases)
    assert story.says("resolve").run.ending == "resolved_by_hand"


@pytest.mark.parametrize("kind", ["judge_press", "export_timeline"])
def test_what_a_person_waits_for_and_does_not_get_is_posted_in_the_thread(kind: str) -> None:
    story = Story().opened()
    story.happens(EffectFailed(event_id="f", effect_id="about/a-person", effect_kind=kind, reason="missing_scope"))
    assert "missing_scope" in story.run.posts[-1].data["text"]


def test_slack_being_away_is_noted_and_stops_nothing() -> None:
    story = Story().opened()
    story.happens(EffectFailed(event_id="f", effect_id="show", effect_kind="show_in_slack", reason="channel_not_found"))
    assert story.run.open_question is None
    assert story.texts("slack") == ["Slack could not be updated: channel_not_found"]


@pytest.mark.parametrize("answer", ["again", "close", "goto:choose"])
def test_a_request_beside_which_a_person_chooses_another_way_is_withdrawn(answer: str) -> None:
    story = Story().asked()
    event = AlertChanged(event_id="y", alert=builders.alert(fingerprint="f2"), at=story.at)
    story.run = set_aside(story.run, event, "boom", BUNDLE, story.rules).run
    assert story.run.open_request is not None, "it can still be decided"
    story.chooses(answer)
    assert story.run.requests["R2"].status == "withdrawn"
    assert not [name for name in story.run.deadlines if name.startswith("request:R2")]
    story.presses("approve")
    assert not any(isinstance(effect, ApplyStep) for effect in story.effects)


def test_an_event_that_was_set_aside_is_kept_and_asks_a_person() -> None:
    story = Story().opened()
    event = Progressed(event_id="x", effect_id="v1/read", text="t", at=1.0)
    strange = AlertChanged(event_id="y", alert=builders.alert(), at=2.0)
    assert set_aside(story.run, event, "boom", BUNDLE, story.rules).run.question == ""
    decision = set_aside(story.run, strange, "boom", BUNDLE, story.rules)
    assert decision.run.open_question is not None
    assert decision.entries[0].data["event_id"] == "y"


def test_progress_is_shown_and_not_on_the_timeline() -> None:
    story = Story().granted()
    count = len(story.entries)
    story.happens(Progressed(event_id="p", effect_id=f"v{story.run.visit.number}/apply/R2/0/0", text="3 of 4"))
    assert story.run.change is not None
    assert story.run.change.progress == "3 of 4"
    assert len(story.entries) == count


def test_what_a_watch_reads_while_it_waits_is_the_latest_and_decides_nothing() -> None:
    story = Story().granted()
    decided, now = story.run.visit.readings, Reading(name="thrash", value=9.0, at=99.0)
    effect_id = f"v{story.run.visit.number}/apply/R2/0/0"
    story.happens(Progressed(event_id="p", effect_id=effect_id, text="waits", readings={"thrash": now}))
    assert (story.run.latest["thrash"], story.run.visit.readings) == (now, decided)


def test_the_same_run_and_event_give_the_same_decision() -> None:
    one, two = Story().granted(), Story().granted()
    assert one.run == two.run
    assert one.entries == two.entries


def test_a_full_thread_still_takes_what_people_must_see() -> None:
    story = Story()
    story.rules = story.rules.model_copy(update={"keeps_messages_at_most": 1})
    story.opened().reads(0.95)
    for _ in range(3):
        story.says("note", text="seen by nobody in the thread")
    story.chooses("grow").planned()
    assert [post.kind for post in story.run.posts] == ["question", "request"]
    assert len([text for text in story.texts("slack") if "the thread is full" in text]) == 1
    assert story.says("resolve").run.posts[-1].kind == "closed"


# --- one person is enough -------------------------------------------------------------------------------------------


def test_the_person_who_chose_a_change_may_approve_it() -> None:
    story = Story().asked().presses("approve", user="ana")
    assert story.run.visit.machine_state == "grow/applying"


def test_a_high_risk_is_approved_with_a_reason_in_words() -> None:
    story = Story()
    needs_reason = story.rules.approvals.low.model_copy(update={"needs_reason": True})
    approvals = story.rules.approvals.model_copy(update={"risk_floors": {"scale": "high"}, "high": needs_reason})
    story.rules = story.rules.model_copy(update={"approvals": approvals})
    story.asked().presses("approve", user="ana", reason=" ")
    assert story.run.visit.machine_state == "grow/awaiting"
    assert "its risk is high, and approving it needs a reason in words" in story.wanted(Notify).text
    story.presses("approve", user="ana", reason="users wait")
    assert story.run.visit.machine_state == "grow/applying"
    assert story.run.requests[story.request].decision_reason == "users wait"


def test_alerts_that_alertmanager_left_out_are_reported() -> None:
    story = Story()
    story.happens(AlertChanged(event_id="a", alert=builders.alert(), truncated=7))
    assert any("7 more alerts" in text for text in story.texts("alert"))


def test_what_is_recorded_and_posted_hides_secrets_and_what_is_applied_keeps_them() -> None:
    container = {"args": ["--api-key", "very-secret"], "env": [{"name": "HF_TOKEN", "value": "very-secret"}]}
    body = [{"op": "replace", "path": "/spec/template/spec/containers/0", "value": container}]
    plan = builders.plan(steps=(builders.call(body=body),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    recorded = "".join(entry.model_dump_json() for entry in story.entries)
    assert "(masked)" in recorded
    assert "very-secret" not in recorded + "".join(post.model_dump_json() for post in story.run.posts)
    request = story.run.requests[story.request]
    assert request.plan.calls[0].body == body
    assert request.digest == plan.digest


def test_a_refusal_hides_secrets() -> None:
    refused = PlanResult(
        outcome="impossible", reason="args is ['--api-key', 'very-secret']", hint="HF_TOKEN=very-secret"
    )
    story = Story().opened().reads(0.95).chooses("grow").planned(refused)
    shown = "".join(entry.model_dump_json() for entry in story.entries)
    shown += "".join(post.model_dump_json() for post in story.run.posts)
    assert "very-secret" not in shown


def test_evidence_that_is_older_than_a_minute_says_its_moment() -> None:
    fresh = Story().opened().reads(0.95).chooses("grow").planned()
    assert fresh.run.requests[fresh.request].evidence == ("usage: 0.95",)
    late = Story().opened().reads(0.95)
    late.at += 120
    late.chooses("grow").planned()
    assert late.run.requests[late.request].evidence == ("usage: 0.95 (at 08:00:10 UTC)",)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        pytest.param("llm-1: 5 of 10 polls without progress", "llm-1: 5 of 10 polls without progress", id="sentence"),
        pytest.param("", "bad polls 5, can grow no", id="parts"),
    ],
)
def test_the_evidence_of_a_probe_is_its_sentence_or_its_parts_in_words(detail: str, words: str) -> None:
    story = Story().opened()
    parts: dict[str, float | bool | str] = {"bad_polls": 5.0, "can_grow": False, "trend": ""}
    reading = Reading(name="usage", fields=parts, detail=detail, at=story.at)
    story.happens(SignalsRead(event_id="parts", effect_id="v1/read", readings={"usage": reading}))
    story.chooses("grow").planned()
    assert story.run.requests[story.request].evidence == (f"usage: {words}",)


def test_the_parts_of_a_probe_have_their_units_in_the_evidence() -> None:
    text = TEXT.replace("{metric: kv_cache_usage_perc, over: 60s}", "{probe: gpu_load}")
    text = text.replace("usage >", "usage.compute >").replace("usage <", "usage.compute <")
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened()
    reading = Reading(name="usage", fields={"least_free": 3.5, "compute": 0.95}, at=story.at)
    story.happens(SignalsRead(event_id="parts", effect_id="v1/read", readings={"usage": reading}))
    story.chooses("grow").planned()
    assert story.run.requests[story.request].evidence == ("usage: least free 3.5 GiB, compute 95.0%",)


def test_the_message_of_a_close_keeps_what_users_felt_at_that_moment() -> None:
    story = Story().opened().reads(0.95)
    story.run = story.run.with_(users="Users wait 5 s")
    story.says("resolve", text="it is over")
    (closed,) = (post for post in story.run.posts if post.kind == "closed")
    reopened = story.run.with_(closed_at=None, users="Users wait 9 s", posts=(closed,))
    [(_, message)] = thread(reopened)
    assert "Users wait 5 s" in message.text


def test_what_is_calm_while_a_change_is_in_place_did_not_recover_by_itself() -> None:
    text = TEXT.replace(
        "  calm: {end: fixed, say: It is calm.}", "  calm: {end: self_cleared, say: Nothing was changed.}"
    )
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).applied().watched("held")
    assert story.run.ending == "resolved_after_a_change"
    (closed,) = [post for post in story.run.posts if post.kind == "closed"]
    assert str(closed.data["text"]).startswith("It is calm after this change, which was not verified under load: ")


def test_a_deadline_that_is_set_aside_is_not_due_again() -> None:
    story = Story().opened().reads(0.95)
    name, at = next(iter(story.run.deadlines.items()))
    late = Due(event_id="x", deadline=name, due_at=at, at=at)
    assert name not in set_aside(story.run, late, "KeyError", story.bundle, story.rules).run.deadlines
