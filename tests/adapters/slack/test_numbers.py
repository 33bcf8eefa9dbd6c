"""The numbers of a card and of what was read: moved ones beside their baseline, nothing twice, nothing hidden."""

from __future__ import annotations

import json

import pytest

from bot.adapters.slack.messages import card, thread
from bot.adapters.slack.numbers import numbers, read_now
from bot.domain.signal import Reading
from tests.adapters.slack.runs import number, post, run

pytestmark = pytest.mark.fast

BLIND = "only 18 s of 30 m of history"
FLAGS = Reading(name="engine_flags", fields={"version": "0.32.0", "max_num_seqs": 64.0}, unknown_parts={"dtype": BLIND})


def readings(*every: Reading) -> dict[str, Reading]:
    return {each.name: each for each in every}


def shown(*every: Reading, baseline: tuple[Reading, ...] = (), before: tuple[Reading, ...] = ()) -> str:
    return json.dumps(read_now(every, readings(*baseline), readings(*before)), ensure_ascii=False)


def test_a_number_says_its_unit_once_after_both_values() -> None:
    before, now = number("thrash", 3.67, "per finished"), number("thrash", 0, "per finished")
    assert numbers(readings(before), readings(now)) == ["`thrash` 3.67 → *0* per finished"]


def test_a_share_is_in_percent_and_needs_no_unit() -> None:
    assert numbers({}, readings(number("kv_usage", 0.66, "ratio"))) == ["`kv_usage` *66.0%*"]


def test_a_number_that_went_blind_says_so() -> None:
    now = Reading(name="waiting", unknown=BLIND, unit="requests")
    assert numbers(readings(number("waiting", 30, "requests")), readings(now)) == ["`waiting` 30 → *?* requests"]


def test_a_number_that_was_never_read_takes_no_place_from_one_that_was() -> None:
    blind = [Reading(name=f"before_{n}", unknown=BLIND, unit="s") for n in range(9)]
    latest = readings(*blind, number("kv_usage", 1.0, "ratio"))
    assert numbers(readings(*blind), latest) == ["`kv_usage` *100%*"]


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


def test_the_first_message_of_a_thread_keeps_what_a_later_one_leaves_out() -> None:
    dump = {"running": number("running", 17).model_dump(mode="json")}
    both = tuple(post("diagnostics", f"diagnostics:{n}", "look", readings=dump) for n in (1, 2))
    first, second = (json.dumps(message.blocks) for _, message in thread(run(posts=both, baseline={})))
    assert "running" in first
    assert "running" not in second


def test_a_number_that_is_older_than_the_others_says_how_old_it_is() -> None:
    """Slack counts the minutes for each reader, so the card need not be edited for it."""

    def read(reading: Reading, at: float) -> Reading:
        return reading.model_copy(update={"at": 1_790_000_000.0 + at})

    new, old = read(number("waiting", 3, "requests"), 600), read(number("thrash", 2.8), 0)
    assert numbers({}, readings(new, old)) == [
        "`waiting` *3* requests",
        "`thrash` *2.8* (<!date^1790000000^{ago}|14:13 UTC>)",
    ]
    same = read(number("thrash", 2.8), 541)
    assert numbers({}, readings(new, same))[1] == "`thrash` *2.8*", "read within the same minute"


def test_the_card_says_when_its_numbers_were_read() -> None:
    """While a question waits nothing is read, so the numbers are as old as the question."""
    read = {"thrash": number("thrash", 2.8).model_copy(update={"at": 1_790_000_000.0})}
    assert "numbers read <!date^1790000000^{ago}" in json.dumps(card(run(latest=read), links={}).blocks)
    assert "numbers read" not in json.dumps(card(run(latest={}), links={}).blocks)
