"""The numbers of a card and of its readings: changed ones beside their baseline, nothing twice, nothing hidden."""

from __future__ import annotations

import json
import re

import pytest

from bot.adapters.slack.outbound.card import card
from bot.adapters.slack.outbound.messages import thread
from bot.adapters.slack.outbound.numbers import numbers, when
from bot.domain.signals.signal import Reading
from tests.adapters.slack.runs import BEGAN, number, waiting

pytestmark = pytest.mark.fast

BLIND = "only 18 s of 30 m of history"
FLAGS = Reading(name="engine_flags", fields={"version": "0.32.0", "max_num_seqs": 64.0}, unknown_parts={"dtype": BLIND})


def readings(*every: Reading) -> dict[str, Reading]:
    return {each.name: each for each in every}


def test_a_number_says_its_unit_once_after_both_values() -> None:
    before, now = number("thrash", 3.67, "per finished"), number("thrash", 0, "per finished")
    assert numbers(readings(before), readings(now)) == ["`thrash` 3.67 → *0* per finished"]


@pytest.mark.parametrize(
    ("before", "now", "better", "line"),
    [
        pytest.param(3.67, 0, "lower", "Preemptions 3.67 → *0* (better)", id="better"),
        pytest.param(1, 2, "lower", "Preemptions 1 → *2* (worse)", id="worse"),
        pytest.param(1, 2, "higher", "Preemptions 1 → *2* (better)", id="more-is-better"),
        pytest.param(100, 101, "lower", "Preemptions 100 → *101*", id="hardly-moved"),
        pytest.param(1, 2, "", "Preemptions 1 → *2*", id="nobody-says-which-is-better"),
    ],
)
def test_a_number_is_called_by_its_label_and_judged_if_the_playbook_says_how(
    before: float, now: float, better: str, line: str
) -> None:
    named = {"label": "Preemptions", "better": better}
    then, last = (number("thrash", value).model_copy(update=named) for value in (before, now))
    assert numbers(readings(then), readings(last)) == [line]


def test_a_unit_that_its_label_begins_with_is_not_repeated() -> None:
    waits = number("waiting", 14, "requests").model_copy(update={"label": "Requests waiting"})
    assert numbers({}, readings(waits)) == ["Requests waiting *14*"]


def test_a_share_is_in_percent_and_needs_no_unit() -> None:
    assert numbers({}, readings(number("kv_usage", 0.66, "ratio"))) == ["`kv_usage` *66.0%*"]


def test_a_number_that_went_blind_says_so() -> None:
    now = Reading(name="waiting", unknown=BLIND, unit="requests")
    assert numbers(readings(number("waiting", 30, "requests")), readings(now)) == ["`waiting` 30 → *?* requests"]


def test_a_number_that_was_never_read_takes_no_place_from_one_that_was() -> None:
    blind = [Reading(name=f"before_{n}", unknown=BLIND, unit="s") for n in range(9)]
    latest = readings(*blind, number("kv_usage", 1.0, "ratio"))
    assert numbers(readings(*blind), latest) == ["`kv_usage` *100%*"]


def test_numbers_that_a_reader_can_judge_come_first() -> None:
    tokens, used = number("prompt_tokens", 9_855), number("kv_usage", 1.0, "ratio")
    latest = readings(tokens, used.model_copy(update={"better": "lower"}))
    assert numbers({}, latest) == ["`kv_usage` *100%*", "`prompt_tokens` *9,855*"]


def test_a_number_that_was_not_read_again_says_its_own_moment_and_comes_last() -> None:
    then, now = BEGAN, BEGAN + 600
    old, new = number("running", 24.8, at=then), number("thrash", 0.0, at=now)
    before = readings(number("running", 24.8, at=then), number("thrash", 3.67, at=then))
    assert numbers(before, readings(old, new)) == [
        "`thrash` 3.67 → *0*",
        "`running` 24.8 → *24.8* (at <!date^1795000000^{time_secs}|11:06:40 UTC>)",
    ]
    assert "11:16:40 UTC" in when(before, readings(old, new))
    assert "baseline at" in when(before, readings(old, new))


def test_no_number_of_a_message_is_called_now() -> None:
    messages = [card(waiting(), links={}), *(message for _, message in thread(waiting()))]
    texts = [json.dumps(message.blocks) for message in messages]
    assert not [each for each in texts if re.search(r"\bnow\b", each)]
