"""What a report concludes from single entries: what was done, who acted when, what was waited for, and the phases."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.incidents.event import ChangesPassedOn, SilencesEnded
from bot.domain.kernel.timeline import GENESIS, Entry, EntryKind, chain
from bot.domain.reports import Report, report_of
from bot.domain.reports.facts import Phase
from tests.builders import START, ledger_entry
from tests.domain.incidents.machine.steps import Story
from tests.domain.incidents.machine.test_operator_actions import silenced

pytestmark = pytest.mark.fast


def at(after: float, kind: EntryKind, text: str = "", *, who: str = "", state: str = "", **data: Any) -> Entry:
    return Entry(kind=kind, at=START + after, text=text, who=who, state=state, data=data)


def reported(*entries: Entry) -> Report:
    return report_of(chain((at(0, "opened", "opened"), *entries), head=GENESIS, length=0))


def report_for(story: Story) -> Report:
    return report_of(chain(story.entries, head=GENESIS, length=0))


def asked(after: float, name: str, **data: Any) -> Entry:
    return at(after, "request", f"{name} (low risk): cap", request=name, plan={"title": "cap"}, **data)


def approved(after: float, name: str) -> Entry:
    return at(after, "decided", f"approved {name}: cap", who="U0ANA", request=name)


@pytest.mark.parametrize(
    "granted",
    [
        pytest.param(at(9, "decided", "approved R1: cap", who="U0ANA", request="R1"), id="in-an-older-entry"),
        pytest.param(at(9, "decided", "granted R1: cap", who="U0ANA", request="R1", status="granted"), id="as-data"),
    ],
)
def test_who_approved_a_request_is_named(granted: Entry) -> None:
    done = at(20, "outcome", "set_flags: done — cap", request="R1", outcome="done")
    assert [it.by for it in reported(asked(1, "R1"), granted, done).applied] == [("U0ANA",)]


def test_an_approval_is_recorded_for_machines_too() -> None:
    [granted] = [entry for entry in Story().granted().entries if entry.kind == "decided"]
    assert granted.data["status"] == "granted"


def test_an_answer_that_begins_like_an_approval_is_none() -> None:
    (decided,) = reported(at(9, "answered", "approved by the owner", who="U0ANA", question="Q1")).decisions
    assert not decided.granted


def entered(after: float, kind: str, title: str) -> Entry:
    entry = at(after, "entered", f"{title} — why", state=title.lower())
    return entry.model_copy(update={"data": {"kind": kind}})


# --- what was done ----------------------------------------------------------------------------------------------------

HALF_WAY = "set_flags: failed — step 2 was refused; step 1: done, 200 OK"


@pytest.mark.parametrize(
    ("outcome", "is_applied"),
    [
        pytest.param(at(9, "outcome", "set_flags: done — cap", request="R1", outcome="done"), True, id="done"),
        pytest.param(at(9, "outcome", HALF_WAY, request="R1", outcome="failed"), False, id="failed"),
        pytest.param(at(9, "outcome", "set_flags: done — cap", request="R1"), True, id="done-in-an-older-entry"),
        pytest.param(at(9, "outcome", HALF_WAY, request="R1"), False, id="failed-in-an-older-entry"),
    ],
)
def test_only_a_change_whose_outcome_is_done_was_done(outcome: Entry, *, is_applied: bool) -> None:
    assert bool(reported(asked(1, "R1"), outcome).applied) is is_applied


def test_the_outcome_of_a_change_is_recorded_for_machines_too() -> None:
    story = Story().granted().settles("failed", detail="step 1: done, step 2: HTTP 409")
    [call] = [entry for entry in story.last.entries if entry.kind == "call"]
    [outcome] = [entry for entry in story.last.entries if entry.kind == "outcome"]
    assert (call.data, outcome.data) == ({"request": "R2"}, {"request": "R2", "outcome": "failed"})
    assert report_for(story).applied == ()
    assert [it.request for it in report_for(Story().applied()).applied] == ["R2"]


# --- who acted when ---------------------------------------------------------------------------------------------------


def test_a_pinned_message_is_not_the_first_act() -> None:
    pinned = at(-600, "note", "it is slow", who="U0EVE", pinned_by="U0ANA", pinned_at=START + 50)
    assert reported(pinned, approved(90, "R1")).act_seconds == 90
    assert reported(pinned).act_seconds is None


def test_the_first_act_is_the_earliest_one() -> None:
    assert reported(at(90, "note", "later", who="U0ANA"), at(60, "note", "earlier", who="U0BEN")).act_seconds == 60


# --- silences ---------------------------------------------------------------------------------------------------------

OLDER_SILENCE = (
    at(20, "call", "silenced in Alertmanager for 30 min (A)", who="U0ANA", silences=["s1"], undo="expire the silences"),
    at(25, "undo", "asked to end the silences", who="U0ANA"),
    at(30, "undo", "the silence ended in Alertmanager", silences=["s1"]),
)
"""As earlier versions of the bot recorded it."""


def test_the_end_of_a_silence_ends_no_wait() -> None:
    assert reported(asked(10, "R1"), *OLDER_SILENCE, approved(1000, "R1")).waited_seconds == 990


def test_what_alertmanager_did_is_not_what_people_decided() -> None:
    assert reported(*OLDER_SILENCE).decisions == ()


def test_a_silence_is_no_change_by_the_bot() -> None:
    closed = at(99, "closed", "closed", ending="fixed", held=[])
    report = reported(*OLDER_SILENCE, closed)
    assert (report.ending_in_words, report.calls) == ("verified without a change by the bot", ())


def test_only_a_call_that_was_done_is_a_change_by_the_bot() -> None:
    closed = at(99, "closed", "closed", ending="fixed", held=[])
    refused = at(20, "call", "failed: cap — HTTP 409")
    assert reported(refused, closed).ending_in_words == "verified without a change by the bot"
    assert reported(at(20, "call", "done: cap", call="INC-1/R1/0"), closed).ending_in_words == "fixed and verified"


def test_a_canary_that_was_removed_fixed_nothing() -> None:
    closed = at(99, "closed", "closed", ending="fixed", held=[])
    kept = at(99, "closed", "closed", ending="fixed", held=["Start a canary"])
    began = at(20, "call", "done: Start a canary", call="INC-1/R1/0", verb="canary")
    ended = at(30, "call", "done: Remove the canary", call="INC-1/R2/0", verb="remove_canary")
    turned = at(25, "call", "done: Take the canary into rotation", call="INC-1/R3/0", verb="rotate_canary")
    rolled = at(25, "call", "done: Set the flags", call="INC-1/R3/0", verb="promote")
    assert reported(began, ended, closed).ending_in_words == "verified without a lasting change by the bot"
    assert reported(began, turned, ended, closed).ending_in_words == "verified without a lasting change by the bot"
    assert reported(began, kept).ending_in_words == "fixed and verified"
    assert reported(began, rolled, ended, closed).ending_in_words == "fixed and verified"


def test_a_case_that_was_treated_was_a_case_for_its_playbook() -> None:
    closed = at(99, "closed", "closed", ending="not_applicable", held=[])
    cordoned = at(20, "call", "done: Cordon node a", call="INC-1/R1/0", verb="cordon_node")
    assert reported(closed).ending_in_words == "not a case for this playbook"
    assert reported(cordoned, closed).ending_in_words == "closed, nothing left to fix"


def test_a_silence_is_recorded_as_notes() -> None:
    story = silenced().says("unsilence")
    story.happens(SilencesEnded(event_id="e", ids=("s1",)))
    assert [entry.kind for entry in story.entries[-3:]] == ["note"] * 3
    assert [it.what for it in report_for(story).decisions] == ["a silence of 30 min decided: deploy at noon"]


# --- what was waited for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(at(20, "planned", "R1 superseded: a freeze", request="R1"), id="frozen"),
        pytest.param(at(20, "planned", "R1 superseded: a freeze"), id="frozen-in-an-older-entry"),
        pytest.param(at(20, "decided", "R1 expired: nobody decided in time"), id="expired-in-an-older-entry"),
        pytest.param(at(20, "decided", "request R1 edited: it 9", who="U0ANA", values={"it": 9}), id="edited"),
    ],
)
def test_a_request_is_waited_for_until_it_ends(ended: Entry) -> None:
    (wait,) = reported(asked(10, "R1"), ended, at(900, "note", "looking", who="U0ANA")).waits
    assert wait.ended_at == START + 20


@pytest.mark.parametrize("text", ["a silence of 10 min decided: until R1 is decided", "planning again: with R1"])
def test_a_request_that_a_text_only_names_is_still_open(text: str) -> None:
    kind: EntryKind = "decided" if "silence" in text else "planned"
    (wait,) = reported(asked(10, "R1"), at(20, kind, text, who="U0ANA"), at(900, "note", "looking")).waits
    assert wait.ended_at is None


def test_a_freeze_ends_the_wait_for_its_request() -> None:
    story = Story().asked().says("freeze", text="release")
    assert report_for(story).waits[-1].ended_at == story.at
    [superseded] = [entry for entry in story.last.entries if "superseded" in entry.text]
    assert superseded.data == {"request": "R2", "superseded": "release"}


# --- what is in place -------------------------------------------------------------------------------------------------


def test_what_another_incident_passed_on_is_still_in_place() -> None:
    story = Story().opened()
    change = ledger_entry(call_id="INC-0/R1/0", title="Scale llm to 5")
    story.happens(ChangesPassedOn(event_id="p", by="INC-0", entries=(change,)))
    assert report_for(story).held == ("Scale llm to 5",)


def test_what_somebody_else_took_over_is_not_in_place() -> None:
    story = Story().opened()
    story.run = story.run.with_(ledger=(ledger_entry(call_id="INC-1/R9/0"),))
    story.reads(0.95).chooses("grow").planned().posted().presses("approve")
    story.happens(ChangesPassedOn(event_id="p", by="INC-0", entries=(ledger_entry(call_id="INC-0/R1/0"),)))
    assert report_for(story).held
    story.settles("interfered", detail="replicas is 7", evidence={"calls": ["INC-0/R1/0", "INC-1/R9/0"]})
    assert report_for(story).held == ()


# --- phases -----------------------------------------------------------------------------------------------------------


def phases(*entries: Entry) -> list[tuple[str, float | None]]:
    def row(phase: Phase) -> tuple[str, float | None]:
        return phase.name, phase.took_seconds

    return [row(phase) for phase in reported(*entries).phases]


def test_what_is_read_after_an_incident_is_reopened_is_a_phase_of_its_own() -> None:
    assert phases(
        entered(0, "read", "Look"),
        entered(60, "watch", "Verification"),
        at(660, "closed", "closed: fixed", ending="fixed", held=[]),
        at(8000, "reopened", "reopened: it fires again"),
        entered(8000, "read", "Look"),
        entered(8010, "ask", "Choose"),
    ) == [("Diagnosis", 60), ("Verification", 600), ("Diagnosis", 10), ("Question to people", None)]


def test_a_follow_up_that_never_began_is_no_change_although_the_one_before_it_just_ended() -> None:
    assert phases(
        entered(0, "change", "Canary"),
        asked(1, "R1"),
        approved(30, "R1"),
        at(60, "call", "failed: canary — crashed"),
        at(60, "outcome", "canary: failed — crashed", request="R1", outcome="failed"),
        entered(60, "change", "Remove"),
        asked(61, "R2"),
        at(960, "decided", "R2 expired: nobody decided in time", request="R2"),
        entered(960, "watch", "Calm"),
    ) == [("Canary", 60), ("Question to people", 900), ("Calm", None)]


def test_one_of_two_approvals_begins_no_change() -> None:
    half = at(30, "press", "approval 1 of 2: one more is needed", who="U0BEN", request="R1")
    expired = at(90, "decided", "R1 expired: nobody decided in time", request="R1")
    assert phases(entered(0, "change", "Cap"), asked(1, "R1"), half, expired) == [("Question to people", None)]


def test_an_undo_ends_the_phase_before_it_and_its_calls_belong_to_no_other_change() -> None:
    assert phases(
        entered(0, "change", "Cap"),
        asked(1, "R2"),
        at(50, "undo", "undo asked for: canary", who="U0ANA", of=["INC-1/R1/0"]),
        asked(51, "R3"),
        approved(60, "R3"),
        at(70, "call", "done: remove the canary", call="INC-1/R3/0"),
        at(70, "outcome", "undo: done — remove the canary", request="R3", outcome="done"),
        entered(100, "recommend", "Choose"),
        entered(110, "ask", "Choose"),
    ) == [("Question to people", 50), ("Diagnosis", 10), ("Question to people", None)]


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(at(20, "call", "done: canary", call="INC-1/R1/0"), id="call"),
        pytest.param(at(20, "wait", "seen: canary serves", request="R1"), id="wait"),
        pytest.param(at(20, "outcome", "canary: unclear", request="R1", outcome="unclear"), id="outcome"),
    ],
)
def test_a_late_step_of_an_earlier_change_begins_no_other(late: Entry) -> None:
    assert phases(entered(0, "change", "Cap"), asked(1, "R2"), late) == [("Question to people", None)]
