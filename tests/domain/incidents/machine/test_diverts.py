"""Diverts, frames, limits and offers: where a run continues in another playbook, and its knowledge on return."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.effect import Notify
from bot.domain.incidents.event import AlertChanged
from bot.domain.incidents.machine.entering import MAX_DIVERTS
from bot.domain.incidents.run import Offer
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from tests import builders
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast

OUTER = """
language: 1
playbook: outer
title: The outer one
priority: 50
opens_on: ['alertname=~".+"']
signals: {usage: {metric: kv_cache_usage_perc, over: 60s}}
start: look
states:
  look:
    read: [usage]
    baseline: true
    go:
      - {when: usage > 0.9, to: other}
      - {otherwise: calm}
  other:
    divert: inner
    why: It looks like something else.
    returns: {fixed: verify, not_applicable: choose}
  verify:
    watch: {better: usage < baseline.usage}
    for: 10s
    within: 1m
    held: calm
    not_held: look
  choose:
    ask: What now?
    choices: {again: {label: Again, to: other}, leave: {label: Leave, to: gone}}
    at_most: 2
    beyond: calm
  gone: {divert: inner, why: For good.}
  calm: {end: fixed}
"""
INNER = """
language: 1
playbook: inner
title: The inner one
signals: {usage: {metric: kv_cache_usage_perc, over: 60s}}
start: ask
states:
  ask:
    ask: Is it this?
    choices:
      fixed: {label: Fixed, to: fixed}
      not_it: {label: Not it, to: not_it}
      people: {label: People, to: people}
  fixed: {end: fixed}
  not_it: {end: not_applicable, say: It is something else.}
  people: {end: handed_over}
"""


def bundle(outer: str = OUTER, inner: str = INNER) -> Bundle:
    library = {"outer": load_text(outer), "inner": load_text(inner)}
    return Bundle.of(library["outer"], library)


BUNDLE = bundle()


def story() -> Story:
    return Story(BUNDLE).opened().reads(0.95)


def test_a_bundle_holds_all_that_can_be_come_to() -> None:
    assert set(BUNDLE.playbooks) == {"outer", "inner"}
    assert BUNDLE.digest != bundle(inner=INNER.replace("handed_over", "unproven")).digest


def test_a_divert_goes_on_in_the_other_playbook_and_asks_nobody() -> None:
    run = story().run
    assert (run.playbook, run.state, run.findings.path) == ("inner", "ask", ("ask",))
    assert (run.findings.results, run.findings.baseline) == ({}, {})
    (frame,) = run.frames
    assert (frame.playbook, frame.state, frame.findings.path) == ("outer", "other", ("look", "other"))


def test_its_end_leads_back_with_everything_that_was_known() -> None:
    went = story().chooses("fixed")
    run = went.run
    assert (run.playbook, run.state, run.is_open, run.frames) == ("outer", "verify", True, ())
    assert run.findings.path == ("look", "other", "verify")
    assert run.findings.results["look"]["usage"].value == 0.95
    assert run.findings.baseline["usage"].value == 0.95
    assert run.findings.answers == {}
    assert went.watched("held").run.ending == "fixed"


def test_what_was_closed_within_a_divert_is_reopened_at_the_start_of_its_own_playbook() -> None:
    run = story().says("resolve").says("reopen", text="it came back").run
    assert (run.playbook, run.state, run.frames) == ("outer", "look", ())


def test_a_question_that_was_left_behind_is_not_called_open() -> None:
    went = story()
    asked = went.run.question
    went.says("resolve").says("reopen", text="it came back").chooses("fixed", about=asked)
    assert f"question {asked} was already withdrawn" in went.wanted(Notify).text


def test_an_end_that_nobody_wrote_asks_people() -> None:
    run = story().chooses("people").run
    assert (run.playbook, run.state) == ("outer", "other")
    assert run.open_question is not None
    assert "inner ended with 'handed_over'" in run.open_question.text
    assert {"goto:verify", "goto:choose"} <= run.open_question.choices.keys()


def test_an_end_that_nobody_wrote_takes_otherwise() -> None:
    other = bundle(OUTER.replace("not_applicable: choose", "otherwise: choose"))
    assert Story(other).opened().reads(0.95).chooses("people").run.state == "choose"


def test_a_divert_without_return_ends_the_incident_where_it_ends() -> None:
    went = story().chooses("not_it").chooses("leave")
    assert (went.run.playbook, went.run.state, went.run.frames) == ("inner", "ask", ())
    assert went.chooses("people").run.ending == "handed_over"


def test_what_was_entered_too_often_leads_beyond() -> None:
    went = story().chooses("not_it").chooses("again").chooses("not_it").chooses("again")
    assert went.run.state == "ask"
    run = went.chooses("not_it").run
    assert (run.state, run.ending) == ("calm", "fixed")
    assert any("'choose' was entered 2 times already" in text for text in went.texts("entered"))


def test_what_may_be_entered_once_leads_beyond_the_second_time_and_past_what_is_full_itself() -> None:
    once = OUTER.replace("at_most: 2\n    beyond: calm", "at_most: 1\n    beyond: verify").replace(
        "    not_held: look\n", "    not_held: look\n    at_most: 1\n    beyond: calm\n"
    )
    went = Story(bundle(once)).opened().reads(0.95).chooses("not_it").chooses("again").chooses("not_it")
    assert went.run.state == "verify"
    went.watched("not_held").reads(0.95).chooses("not_it")
    assert (went.run.state, went.run.ending) == ("calm", "fixed")
    entered = [entry for entry in went.last.entries if entry.kind == "entered"][-1]
    assert entered.data["instead_of"] == ["choose", "verify"]
    assert any("'choose' was entered 1 time already" in text for text in went.texts("entered"))


MIDDLE = INNER.replace("playbook: inner", "playbook: middle").replace(
    "  people: {end: handed_over}",
    "  people: {divert: inner, why: Deeper., returns: {fixed: fixed, otherwise: not_it}}",
)


def test_a_divert_within_a_divert_comes_back_one_by_one() -> None:
    outer = OUTER.replace("divert: inner", "divert: middle")
    library = {name: load_text(text) for name, text in (("outer", outer), ("middle", MIDDLE), ("inner", INNER))}
    went = Story(Bundle.of(library["outer"], library)).opened().reads(0.95).chooses("people")
    assert (went.run.playbook, [frame.playbook for frame in went.run.frames]) == ("inner", ["outer", "middle"])
    went.chooses("not_it")
    assert "inner ended with 'not_applicable': It is something else." in went.texts("diverted")[-2]
    assert (went.run.playbook, went.run.state, went.run.frames) == ("outer", "choose", ())


def test_who_takes_the_run_over_leaves_every_divert() -> None:
    went = offered().reads(0.95)
    assert went.run.frames
    assert went.says("divert", text="urgent").run.frames == ()


def test_a_run_is_diverted_so_often_and_no_more() -> None:
    unbound = bundle(OUTER.replace("    at_most: 2\n    beyond: calm\n", ""))
    went = Story(unbound).opened().reads(0.95)
    for _ in range(MAX_DIVERTS - 1):
        went.chooses("not_it").chooses("again")
    assert went.run.playbook == "inner"
    went.chooses("not_it").chooses("again")
    assert (went.run.playbook, went.run.state) == ("outer", "other")
    assert went.run.open_question is not None
    assert f"diverted {MAX_DIVERTS} times" in went.run.open_question.text


def test_a_divert_to_a_playbook_that_was_refused_asks_people() -> None:
    alone = Bundle.of(load_text(OUTER))
    run = Story(alone).opened().reads(0.95).run
    assert (run.playbook, run.state) == ("outer", "other")
    assert run.open_question is not None
    assert "'inner' was refused" in run.open_question.text


def test_a_run_that_is_opened_again_begins_in_its_first_playbook() -> None:
    went = story().chooses("not_it").chooses("leave").chooses("people")
    again = builders.alert(fingerprint="f2")
    went.happens(AlertChanged(event_id=went.id(), alert=again))
    assert (went.run.playbook, went.run.state, went.run.is_open) == ("outer", "look", True)


# --- offers ----------------------------------------------------------------------------------------------------------


def offered(priority: int = 90) -> Story:
    urgent: CompiledPlaybook = load_text(INNER.replace("playbook: inner", "playbook: urgent"))
    other = Bundle.of(urgent)
    offer = Offer(playbook="urgent", title="The urgent one", priority=priority, digest=other.digest)
    went = Story(BUNDLE).opened()
    went.happens(AlertChanged(event_id=went.id(), alert=builders.alert(fingerprint="f2"), offer=offer))
    went.bundle = Bundle(BUNDLE.entry, BUNDLE.playbooks, {"urgent": other} if went.run.offers else {})
    return went


def test_an_alert_of_a_playbook_that_counts_more_is_offered_and_joins() -> None:
    went = offered()
    assert (went.run.playbook, went.run.state) == ("outer", "look")
    assert len(went.run.alerts) == 2
    assert "/incident divert INC-1 urgent" in went.run.posts[-1].data["text"]
    assert offered(priority=50).run.offers == {}


def test_a_person_may_take_the_run_over_by_command() -> None:
    went = offered()
    digest = went.run.offers["urgent"].digest
    went.says("divert", text="urgent")
    assert (went.run.playbook, went.run.state, went.run.digest) == ("urgent", "ask", digest)
    assert (went.run.offers, went.run.frames) == ({}, ())


def test_a_person_may_take_the_run_over_by_an_answer() -> None:
    went = offered().reads(None)
    assert went.run.open_question is not None
    assert went.run.open_question.choices["divert:urgent"] == "Switch to 'The urgent one'"
    assert went.chooses("divert:urgent").run.playbook == "urgent"


def test_what_was_not_offered_cannot_be_taken() -> None:
    went = offered().says("divert", text="inner")
    assert went.run.playbook == "outer"
    assert "Offered: urgent" in went.run.posts[-1].data["text"]
