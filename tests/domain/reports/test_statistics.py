"""What the stored incidents add up to: times, presses, outcomes, and which mitigation held."""

from __future__ import annotations

import pytest

from bot.domain.approvals.advice import OnlyAdvice
from bot.domain.approvals.announced import PreApproved
from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import Plan
from bot.domain.incidents.run import Question, Run
from bot.domain.reports.statistics import covered_days, in_words, last_time, presses_of, statistics, waited_seconds
from tests import builders

pytestmark = pytest.mark.fast
START = 1_795_392_000.0
DAY = 86_400.0
CAP = builders.plan(verb="canary", choices={"edits": {"--max-num-seqs": "6"}})


def request(at: float, *, took: float, outcome: str = "done", plan: Plan = CAP) -> Request:
    return builders.request(
        asked_at=at, plan=plan, status="granted", decided_by="U0ANA", decided_at=at + took, outcome=outcome
    )


def incident(name: str, day: float, *requests: Request, ending: str = "fixed") -> Run:
    opened = START + day * DAY
    asked = {f"R{number}": each for number, each in enumerate(requests)}
    closed_at = opened + 600 if ending else None
    return builders.run(incident_id=name, opened_at=opened, requests=asked, closed_at=closed_at, ending=ending)


CHANGED = builders.ledger_entry(verb="canary", applied_at=START + 90)
FIRST = incident("INC-1", 0, request(START + 60, took=30)).model_copy(update={"ledger": (CHANGED,)})
SECOND = incident("INC-2", 9, request(START + 9 * DAY + 60, took=90), ending="handed_over")
OPEN = incident("INC-3", 10, ending="")


def test_times_are_medians_of_the_incidents_that_have_them() -> None:
    found = statistics([OPEN, SECOND, FIRST, FIRST], START, START + 11 * DAY)
    assert (found.opened, found.closed) == (3, 2)
    assert (found.until_acted.seconds, found.until_acted.of) == (120, 2)
    assert (found.until_closed.seconds, found.waited.seconds, found.presses) == (600, 60, 1)
    assert found.outcomes == {FIRST.playbook: {"fixed and verified": 1, "handed over to people": 1}}


def test_what_was_fixed_without_a_change_is_counted_apart() -> None:
    found = statistics([FIRST, incident("INC-5", 1)], START, START + 11 * DAY)
    assert found.outcomes == {FIRST.playbook: {"fixed and verified": 1, "verified without a change by the bot": 1}}


def test_a_canary_that_was_removed_fixed_nothing() -> None:
    removed = [
        CHANGED.model_copy(update={"undone_by": "INC-6/R2/0"}),
        builders.ledger_entry(verb="remove_canary", undo=()),
    ]
    tried = incident("INC-6", 1).model_copy(update={"ledger": tuple(removed)})
    lasting = tried.model_copy(update={"ledger": (*removed, builders.ledger_entry(verb="scale", undo=()))})
    assert tried.ending_in_words == "verified without a lasting change by the bot"
    assert lasting.ending_in_words == "fixed and verified"


def test_a_mitigation_is_counted_by_target_with_how_long_it_held() -> None:
    (row,) = statistics([FIRST, SECOND], START, START + 11 * DAY).mitigations
    assert (row.target, row.what, row.done, row.went_well) == ("serving/llm", "--max-num-seqs", 2, 1)
    assert row.held_seconds == 9 * DAY - 600


def test_what_was_withdrawn_was_waited_for_until_people_were_asked_the_next_thing() -> None:
    withdrawn = builders.request(asked_at=START, status="withdrawn")
    ended = incident("INC-4", 0, withdrawn, request(START + 50, took=10))
    assert waited_seconds(ended, until=START + 600) == 60
    assert waited_seconds(incident("INC-5", 0, withdrawn), until=START + 600) == 600


EXPIRED = builders.request(asked_at=START, status="expired", expires_at=START + 90)
FREEZE = OnlyAdvice(reason="freeze", text="release")


@pytest.mark.parametrize(
    ("requests", "waited"),
    [
        pytest.param([EXPIRED, request(START + 300, took=10)], 100, id="expired"),
        pytest.param([EXPIRED.model_copy(update={"decided_at": START + 40})], 40, id="a-grant-that-lapsed"),
        pytest.param([builders.request(asked_at=START, status="superseded", advice=FREEZE)], 0, id="advice-lifted"),
        pytest.param(
            [
                builders.request(asked_at=START, status="superseded"),
                builders.request(asked_at=START + 30, status="advised", advice=FREEZE),
            ],
            30,
            id="frozen",
        ),
    ],
)
def test_a_request_is_waited_for_until_it_ended_and_advice_is_not(requests: list[Request], waited: float) -> None:
    assert waited_seconds(incident("INC-4", 0, *requests), until=START + 600) == waited


def test_a_question_that_expired_was_waited_for_until_then() -> None:
    expired = Question(
        question_id="Q1", state="s", visit=1, text="?", choices={}, asked_at=START, status="expired",
        expires_at=START + 90,
    )  # fmt: skip
    run = incident("INC-4", 0).model_copy(update={"questions": {"Q1": expired}})
    assert waited_seconds(run, until=START + 600) == 90


def test_two_waits_at_once_are_waited_for_once() -> None:
    both = incident("INC-4", 0, request(START, took=100), request(START + 50, took=100))
    assert waited_seconds(both, until=START + 600) == 150
    assert waited_seconds(both, until=START + 120) == 120, "what was decided after that moment does not count"
    assert waited_seconds(both, until=START - 1) == 0
    assert presses_of(both) == 2


@pytest.mark.parametrize(
    ("earlier", "text"),
    [
        ([FIRST], "this change ended INC-1 10 days ago and held for 10 days"),
        ([SECOND], "this change did not end INC-2 23 h 50 min ago"),
        ([incident("INC-5", 0, request(START, took=1, outcome="failed"))], ""),
        ([incident("INC-5", 0, request(START, took=1, plan=builders.plan(verb="scale")))], ""),
        ([], ""),
    ],
    ids=["held", "did-not-help", "failed", "another-change", "never"],
)
def test_the_last_time_of_the_same_change_is_described(earlier: list[Run], text: str) -> None:
    assert last_time(earlier, OPEN, CAP, at=OPEN.opened_at) == text


@pytest.mark.parametrize(
    ("undone_by", "is_counted"),
    [
        pytest.param(("INC-1/R9/0", "INC-1/R9/1"), False, id="all-of-it-was-undone"),
        pytest.param(("INC-1/R9/0", ""), True, id="a-part-is-in-force"),
    ],
)
def test_a_change_that_was_undone_did_not_end_its_incident(undone_by: tuple[str, ...], *, is_counted: bool) -> None:
    ledger = tuple(
        builders.ledger_entry(call_id=f"INC-1/R1/{step}", verb="canary", undone_by=by)
        for step, by in enumerate(undone_by)
    )
    elsewhere = builders.ledger_entry(call_id="INC-0/R1/0")
    earlier = incident("INC-1", 0, request(START + 60, took=30), ending="resolved_by_itself")
    earlier = earlier.model_copy(update={"ledger": (*ledger, elsewhere)})
    assert bool(last_time([earlier], OPEN, CAP, at=OPEN.opened_at)) is is_counted
    assert bool(statistics([earlier], START, START + DAY).mitigations) is is_counted


@pytest.mark.parametrize(
    ("days", "read", "words"),
    [
        pytest.param(30, 3, "The last 30 days.", id="all-are-read"),
        pytest.param(1, 3, "The last day.", id="one-day"),
        pytest.param(30, 2, "The newest 2 incidents of the last 30 days; older ones are not counted.", id="too-many"),
        pytest.param(2, 2, "The last 2 days.", id="the-oldest-is-older"),
    ],
)
def test_what_is_not_counted_because_it_is_not_read_is_said(days: int, read: int, words: str) -> None:
    runs = [incident("INC-1", 7), incident("INC-2", 9)]
    assert covered_days(days, runs, runs[-1].opened_at - (days - 1) * DAY, read=read) == words


def test_nothing_yet_is_described_in_words() -> None:
    assert in_words(statistics([], START, START + DAY)) == [
        "Opened: 0 (0 paged). Closed: 0.",
        "Time to the first action (MTTA): none yet. Time to the close (MTTR): none yet.",
        "Time spent waiting for people: none yet.",
    ]


def test_changes_that_the_settings_pre_approved_are_counted() -> None:
    asked = request(START, took=30)
    policy = builders.policy(announced=f"the settings pre-approve {PreApproved(change='scale', at_most=1)}")
    pre_approved = asked.model_copy(update={"policy": policy, "decided_by": ""})
    cleaned_up = asked.model_copy(update={"policy": builders.policy(announced="it only cleans up")})
    not_begun = pre_approved.model_copy(update={"status": "superseded"})
    run = incident("INC-6", 1, asked, pre_approved, cleaned_up, not_begun)
    found = statistics([run], START, START + 11 * DAY)
    assert found.pre_approved == 1
    assert "Changes that the settings pre-approved: 1." in in_words(found)


def test_each_outcome_and_mitigation_has_a_line() -> None:
    lines = in_words(statistics([FIRST, SECOND], START, START + 11 * DAY))
    assert f"• {FIRST.playbook}: 1 fixed and verified, 1 handed over to people" in lines
    assert (
        "• serving/llm, --max-num-seqs: applied twice, ended the incident once, held for 9 days the last time" in lines
    )
