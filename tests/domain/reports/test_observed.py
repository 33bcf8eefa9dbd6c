"""The summary of what was only advised: when, what people did, and when it recovered."""

from __future__ import annotations

import pytest

from bot.domain.approvals.advice import OBSERVE_ONLY, OnlyAdvice
from bot.domain.approvals.grant import CarriedOut, Request
from bot.domain.incidents.run import Run
from bot.domain.reports.observed import observed, summary
from tests import builders

pytestmark = pytest.mark.fast
START = 1_795_392_000.0
"""Monday, 23 November 2026."""
DAY = 86400.0


def advised(at: float, **fields: object) -> Request:
    return builders.request(status="advised", advice=OBSERVE_ONLY, asked_at=at, posted_at=None, **fields)


def run(name: str, *requests: Request) -> Run:
    return builders.run(incident_id=name, requests={f"R{n}": each for n, each in enumerate(requests)})


CARRIED = (CarriedOut(user="U0ANA", at=START + 60),)
ELSE = (CarriedOut(user="U0BEN", at=START + 60, text="traffic shifted"),)
RUNS = [
    run("INC-3", advised(START + 2 * DAY, outcome="not_recovered", ended_at=START + 2 * DAY + 4 * 3600)),
    run("INC-1", advised(START + 3600, carried_out=CARRIED, outcome="recovered", ended_at=START + 4800)),
    run("INC-2", advised(START + DAY, carried_out=ELSE), builders.request(asked_at=START + DAY)),
    run("INC-4", advised(START + 7 * DAY), advised(START - 1)),
]


def test_a_summary_says_what_would_have_been_proposed_and_what_became_of_it() -> None:
    assert summary(observed(RUNS, START, START + 7 * DAY), START, START + 7 * DAY).splitlines() == [
        "Observe-only, Mon 23 Nov to Sun 29 Nov: the bot would have proposed 3 changes"
        " to workloads that it only observes.",
        "In 1 of 3 cases the workload recovered while the bot watched; people said what they did in 2.",
        "• INC-1 serving/llm, Mon 23 Nov 01:00 UTC: Scale llm from 4 to 5. U0ANA carried it out;"
        " recovered after 20 min.",
        "• INC-2 serving/llm, Tue 24 Nov 00:00 UTC: Scale llm from 4 to 5. U0BEN did something else: traffic shifted;"
        " not known to have recovered.",
        "• INC-3 serving/llm, Wed 25 Nov 00:00 UTC: Scale llm from 4 to 5. Nobody said what was done;"
        " not recovered after 4 h.",
    ]


def test_what_a_freeze_kept_from_being_requested_is_not_counted() -> None:
    """It says nothing about whether observe-only may end, and the workload is not only observed."""
    frozen = OnlyAdvice(reason="freeze", text="changes are frozen")
    held_back = builders.request(status="advised", advice=frozen, asked_at=START, posted_at=None)
    assert observed([run("INC-1", held_back)], START, START + DAY) == []


def test_a_week_without_advice_is_one_line() -> None:
    text = summary([], START, START + 7 * DAY)
    when = "Observe-only, Mon 23 Nov to Sun 29 Nov"
    assert text == f"{when}: the bot would have proposed 0 changes to workloads that it only observes."


def test_a_long_list_is_cut_and_counted() -> None:
    many = [run(f"INC-{n}", advised(START + n)) for n in range(40)]
    assert summary(observed(many, START, START + DAY), START, START + DAY).splitlines()[-1] == "… and 10 more"
