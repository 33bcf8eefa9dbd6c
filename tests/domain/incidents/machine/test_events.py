"""Events from outside and their limits: alerts, resumes, undos, diverts, effects that were given up."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Demand
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.event import (
    ALL,
    COMMANDS,
    AlertChanged,
    CommandName,
    EffectFailed,
    OpenedByHand,
    Posted,
    SilencesEnded,
)
from bot.domain.incidents.machine import operator_actions
from bot.domain.incidents.machine.operator_actions import exits_to_skip
from bot.domain.incidents.run import SILENCE_ENDS, Halt, Offer, Run
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.incidents.machine.steps import PLAYBOOK, TEXT, TWO_STEPS, Story
from tests.domain.incidents.machine.test_deciding import asked
from tests.domain.incidents.machine.test_diverts import BUNDLE, INNER, OUTER
from tests.domain.incidents.machine.test_operator_actions import silenced
from tests.domain.incidents.machine.test_stopped import stopped

pytestmark = pytest.mark.fast


def receives(story: Story, status: Any = "firing", *, offer: Offer | None = None, **labels: Any) -> Story:
    story.happens(AlertChanged(event_id=story.id(), alert=builders.alert(status, **labels), offer=offer))
    return story


def status(story: Story) -> str:
    return story.run.requests[story.request].status


# --- alerts -----------------------------------------------------------------------------------------------------------


def test_the_same_alert_again_is_not_even_noted() -> None:
    story = Story().opened()
    before = len(story.entries)
    receives(story)
    assert len(story.entries) == before


def test_after_all_alerts_resolved_everybody_has_to_press_again() -> None:
    two = (Demand(needed=2, users=("ana", "ben", "cay")),)
    story = asked(demands=two).presses("approve", user="ben")
    earlier = builders.request(request_id="R0", status="refused")
    story.run = story.run.with_(requests={"R0": earlier} | story.run.requests)
    receives(story, "resolved")
    assert story.run.requests["R2"].presses == ()
    assert story.run.requests["R0"] == earlier
    story.presses("approve", user="cay")
    assert status(story) == "open"
    story.presses("approve", user="ben")
    assert status(story) == "granted"


def offer(name: str = "urgent", priority: int = 90) -> Offer:
    return Offer(playbook=name, title=f"The {name} one", priority=priority, digest="d")


def test_each_playbook_that_counts_more_is_offered_once_with_all_its_alerts() -> None:
    story = Story(BUNDLE).opened()
    for number, name in enumerate(("urgent", "urgent", "urgent too"), start=2):
        receives(story, fingerprint=f"f{number}", offer=offer(name))
    assert {name: each.alerts for name, each in story.run.offers.items()} == {
        "urgent": ("f2", "f3"),
        "urgent too": ("f4",),
    }


@pytest.mark.parametrize("known", ["outer", "inner"])
def test_a_playbook_that_the_run_is_in_or_comes_back_to_is_not_offered(known: str) -> None:
    story = Story(BUNDLE).opened().reads(0.95)
    assert (story.run.playbook, [frame.playbook for frame in story.run.frames]) == ("inner", ["outer"])
    assert receives(story, fingerprint="f2", offer=offer(known)).run.offers == {}


def test_the_playbook_that_the_run_was_opened_with_is_not_offered_after_it_was_left_for_good() -> None:
    story = Story(BUNDLE).opened().reads(0.95).chooses("not_it").chooses("leave")
    assert (story.run.playbook, story.run.frames) == ("inner", ())
    assert receives(story, fingerprint="f2", offer=offer("outer")).run.offers == {}


def test_an_alert_that_ends_offers_nothing() -> None:
    assert receives(Story(BUNDLE).opened(), "resolved", fingerprint="f2", offer=offer()).run.offers == {}


@pytest.mark.parametrize(
    ("namespace", "why", "named"),
    [
        ("serving", "the alert's labels lead to no workload, or the cluster did not answer in time", "serving/llm"),
        ("", "the alert's labels name no namespace", "llm"),
    ],
)
def test_a_person_who_opens_an_incident_reads_that_its_workload_is_not_known(
    namespace: str, why: str, named: str
) -> None:
    story = Story()
    unresolved = {"resolved": False, "namespace": namespace}
    story.run = story.run.with_(target=builders.TARGET.model_copy(update=unresolved))
    story.happens(OpenedByHand(event_id="o", user="ana", fields={}))
    assert story.texts("failed") == [f"the workload is not certain: {why}; the labels say '{named}'"]


# --- halting and resuming ---------------------------------------------------------------------------------------------


def test_a_resume_owes_the_step_that_was_halted_each_time_under_another_id() -> None:
    story = Story().granted()
    ids = {story.wanted(ApplyStep).effect_id}
    for _ in range(3):
        story.settles("halted", detail="the kill switch is on").says("resume")
        ids.add(story.wanted(ApplyStep).effect_id)
    assert len(ids) == 4


def test_a_resume_does_not_send_again_what_no_halt_had_stopped() -> None:
    story = Story().granted().says("halt").says("resume")
    assert story.run.halt is None
    assert "apply_step" not in story.kinds()


def test_halting_again_keeps_a_new_reason() -> None:
    story = Story().opened().says("halt", text="it gets worse")
    story.says("halt")
    story.says("halt", text="the rack is on fire")
    assert story.texts("halt") == ["halted: it gets worse", "halted: the rack is on fire"]
    assert story.texts("ignored") == ["halted again"]


def test_a_halt_of_its_own_outlives_the_halt_of_everything_without_a_reason() -> None:
    story = Story().opened().says("halt", text="the rack burns", to=ALL)
    story.says("halt")
    assert story.texts("halt") == [
        "everything is halted: the rack burns",
        "the halt of everything is lifted; this incident stays halted by itself",
    ]
    assert story.run.halt == Halt(by="ana")


def test_a_resume_without_a_halt_is_only_noted() -> None:
    for story in (Story().opened(), Story().granted()):
        story.says("resume")
        assert story.texts("ignored") == ["resumed although nothing was halted"]
        assert story.kinds() == []


# --- undo -------------------------------------------------------------------------------------------------------------


def applied_twice() -> Story:
    """Two changes, the second of two calls, and a third that waits for people."""
    story = Story().applied().watched("not_held").chooses("grow")
    two = builders.plan(steps=(builders.call(), builders.call(title="second call")), choices={"to": 6})
    story.planned(PlanResult(outcome="planned", plan=two)).posted().presses("approve").settles().settles()
    story.watched("not_held").chooses("grow")
    return story.planned(PlanResult(outcome="planned", plan=builders.plan(choices={"to": 7}))).posted()


def test_an_undo_takes_back_the_last_change_whole_and_no_other() -> None:
    story = applied_twice()
    first, *last = story.run.held
    story.says("undo", user="ben")
    assert story.run.change is not None
    assert story.run.change.undo_of == tuple(entry.call_id for entry in last)
    assert len(last) == 2
    assert first.call_id not in story.run.change.undo_of
    assert story.texts("undo") == ["undo asked for: scale llm from 4 to 5, second call"]


def test_an_undo_withdraws_what_waits_and_says_why() -> None:
    story = applied_twice()
    waits = story.request
    others = {name: request for name, request in story.run.requests.items() if name != waits}
    story.says("undo")
    withdrawn = story.run.requests[waits]
    assert (withdrawn.status, withdrawn.decision_reason) == ("withdrawn", "an undo was asked for")
    assert {name: request for name, request in story.run.requests.items() if name != waits} == others
    assert story.run.deadlines == {}


def test_who_closed_an_incident_and_what_still_fires_is_in_its_last_message() -> None:
    story = Story().opened().says("resolve", user="U0BEN", user_name="Ben", text="the load test has ended")
    closed = story.run.posts[-1].data
    assert (closed["text"], closed["firing"]) == ("Ben closed it: the load test has ended.", ["VllmKVCacheThrash"])


def test_the_reason_of_a_halt_is_kept_until_it_is_lifted() -> None:
    story = Story().opened().says("halt", text="we repair the node, PASSWORD=hunter2")
    assert story.run.halt is not None
    assert story.run.halt.reason == "we repair the node, PASSWORD=(masked)"
    assert story.says("resume").run.halt is None


def test_an_undo_is_not_asked_for_twice_while_it_waits() -> None:
    story = Story().applied().says("undo").planned(PlanResult(outcome="planned", plan=builders.plan())).posted()
    waits = story.request
    before = story.run
    story.says("undo", user="ben")
    assert story.run.open_request is not None
    assert story.request == waits
    assert story.run.posts == before.posts


def test_an_undo_during_a_watch_ends_the_watch() -> None:
    story = Story().applied().says("undo")
    assert (story.run.watch, story.run.visit.machine_state) == (None, "(undo)/planning")


def test_while_a_change_is_applied_it_is_halted_before_it_is_undone() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted()
    story.presses("approve").settles().says("undo")
    assert story.texts("note")[-1] == "A change is being applied right now; halt it first, then undo."
    assert story.run.visit.machine_state == "grow/applying"
    story.settles(call_id="").says("halt").says("undo")
    assert story.texts("note")[-1].startswith("A call is under way")
    assert story.run.visit.machine_state == "grow/applying"


def test_a_halted_change_that_is_undone_says_that_it_stopped() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted()
    request = story.request
    story.presses("approve").settles().says("halt").settles("halted", detail="it was halted", call_id="").says("undo")
    assert story.run.visit.machine_state == "(undo)/planning"
    assert story.run.requests[request].outcome == "stopped"
    assert story.run.requests[request].ended_at is not None
    assert f"release/{request}" in [effect.effect_id for effect in story.effects]


# --- resolving and diverting ------------------------------------------------------------------------------------------


def test_what_waits_when_an_incident_is_resolved_is_withdrawn_and_says_why() -> None:
    story = Story().asked().says("resolve")
    request = story.run.requests[story.request]
    assert (request.status, request.decision_reason) == ("withdrawn", "a person closes the incident")


def test_resolving_during_a_watch_that_leaves_something_asks_and_watches_no_more() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    story.presses("approve").presses("approve", user="ben").settles()
    assert story.run.visit.state == "watch"
    story.says("resolve")
    assert story.run.watch is None
    assert story.run.open_question is not None


def test_what_a_resolved_incident_left_is_taken_back_and_then_it_closes() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    story.presses("approve").presses("approve", user="ben").settles().says("resolve", text="we do it by hand").chooses(
        "undo"
    )
    back = builders.plan(verb="undo", title="Remove the canary", steps=(builders.call().undo[0],))
    story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve").settles()
    assert (story.run.ending, story.run.held) == ("resolved_by_hand", ())
    assert any(entry.text.startswith("ana wants to close it: we do it by hand. ") for entry in story.entries)


def test_after_a_refused_undo_nothing_is_offered_that_has_not_come_about() -> None:
    story = Story().applied().says("undo")
    back = builders.plan(verb="undo", title="One replica fewer", steps=(builders.call().undo[0],))
    story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("refuse", reason="it is hot")
    asked = story.run.open_question
    assert asked is not None
    assert asked.text == "the undo was refused by Ana: it is hot. What now?"
    assert {key: asked.choices[key] for key in asked.choices if key not in ("undo", "hand_over", "close")} == {
        "again": "Go on: watch"
    }


def changing_outer() -> Story:
    """In a playbook with a change, while another one is offered."""
    change = "    change: scale\n    with: {by: 1}\n    why: More room.\n    done: calm"
    text = OUTER.replace("    divert: inner\n    why: For good.", change)
    text = text.replace("gone: {divert: inner, why: For good.}", f"gone:\n{change}")
    outer, inner = load_text(text), load_text(INNER)
    urgent = Bundle.of(load_text(INNER.replace("playbook: inner", "playbook: urgent")))
    bundle = Bundle.of(outer, {"outer": outer, "inner": inner})
    story = Story(bundle).opened().reads(0.95).chooses("not_it")
    story.run = story.run.with_(offers={"urgent": offer().model_copy(update={"digest": urgent.digest})})
    story.known[urgent.digest] = urgent
    return story.chooses("leave").planned().posted()


def test_a_run_that_goes_over_to_another_playbook_withdraws_what_waits() -> None:
    story = changing_outer().says("divert", text=" urgent ")
    request = story.run.requests[story.request]
    assert (story.run.playbook, request.status) == ("urgent", "withdrawn")
    assert request.decision_reason == "the run switches to urgent"


def test_a_run_does_not_leave_a_change_that_is_applied() -> None:
    story = changing_outer().presses("approve").says("divert", text="urgent")
    assert story.run.playbook == "outer"
    assert story.texts("note")[-1] == "A change is being applied; its outcome must be known first."


# --- skipping, reopening, pinning ------------------------------------------------------------------------------------


def test_what_waits_when_its_state_is_skipped_is_withdrawn_and_says_why() -> None:
    story = Story().asked().says("skip", to="choose", text="not now")
    assert story.run.requests["R2"].decision_reason == "'grow' was skipped"


def test_every_written_way_is_named_to_who_skips_to_another() -> None:
    assert exits_to_skip(Story().applied().run, PLAYBOOK) == {"choose": "not_held", "calm": "held"}
    story = Story().applied().says("skip", to="left", text="x")
    assert story.texts("note")[-1] == "'watch' cannot skip to 'left'. Exits: choose, calm."


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(Story().opened().says("resolve").run, id="closed"),
        pytest.param(Story().applied().says("undo").run, id="an-undo-under-way"),
        pytest.param(
            builders.in_visit(Story().opened().run, state="of-another-version"), id="not-a-state-of-the-playbook"
        ),
    ],
)
def test_there_is_no_way_to_skip_to(run: Run) -> None:
    assert exits_to_skip(run, PLAYBOOK) == {}


def test_nothing_that_a_change_leads_to_by_itself_is_skipped_to() -> None:
    text = TEXT.replace("    done: watch\n", "    done: watch\n    not_needed: watch\n    failed: calm\n")
    playbook = load_text(text, file="small.yaml")
    run = Story(Bundle.of(playbook)).asked().run
    assert exits_to_skip(run, playbook) == {"choose": "refused", "calm": "failed"}


def test_a_pinned_message_without_a_time_and_an_author_is_of_who_pinned_it_and_now() -> None:
    story = Story().opened().says("pin", text="XIDs", link="https://slack/p1")
    [entry] = story.last.entries
    assert (entry.at, entry.who) == (story.at, "ana")


def test_there_is_no_silence_to_end() -> None:
    story = Story().opened().says("unsilence")
    assert story.texts("note")[-1] == "The bot has no silence for this incident."
    assert story.kinds() == []


@pytest.mark.parametrize(("ids", "what"), [(("s1",), "the silence"), (("s1", "s2"), "2 silences")])
def test_the_end_of_silences_is_on_the_timeline_with_their_ids(ids: tuple[str, ...], what: str) -> None:
    story = silenced()
    story.happens(SilencesEnded(event_id="e", ids=ids))
    [entry] = story.last.entries
    assert (entry.kind, entry.text, entry.data) == ("note", f"{what} ended in Alertmanager", {"silences": list(ids)})


def test_the_time_of_a_silence_that_is_over_is_on_the_timeline_with_its_id() -> None:
    story = silenced()
    story.at = story.run.deadlines[SILENCE_ENDS] - 10
    story.due(SILENCE_ENDS)
    assert story.last.entries[-1].data == {"silences": ["s1"]}


def test_what_was_passed_over_because_it_was_entered_too_often_is_on_the_timeline() -> None:
    story = Story(BUNDLE).opened().reads(0.95).chooses("not_it").chooses("again").chooses("not_it").chooses("again")
    story.chooses("not_it")
    entered = [entry for entry in story.last.entries if entry.kind == "entered"]
    assert entered[-1].data["instead_of"] == ["choose"]


def test_an_undo_that_cannot_be_planned_leaves_the_state_that_it_interrupted_to_choose_from() -> None:
    story = Story().applied().says("undo").planned(PlanResult(outcome="impossible", reason="it is gone"))
    assert (story.run.change, story.run.visit.machine_state) == (None, "watch")
    assert story.run.open_question is not None
    assert {"again", "goto:choose"} <= story.run.open_question.choices.keys()


# --- effects that were given up ---------------------------------------------------------------------------------------


def given_up(story: Story, kind: str, effect_id: str) -> Story:
    story.happens(EffectFailed(event_id=story.id(), effect_id=effect_id, effect_kind=kind, reason="no answer"))
    return story


def test_an_effect_of_an_earlier_visit_that_was_given_up_asks_nobody() -> None:
    story = Story().granted()
    given_up(story, "apply_step", "v1/apply/R2/0/0")
    assert (story.run.question, story.run.visit.machine_state) == ("", "grow/applying")


def test_an_effect_that_was_given_up_while_people_are_asked_asks_no_second_question() -> None:
    story = Story().opened().reads(0.95)
    question = story.run.question
    given_up(story, "read_series", f"v{story.run.visit.number}/series")
    assert (story.run.question, len(story.run.questions)) == (question, 1)


@pytest.mark.parametrize("kind", ["plan_change", "watch_signals"])
def test_an_effect_that_the_run_waits_for_becomes_a_question_without_an_outcome(kind: str) -> None:
    story = Story().granted() if kind == "plan_change" else Story().applied()
    given_up(story, kind, f"v{story.run.visit.number}/x")
    assert story.run.open_question is not None
    done = {"plan_change": "planned", "watch_signals": "watched"}[kind]
    assert story.run.open_question.text.endswith(f"could not be {done}: no answer. What now?")
    assert "unclear" not in {request.outcome for request in story.run.requests.values()}


def test_a_step_that_was_given_up_although_it_is_not_applied_any_more_has_no_outcome() -> None:
    story = stopped()
    story.run = story.run.with_(question="")
    given_up(story, "apply_step", f"v{story.run.visit.number}/apply/R2/1/0")
    assert story.run.requests["R2"].outcome == ""


@pytest.mark.parametrize("kind", ["silence_alerts", "end_silences", "draw_way", "judge_press", "export_timeline"])
def test_what_a_person_asked_for_and_did_not_get_is_posted_in_the_thread(kind: str) -> None:
    story = given_up(Story().opened().reads(0.95), kind, f"v2/{kind}")
    text = story.run.posts[-1].data["text"]
    assert "could not be" in text
    assert "no answer" in text
    assert kind not in text
    assert len(story.run.questions) == 1


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "accepted"),
    [
        *((command, True) for command in ("note", "followup", "export", "graph", "reopen", "pin")),
        *((command, False) for command in ("halt", "resume", "undo", "resolve", "lead", "reset", "divert", "status")),
        *((command, False) for command in ("skip", "silence", "unsilence")),
    ],
)
def test_only_what_changes_nothing_is_accepted_after_the_end(command: str, accepted: bool) -> None:
    story = Story().opened().says("resolve").says(command, text="x")
    assert ("commanded after the end" not in story.texts("ignored")) is accepted


def test_every_command_is_declared_and_carried_out() -> None:
    assert set(get_args(CommandName)) == COMMANDS.keys() == operator_actions._COMMANDS.keys()


@pytest.mark.parametrize("command", ["note", "followup", "pin"])
def test_what_people_write_after_the_end_is_in_the_stored_report(command: str) -> None:
    story = Story()
    story.rules = story.rules.model_copy(update={"stores_reports": True})
    story.opened().says("resolve").says(command, text="raise the quota")
    assert "raise the quota" in story.texts("followup" if command == "followup" else "note")
    assert "store_report" in story.kinds()


@pytest.mark.parametrize("verb", ["canary", "isolate_replica", "cordon_node", "drain_node"])
def test_none_of_these_is_left_behind_unasked(verb: str) -> None:
    plan = builders.plan(verb=verb, title="Held")
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    for user in ("ana", "ben"):
        story.presses("approve", user=user)
    story.settles().watched("held")
    assert story.run.open_question is not None
    assert story.run.open_question.text.startswith("Still in place:")


def test_a_playbook_begins_without_anything_of_the_one_that_it_was_diverted_from() -> None:
    story = Story(BUNDLE).opened()
    known = {"answers": {"a": "b"}, "answered_by": {"a": "ana"}, "forms": {"a": {}}, "picked": {"a": "llm-1"}}
    story.run = story.run.with_(findings=story.run.findings.model_copy(update=known))
    run = story.reads(0.95).run
    assert (run.findings.results, run.findings.baseline, run.findings.path) == ({}, {}, ("ask",))
    assert {name: getattr(run.findings, name) for name in known} == {name: {} for name in known}
    back = story.chooses("fixed").run
    assert {name: getattr(back.findings, name) for name in known} == known


def test_a_command_leaves_the_name_of_its_person_on_the_timeline() -> None:
    story = Story().opened().says("note", text="seen", user="U0BEN", user_name="ben")
    entry = next(entry for entry in story.entries if entry.kind == "note")
    assert (entry.who, entry.data["user"], entry.data["user_name"]) == ("U0BEN", "U0BEN", "ben")


# --- a question that Slack takes late ---------------------------------------------------------------------------------


def question_posted(story: Story, *, after: float) -> Story:
    story.at += after
    story.happens(Posted(event_id=story.id(), slot="question:Q1", ts="1.1", channel="C1"))
    return story


def test_the_time_of_a_question_that_slack_took_late_starts_when_people_can_read_it() -> None:
    story = Story().opened().reads(0.95)
    before, asked = dict(story.run.deadlines), story.run.open_question
    assert asked is not None
    assert asked.expires_at is not None
    question_posted(story, after=900.0)
    late = story.run.open_question
    assert late is not None
    assert late.expires_at is not None
    assert late.expires_at - asked.expires_at == pytest.approx(900.0, abs=15.0)
    for name in ("question:Q1:half", "question:Q1:expiry"):
        assert story.run.deadlines[name] - before[name] == pytest.approx(900.0, abs=15.0)
    moved = dict(story.run.deadlines)
    assert question_posted(story, after=900.0).run.deadlines == moved, "it is shown once"


def test_the_time_of_a_question_is_not_moved_by_the_usual_moment() -> None:
    story = Story().opened().reads(0.95)
    before = dict(story.run.deadlines)
    assert question_posted(story, after=1.0).run.deadlines == before


def test_a_question_that_expired_before_slack_took_it_stays_expired() -> None:
    story = Story().opened().reads(0.95).due("question:Q1:expiry")
    before = story.run
    assert question_posted(story, after=4000.0).run.questions == before.questions
