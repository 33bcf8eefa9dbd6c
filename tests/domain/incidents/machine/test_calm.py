"""An incident that waits for people ends without them once its alerts are resolved and its signals stay calm."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import ReadCalm
from bot.domain.incidents.event import AlertChanged, CalmRead, EffectFailed
from bot.domain.incidents.run import CALM_CHECK, Question
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading, unknown
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

CALM = "calm: {when: usage < settings.ceiling, under_load: usage > 0.1, for: settings.calm_for}\nsettings:\n"
BUNDLE = Bundle.of(load_text(TEXT.replace("settings:\n", CALM), file="small.yaml"))
WITHOUT_LOAD = Bundle.of(load_text(TEXT.replace("settings:\n", CALM.replace("under_load: usage > 0.1, ", ""))))


def asking(bundle: Bundle = BUNDLE) -> Story:
    return Story(bundle).opened().reads(0.95)


def requesting(bundle: Bundle = BUNDLE) -> Story:
    return Story(bundle).asked()


def parked(bundle: Bundle = BUNDLE) -> Story:
    story = asking(bundle)
    (name,) = [name for name in story.run.deadlines if name.endswith(":expiry")]
    story.run = story.run.with_(deadlines={name.replace("expiry", "unanswered"): story.run.deadlines[name]})
    story.due(name.replace("expiry", "unanswered"))
    assert story.run.parked is not None
    return story


def with_a_change(bundle: Bundle = BUNDLE) -> Story:
    """The fix did not help for good, and people are asked again."""
    return Story(bundle).applied().watched("not_held")


def resolved(story: Story) -> Story:
    story.happens(AlertChanged(event_id=story.id(), alert=builders.alert("resolved")))
    return story


def checked(story: Story, *usages: float | None) -> Story:
    """One look after the other, ten seconds and more apart; `calm_for` is ten seconds."""
    for usage in usages:
        if not story.run.is_open:
            return story
        story.due(CALM_CHECK)
        effect = story.wanted(ReadCalm)
        reading = unknown("usage", "no answer", at=story.at) if usage is None else Reading(name="usage", value=usage)
        event = CalmRead(event_id=story.id(), effect_id=effect.effect_id, readings={"usage": reading})
        story.happens(event)
    return story


@pytest.mark.parametrize("story", [asking, requesting, parked])
def test_it_ends_by_itself_with_the_report_while_people_are_waited_for(story: type[Story]) -> None:
    went = checked(resolved(story()), 0.5, 0.5)
    assert (went.run.ending, went.run.parked, went.run.deadlines) == ("resolved_by_itself", None, {})
    assert went.run.open_question is None
    assert went.run.open_request is None
    closed = went.run.posts[-1]
    assert closed.kind == "closed"
    assert "the signals were calm for" in closed.data["text"]
    assert closed.data["text"].endswith("; nothing was changed.")


def test_an_end_after_an_undo_does_not_say_that_nothing_was_changed() -> None:
    story = with_a_change()
    undone = tuple(entry.model_copy(update={"undone_by": "INC-1/R9/0"}) for entry in story.run.ledger)
    story.run = story.run.with_(ledger=undone)
    went = checked(resolved(story), 0.5, 0.5)
    assert went.run.ending == "resolved_by_itself"
    assert went.run.posts[-1].data["text"].endswith("; no change is in place.")


def test_an_undo_that_a_person_asked_for_is_not_closed_away() -> None:
    story = Story(BUNDLE).applied().says("undo").planned(PlanResult(outcome="planned", plan=builders.plan())).posted()
    assert CALM_CHECK not in resolved(story).run.deadlines
    assert story.run.open_request is not None


@pytest.mark.parametrize("answered_first", [False, True], ids=["trouble-ended-after-the-answer", "asked-for-when-calm"])
def test_a_change_that_a_person_asked_for_when_it_was_calm_is_not_closed_away(answered_first: bool) -> None:
    story = requesting()
    resolved(story)
    request = story.run.open_request
    assert request is not None
    at = story.run.alerts_resolved_at
    assert at is not None
    answered = Question(
        question_id="Q9", state="here", visit=0, text="?", choices={"back": "Scale back"}, asked_at=at,
        status="answered", answered_at=at + 1 if answered_first else at - 1,
    )  # fmt: skip
    later = request.model_copy(update={"asked_at": at + 2})
    story.run = story.run.with_(questions={"Q9": answered}, requests={request.request_id: later})
    assert checked(story, *([] if answered_first else [0.5, 0.5])).run.is_open is answered_first
    if answered_first:
        story.due(CALM_CHECK)
        assert story.run.open_request is not None


def without_workload(story: Story, *exists: bool | None) -> Story:
    for each in exists:
        story.due(CALM_CHECK)
        reading = (
            unknown("there", "no answer", at=story.at)
            if each is None
            else Reading(name="there", fields={"exists": each})
        )
        readings = {"usage": unknown("usage", "no replica", at=story.at), "there": reading}
        effect_id = story.wanted(ReadCalm).effect_id
        story.happens(CalmRead(event_id=story.id(), effect_id=effect_id, readings=readings))
    return story


WATCHED = Bundle.of(
    load_text(TEXT.replace("settings:\n", CALM).replace("signals:\n", "signals:\n  there: {probe: rollout_progress}\n"))
)


@pytest.mark.parametrize("story", [asking, requesting, parked])
def test_it_ends_where_the_workload_is_not_there_any_more(story: Callable[[Bundle], Story]) -> None:
    went = without_workload(resolved(story(WATCHED)), False, False)
    assert (went.run.ending, went.run.parked, went.run.deadlines) == ("not_applicable", None, {})
    assert went.run.posts[-1].data["text"] == "The workload is not there any more, and the alerts are resolved."


def opened_by_hand(story: Story) -> Story:
    story.run = story.run.with_(alerts={})
    return story.says("note", text="still there")


def test_an_incident_that_was_opened_by_hand_ends_without_its_workload_too() -> None:
    went = without_workload(opened_by_hand(parked(WATCHED)), False, False)
    assert (went.run.ending, went.run.parked, went.run.deadlines) == ("not_applicable", None, {})
    assert went.run.posts[-1].data["text"] == "The workload is not there any more."


def test_an_incident_that_was_opened_by_hand_is_not_ended_by_calm_signals() -> None:
    """A person saw a trouble that no alert reports, so a person decides whether it is gone."""
    went = checked(opened_by_hand(parked(WATCHED)), 0.5, 0.5, 0.5)
    assert went.run.is_open


def test_nobody_looks_for_the_workload_of_an_incident_that_was_opened_by_hand_before_it_is_parked() -> None:
    assert CALM_CHECK not in opened_by_hand(asking(WATCHED)).run.deadlines


@pytest.mark.parametrize("exists", [None, True], ids=["unknown", "there"])
def test_a_workload_that_cannot_be_read_is_not_gone(exists: bool | None) -> None:
    assert without_workload(resolved(parked(WATCHED)), False, exists, False).run.is_open


def test_the_look_reads_whether_the_workload_is_there() -> None:
    assert set(WATCHED.playbooks["small"].wanted_for_calm) == {"usage", "there"}


def test_nobody_looks_while_an_alert_fires() -> None:
    assert CALM_CHECK not in asking().run.deadlines
    went = checked(resolved(asking()), 0.5)
    went.happens(AlertChanged(event_id=went.id(), alert=builders.alert(starts_at=went.at)))
    assert (CALM_CHECK in went.run.deadlines, went.run.calm_since) == (False, None)


@pytest.mark.parametrize("usage", [0.95, None], ids=["not-calm", "unknown"])
def test_one_look_that_is_not_calm_begins_the_time_again(usage: float | None) -> None:
    went = checked(resolved(asking()), 0.5, usage, 0.5)
    assert went.run.is_open
    assert checked(went, 0.5).run.ending == "resolved_by_itself"


def test_what_was_changed_is_credited_under_load() -> None:
    went = checked(resolved(with_a_change()), 0.5, 0.5)
    assert went.run.ending == "resolved_after_a_change"
    assert "after this change, and under load: " in went.run.posts[-1].data["text"]


@pytest.mark.parametrize(
    ("bundle", "usage"), [(BUNDLE, 0.05), (WITHOUT_LOAD, 0.5)], ids=["no-load", "the-playbook-names-no-load"]
)
def test_without_load_a_change_is_not_credited(bundle: Bundle, usage: float) -> None:
    assert checked(resolved(with_a_change(bundle)), usage, usage, usage).run.is_open


def test_a_change_between_its_calls_is_not_forgotten() -> None:
    went = resolved(Story(BUNDLE).granted())
    assert CALM_CHECK not in went.run.deadlines


def test_a_canary_that_the_bot_left_is_for_people() -> None:
    went = with_a_change()
    left = went.run.ledger[0].model_copy(update={"verb": "canary"})
    went.run = went.run.with_(ledger=(left,))
    assert CALM_CHECK not in resolved(went).run.deadlines


def test_a_halted_incident_stays_open() -> None:
    assert CALM_CHECK not in resolved(asking().says("halt")).run.deadlines


def test_a_look_that_failed_asks_nobody() -> None:
    went = resolved(requesting())
    went.due(CALM_CHECK)
    effect = went.wanted(ReadCalm)
    failed = EffectFailed(event_id="x", effect_id=effect.effect_id, effect_kind="read_calm", reason="no answer")
    went.happens(failed)
    assert went.run.open_question is None
    assert CALM_CHECK in went.run.deadlines


def test_a_playbook_without_calm_waits_for_people() -> None:
    assert CALM_CHECK not in resolved(Story().asked()).run.deadlines


def test_an_incident_that_parks_with_only_resolved_alerts_of_its_own_is_looked_at() -> None:
    own = TEXT.replace("""opens_on: ['alertname=~".+"']""", """opens_on: ['alertname="VllmKVCacheThrash"']""")
    unanswered = own.replace("    expires: settings.within\n    expired: left\n", "").replace(
        "  left: {end: handed_over, say: Nobody answered.}\n", ""
    )
    story = Story(Bundle.of(load_text(unanswered.replace("settings:\n", CALM), file="small.yaml"))).opened()
    other = builders.alert(fingerprint="f2", alertname="UsersWait")
    story.happens(AlertChanged(event_id=story.id(), alert=other))
    story.reads(0.95)
    story.happens(AlertChanged(event_id=story.id(), alert=builders.alert("resolved")))
    story.due(f"question:{story.run.question}:unanswered")
    assert story.run.parked is not None
    assert CALM_CHECK in story.run.deadlines
