"""The numbers of a card and of its readings: changed ones beside their baseline, nothing twice, nothing hidden."""

from __future__ import annotations

import json
import re

import pytest

from bot.adapters.slack.outbound.messages import card, thread
from bot.adapters.slack.outbound.numbers import numbers, what_was_read, when
from bot.domain.signals.signal import Reading
from tests.adapters.slack.runs import BEGAN, number, post, run, waiting

pytestmark = pytest.mark.fast

BLIND = "only 18 s of 30 m of history"
FLAGS = Reading(name="engine_flags", fields={"version": "0.32.0", "max_num_seqs": 64.0}, unknown_parts={"dtype": BLIND})


def readings(*every: Reading) -> dict[str, Reading]:
    return {each.name: each for each in every}


def shown(*every: Reading, baseline: tuple[Reading, ...] = (), before: tuple[Reading, ...] = ()) -> str:
    return json.dumps(what_was_read(every, readings(*baseline), readings(*before)), ensure_ascii=False)


def test_a_number_says_its_unit_once_after_both_values() -> None:
    before, now = number("thrash", 3.67, "per finished"), number("thrash", 0, "per finished")
    assert numbers(readings(before), readings(now)) == ["`thrash` 3.67 → *0* per finished"]


@pytest.mark.parametrize(
    ("before", "now", "better", "said"),
    [
        pytest.param(3.67, 0, "lower", "Preemptions 3.67 → *0* (better)", id="better"),
        pytest.param(1, 2, "lower", "Preemptions 1 → *2* (worse)", id="worse"),
        pytest.param(1, 2, "higher", "Preemptions 1 → *2* (better)", id="more-is-better"),
        pytest.param(100, 101, "lower", "Preemptions 100 → *101*", id="hardly-moved"),
        pytest.param(1, 2, "", "Preemptions 1 → *2*", id="nobody-says-which-is-better"),
    ],
)
def test_a_number_is_called_by_its_label_and_judged_if_the_playbook_says_how(
    before: float, now: float, better: str, said: str
) -> None:
    named = {"label": "Preemptions", "better": better}
    then, last = (number("thrash", value).model_copy(update=named) for value in (before, now))
    assert numbers(readings(then), readings(last)) == [said]


def test_a_share_is_in_percent_and_needs_no_unit() -> None:
    assert numbers({}, readings(number("kv_usage", 0.66, "ratio"))) == ["`kv_usage` *66.0%*"]


def test_a_number_that_went_blind_says_so() -> None:
    now = Reading(name="waiting", unknown=BLIND, unit="requests")
    assert numbers(readings(number("waiting", 30, "requests")), readings(now)) == ["`waiting` 30 → *?* requests"]


def test_a_number_that_was_never_read_takes_no_place_from_one_that_was() -> None:
    blind = [Reading(name=f"before_{n}", unknown=BLIND, unit="s") for n in range(9)]
    latest = readings(*blind, number("kv_usage", 1.0, "ratio"))
    assert numbers(readings(*blind), latest) == ["`kv_usage` *100%*"]


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


def test_the_close_tells_only_what_was_read_in_the_last_look() -> None:
    latest = readings(number("running", 24.8, at=BEGAN), number("thrash", 0.0, at=BEGAN + 600))
    ended = run(
        closed_at=BEGAN + 605,
        ending="fixed",
        latest=latest,
        baseline=readings(number("running", 24.8, at=BEGAN), number("thrash", 3.67, at=BEGAN)),
        posts=(post("closed", "closed", "fixed", ending="fixed", text=""),),
    )
    [(_, message)] = thread(ended)
    said = json.dumps(message.blocks, ensure_ascii=False) + message.text
    assert "thrash` 3.67 → *0*" in said
    assert "read at <!date^1795000600^{time_secs}|11:16:40 UTC>" in said
    assert "running" not in said


def test_no_number_of_a_message_is_called_now() -> None:
    table = shown(number("running", 22, at=BEGAN), baseline=(number("running", 17, at=BEGAN - 60),))
    messages = [card(waiting(), links={}), *(message for _, message in thread(waiting()))]
    said = [table, *(json.dumps(message.blocks) for message in messages)]
    assert not [each for each in said if re.search(r"\bnow\b", each)]


def test_what_was_read_says_of_which_moment_a_row_is() -> None:
    said = shown(
        number("thrash", 3, at=BEGAN), number("before", 1, at=BEGAN - 3600), number("day", 2, at=BEGAN - 86400)
    )
    assert "signal  last  at (UTC)" in said
    assert "before  1     10:06:40" in said
    assert "day     2     2026-11-17 11:06" in said
    assert "thrash  3\\nbefore" in said


def test_the_column_of_the_baseline_says_its_moment() -> None:
    said = shown(number("running", 22, at=BEGAN), baseline=(number("running", 17, at=BEGAN - 60),))
    assert "signal   baseline 11:05:40  last" in said


def test_a_probe_of_an_earlier_moment_says_it() -> None:
    rollout = Reading(name="rollout", fields={"happened": True}, at=BEGAN - 900)
    assert "happened yes (at <!date^1794999100" in shown(rollout, number("thrash", 3, at=BEGAN))


def test_the_baseline_has_a_column_once_something_moved() -> None:
    then, now = number("running", 17), number("running", 22)
    assert "baseline" not in shown(then, baseline=(then,))
    assert "running  17        22" in shown(now, baseline=(then,))


def test_a_reason_is_said_once_for_all_that_it_hides() -> None:
    said = shown(*(Reading(name=f"s{n}", unknown=BLIND) for n in range(3)), FLAGS)
    assert said.count(BLIND) == 1
    assert "`s0`, `s1`, `s2`, `engine_flags.dtype`" in said


def test_many_names_and_many_reasons_are_counted_and_not_lost() -> None:
    said = shown(*(Reading(name=f"s{n}", unknown=BLIND) for n in range(40)))
    assert "and 28 more" in said
    assert "and 5 more reasons" in shown(*(Reading(name=f"s{n}", unknown=f"reason {n}") for n in range(20)))


def test_what_stands_above_is_not_said_again() -> None:
    running = number("running", 17)
    said = shown(running, FLAGS, before=(running, FLAGS))
    assert "running" not in said
    assert "2 more are as read before" in said
    assert "running" in shown(number("running", 18), before=(running,))


def test_a_part_that_went_blind_is_said_although_the_rest_is_as_before() -> None:
    known = FLAGS.model_copy(update={"unknown_parts": {}})
    assert BLIND in shown(FLAGS, before=(known,))
    gone = FLAGS.model_copy(update={"unknown_parts": {"dtype": "the page did not answer"}})
    assert "the page did not answer" in shown(gone, before=(FLAGS,))


def test_the_first_message_of_a_thread_keeps_what_a_later_one_leaves_out() -> None:
    dump = {"running": number("running", 17).model_dump(mode="json")}
    both = tuple(post("diagnostics", f"diagnostics:{n}", "look", readings=dump) for n in (1, 2))
    first, second = (json.dumps(message.blocks) for _, message in thread(run(posts=both, baseline={})))
    assert "running" in first
    assert "running" not in second
