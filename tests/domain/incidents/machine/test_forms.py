"""Questions with forms, four eyes, and incidents that a person opens."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.event import AlertChanged, OpenedByHand
from bot.domain.incidents.named_values import ScopeValues
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

PLAYBOOK = load_text("""
language: 1
playbook: forms
title: Forms
opens: by_hand
opens_on: ['alertname="x"']
form:
  gain: {label: Which gain?, kind: number, min: 1, max: 64}
  method: {label: Which method?, kind: choice, options: {fp8: FP8}, optional: true}
signals: {usage: {metric: kv_cache_usage_perc, over: 60s}}
start: ask
states:
  ask:
    ask: What is the baseline?
    not_by: opening
    choices:
      given: {label: This, to: look, form: {size: {label: How big?, kind: number, min: 1}}}
      none: {label: None, to: none}
  look:
    read: [usage]
    go:
      - {when: usage > forms.ask.size && forms.opening.gain > 1, to: sure}
      - {otherwise: none}
    unknown: none
  sure:
    ask: Are you sure?
    by: serving
    not_by: ask
    choices: {sure: {label: Sure, to: done}}
  done: {end: fixed}
  none: {end: not_applicable}
""")


CHOICE = "stop: {label: Stop, to: calm}"


def opened() -> Story:
    story = Story(Bundle.of(PLAYBOOK))
    story.happens(OpenedByHand(event_id="opened/1", user="eve", fields={"gain": 2.0}))
    return story


def test_who_opens_an_incident_leads_it_and_has_filled_in_its_form() -> None:
    story = opened()
    run = story.run
    assert (run.visit.state, run.visit.number, run.lead) == ("ask", 1, "eve")
    assert ScopeValues(run, {})["forms.opening.gain"] == 2.0
    assert (story.entries[0].kind, story.entries[0].who) == ("opened", "eve")
    assert story.entries[0].data["incident"] == run.incident_id


def test_the_form_of_an_alert_is_unknown() -> None:
    story = Story(Bundle.of(PLAYBOOK))
    story.happens(AlertChanged(event_id="a", alert=builders.alert()))
    assert "forms.opening.gain" not in ScopeValues(story.run, {})


def test_opening_the_same_incident_twice_changes_nothing() -> None:
    story = opened()
    before = story.run
    story.happens(OpenedByHand(event_id="opened/2", user="ana", fields={"gain": 3.0}))
    assert story.run.with_(ignored={}) == before


def test_a_question_carries_its_forms_and_who_must_not_answer() -> None:
    question = opened().run.open_question
    assert question is not None
    assert question.forms.keys() == {"given"}
    assert question.not_by == "eve"


def test_who_filled_in_the_earlier_form_must_not_answer() -> None:
    story = opened().chooses("none", user="eve")
    assert story.run.visit.state == "ask"
    assert "someone else must answer this" in story.texts("press")[-1]
    assert story.chooses("none", user="ana").run.ending == "not_applicable"


@pytest.mark.parametrize(
    ("fields", "says"), [({}, "How big?: this is needed"), ({"size": "0"}, "How big?: at least 1")]
)
def test_an_answer_whose_form_is_wrong_does_not_count(fields: dict[str, Any], says: str) -> None:
    story = opened().chooses("given", user="ana", **fields)
    assert story.run.visit.state == "ask"
    assert says in story.texts("press")[-1]


def test_what_is_filled_in_decides() -> None:
    story = opened().chooses("given", user="ana", size="0.5")
    assert story.run.visit.state == "ask"
    story.chooses("given", user="ana", size="1").reads(2)
    assert story.run.visit.state == "sure"
    assert story.run.findings.forms["ask"] == {"size": 1.0}
    (answered,) = (each for each in story.run.questions.values() if each.status == "answered")
    assert answered.notes["given"] == "How big: 1"
    assert story.texts("answered") == ["This (How big: 1)"]
    question = story.run.open_question
    assert question is not None
    assert question.by is not None
    assert [(demand.team, demand.needed) for demand in question.by.demands] == [("serving", 1)]
    assert question.not_by == "ana"
    assert story.chooses("sure", user="ana").run.is_open
    assert story.chooses("sure", user="ben").run.ending == "fixed"


def test_a_form_that_was_left_empty_is_not_answered_by_what_its_choice_means() -> None:
    text = TEXT.replace(CHOICE, f"{CHOICE[:-1]}, form: {{until: {{label: Until when?, kind: text, optional: true}}}}}}")
    went = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95).chooses("stop")
    question = went.run.questions["Q1"]
    assert (question.answer, question.notes["stop"]) == ("stop", "")
