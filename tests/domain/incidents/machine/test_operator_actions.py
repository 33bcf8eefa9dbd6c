"""Actions of people on an incident besides its questions, and their limits."""

from __future__ import annotations

import pytest

from bot.domain.approvals.grant import Authority
from bot.domain.incidents.effect import KINDS, DrawPath, EndSilences, SilenceAlerts
from bot.domain.incidents.event import Due, EffectFailed, Silenced, SilencesEnded
from bot.domain.incidents.machine.operator_actions import exits_to_skip
from bot.domain.incidents.run import NEXT_STATUS, SILENCE_ENDS
from tests import builders
from tests.domain.incidents.machine.steps import PLAYBOOK, Story

pytestmark = pytest.mark.fast


def paging() -> Story:
    story = Story()
    story.run = story.run.with_(severity="page")
    return story.opened()


# --- how it stands ---------------------------------------------------------------------------------------------------


def test_an_incident_that_pages_is_reminded_of_when_nobody_says_how_it_stands() -> None:
    story = paging()
    assert story.run.deadlines[NEXT_STATUS] == story.at + 1800
    story.at = story.run.deadlines[NEXT_STATUS] - 10
    story.due(NEXT_STATUS)
    assert "no status update for 30 min" in story.run.posts[-1].data["text"]
    assert story.run.deadlines[NEXT_STATUS] == story.at + 1800


def test_each_reminder_waits_twice_as_long_and_names_the_lead() -> None:
    story = paging().says("lead", text="U0ANA")
    for _ in range(2):
        story.at = story.run.deadlines[NEXT_STATUS] - 10
        story.due(NEXT_STATUS)
    assert story.run.deadlines[NEXT_STATUS] - story.at == pytest.approx(3600, abs=60)
    assert story.run.posts[-1].data["text"].startswith("<@U0ANA>: ")


def test_a_status_is_in_the_thread_and_sets_when_the_next_is_due() -> None:
    story = paging().says("status", text="two of four replicas are back", seconds=900)
    shown = {"text": "Status: two of four replicas are back", "user": "ana", "is_broadcast": True}
    assert story.run.posts[-1].data == shown
    assert (story.run.status_update.text, story.run.status_update.by) == ("two of four replicas are back", "ana")
    assert story.texts("note")[-1] == "status: two of four replicas are back"
    assert story.run.deadlines[NEXT_STATUS] == story.at + 900


def test_the_next_status_stays_due_while_the_run_moves_and_ends_with_it() -> None:
    story = paging().reads(0.95)
    assert NEXT_STATUS in story.run.deadlines
    story.says("resolve")
    assert story.run.deadlines == {}


def test_a_ticket_is_reminded_of_only_where_a_status_promised_the_next() -> None:
    story = Story().opened()
    assert NEXT_STATUS not in story.run.deadlines
    story.says("status", text="after lunch", seconds=3600)
    assert story.run.deadlines[NEXT_STATUS] == story.at + 3600


# --- skipping --------------------------------------------------------------------------------------------------------


def test_a_wait_is_left_by_a_written_way_with_the_reason_and_the_person_on_the_timeline() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned().posted().presses("approve").settles()
    assert story.run.visit.state == "watch"
    story.says("skip", to="choose", text="I see it on the dashboard")
    assert story.run.visit.state == "choose"
    [answered] = [entry for entry in story.last.entries if entry.kind == "answered"]
    assert (answered.text, answered.who) == ("skipped 'watch': I see it on the dashboard", "ana")


def test_a_question_is_skipped_by_its_expiry_only_since_its_choices_are_for_answers() -> None:
    story = Story().opened().reads(0.95)
    assert exits_to_skip(story.run, PLAYBOOK) == {"left": "expired"}
    asked = story.run.question
    story.says("skip", to="grow", text="now")
    assert story.run.visit.state == "choose"
    assert "cannot skip to 'grow'" in story.texts("note")[-1]
    story.says("skip", to="left", text="now")
    assert story.run.questions[asked].status == "withdrawn"


def test_what_a_change_would_have_done_is_never_skipped_to() -> None:
    story = Story().asked()
    assert set(exits_to_skip(story.run, PLAYBOOK)) == {"choose"}
    request = story.request
    story.says("skip", to="watch", text="believe me")
    assert story.run.visit.state == "grow"
    story.says("skip", to="choose", text="not now")
    assert (story.run.visit.state, story.run.requests[request].status) == ("choose", "withdrawn")


def test_nothing_is_skipped_while_a_change_is_applied() -> None:
    story = Story().asked().presses("approve").says("skip", to="choose", text="quick")
    assert story.run.visit.state == "grow"
    assert story.texts("note")[-1] == "A change is being applied; its outcome must be known first."


# --- silences --------------------------------------------------------------------------------------------------------


SHOWN = {"VllmKVCacheThrash": {"alertname": "VllmKVCacheThrash", "namespace": "serving"}}
MAY = Authority(allowed=True, reason="is in @serving", teams=("approvers",), read_at=0.0)


def silenced() -> Story:
    story = Story().opened().says("silence", text="deploy at noon", seconds=1800, silences=SHOWN, authority=MAY)
    wanted = story.wanted(SilenceAlerts)
    assert wanted.about == SHOWN
    assert (wanted.ends_at, wanted.why, wanted.wanted_by) == (story.at + 1800, "deploy at noon", "ana")
    story.happens(
        Silenced(event_id=story.id(), ids=("s1",), about=("VllmKVCacheThrash",), ends_at=wanted.ends_at, user="ana")
    )
    return story


def test_a_silence_is_recorded_with_its_end_and_its_undo() -> None:
    story = silenced()
    assert list(story.run.silences) == ["s1"]
    assert story.last.entries[0].data["undo"] == "expire the silences"
    assert "/incident silence INC-1 off" in story.run.posts[-1].data["text"]


def test_a_secret_in_the_reason_of_a_silence_does_not_reach_alertmanager() -> None:
    fields = {"text": "a trial with PASSWORD=hunter2", "seconds": 60, "silences": SHOWN, "authority": MAY}
    assert Story().opened().says("silence", **fields).wanted(SilenceAlerts).why == "a trial with PASSWORD=(masked)"


def test_whose_word_it_was_is_kept_as_evidence_with_what_was_shown() -> None:
    [decided] = [entry for entry in silenced().entries if entry.kind == "decided"]
    assert (decided.who, decided.data) == ("ana", {"matchers": SHOWN, "reason": "is in @serving"})


@pytest.mark.parametrize(
    "without",
    [
        pytest.param({"authority": None}, id="nobody"),
        pytest.param({"authority": MAY.model_copy(update={"allowed": False})}, id="a-stranger"),
        pytest.param({"silences": {}}, id="nothing-shown"),
    ],
)
def test_nothing_is_silenced_without_the_word_of_one_who_may(without: dict[str, object]) -> None:
    confirmed = {"text": "x", "seconds": 60, "silences": SHOWN, "authority": MAY} | without
    story = Story().opened().says("silence", **confirmed)
    assert SilenceAlerts not in {type(effect) for effect in story.effects}
    assert "Nothing was silenced" in story.texts("note")[-1]


def test_a_silence_is_ended_on_request() -> None:
    story = silenced().says("unsilence")
    assert story.wanted(EndSilences).ids == ("s1",)
    story.happens(SilencesEnded(event_id=story.id(), ids=("s1",)))
    assert story.run.silences == {}
    assert SILENCE_ENDS not in story.run.deadlines


def test_a_silence_whose_time_is_over_is_held_no_longer_wherever_the_run_is_by_then() -> None:
    story = silenced()
    ends_at = story.run.silences["s1"]
    story.happens(Silenced(event_id="s", ids=("s2",), about=("A",), ends_at=ends_at + 60, user="ana"))
    story.reads(0.95)
    assert story.run.deadlines[SILENCE_ENDS] == ends_at
    story.at = ends_at - 10
    story.due(SILENCE_ENDS)
    assert list(story.run.silences) == ["s2"]
    assert story.run.deadlines[SILENCE_ENDS] == ends_at + 60
    assert story.texts("note")[-1] == "the silence has expired: its alerts notify again"


def test_a_silence_that_could_not_be_ended_is_held_until_its_own_end() -> None:
    story = silenced().says("resolve")
    story.at = story.run.deadlines[SILENCE_ENDS] - 10
    story.due(SILENCE_ENDS)
    assert (story.run.silences, story.run.deadlines) == ({}, {})


def test_a_silence_does_not_outlive_its_incident() -> None:
    assert silenced().says("resolve").wanted(EndSilences).ids == ("s1",)


def test_a_silence_that_came_after_the_end_is_ended_too() -> None:
    story = Story().opened().says("resolve")
    story.happens(Silenced(event_id="s", ids=("s2",), about=("A",), ends_at=story.at + 60, user="ana"))
    assert story.wanted(EndSilences).ids == ("s2",)


def test_without_a_firing_alert_there_is_nothing_to_silence() -> None:
    story = Story().opened()
    story.run = story.run.with_(alerts={})
    story.says("silence", text="x", seconds=60, silences=SHOWN, authority=MAY)
    assert "nothing to silence" in story.texts("note")[-1]


def test_a_silence_that_alertmanager_refused_is_posted_in_the_thread() -> None:
    story = Story().opened()
    story.happens(EffectFailed(event_id="f", effect_id="silence/1", effect_kind="silence_alerts", reason="HTTP 400"))
    assert story.run.posts[-1].data["text"] == "The alerts could not be silenced: HTTP 400."


# --- reopening, pinning, drawing -------------------------------------------------------------------------------------


def test_a_closed_incident_is_opened_again_from_the_start() -> None:
    story = Story().opened().says("resolve").says("reopen", text="it came back")
    assert (story.run.is_open, story.run.ending, story.run.visit.state) == (True, "", "look")
    assert "reopened by hand: it came back" in story.texts("reopened")


def test_an_open_incident_is_not_reopened() -> None:
    story = Story().opened().reads(0.95).says("reopen", text="x")
    assert (story.run.visit.state, story.texts("note")[-1]) == ("choose", "INC-1 is open.")


@pytest.mark.parametrize("closed", [False, True])
def test_a_pinned_message_stands_at_its_own_time_with_its_author_and_link(closed: bool) -> None:
    story = Story().opened()
    story = story.says("resolve") if closed else story
    story.says("pin", text="I see XIDs", happened_at=builders.START - 60, author="U0BEN", link="https://slack/p1")
    [entry] = story.last.entries
    assert (entry.at, entry.who, entry.text) == (builders.START - 60, "U0BEN", "I see XIDs")
    assert entry.data == {"link": "https://slack/p1", "pinned_by": "ana", "pinned_at": story.at}


@pytest.mark.parametrize("closed", [False, True])
def test_a_graph_is_owed(closed: bool) -> None:
    story = Story().opened()
    story = story.says("resolve") if closed else story
    assert story.says("graph").wanted(DrawPath)


def test_an_old_reminder_is_ignored() -> None:
    story = paging().says("status", text="fine")
    story.happens(Due(event_id="d", deadline=NEXT_STATUS, due_at=builders.START))
    assert story.texts("ignored") == ["an old deadline: status:next:due"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_effect_that_is_given_up_is_described_in_words(kind: str) -> None:
    story = Story().opened()
    story.happens(EffectFailed(event_id="f", effect_id="about/a-person", effect_kind=kind, reason="no answer"))
    [text] = [entry.text for entry in story.last.entries]
    assert f"{KINDS[kind].not_done}: no answer".lower() in text.lower()
    assert [name for name in (kind, kind.replace("_", " ")) if name in text.lower()] == []


def test_a_file_that_could_not_be_uploaded_is_reported_with_the_command_that_needs_no_slack() -> None:
    reason = "uploading INC-1-timeline.md: Slack answered missing_scope"
    failed = EffectFailed(event_id="f", effect_id="export/1", effect_kind="export_timeline", reason=reason)
    story = Story().opened()
    story.happens(failed)
    text = story.run.posts[-1].data["text"]
    assert text.startswith(f"The timeline could not be uploaded here: {reason}; ")
    assert "`incident-bot export INC-1`" in text
