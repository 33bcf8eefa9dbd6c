"""A chart comes from the timeline alone, and shows nothing for unknown moments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.series import (
    MAX_POINTS,
    MIN_LEAD_SECONDS,
    Limit,
    as_evidence,
    charted,
    sampled_line,
    shown_time,
)
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.domain.reports.chart import MAX_MARKS, chart_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.specs import MetricSignal
from bot.domain.signals.window import Window
from tests.builders import START, run
from tests.domain.reports.charted import OPENED, fixed, thrash_line, usage_line

pytestmark = pytest.mark.fast

PLAYBOOK = load_text(
    """
language: 1
playbook: test
title: Test
opens_on: ['alertname="Test"']
settings:
  thrash_ratio: {default: 0.1}
  calm_ratio: {default: 0.01}
  queue: {default: 2}
  ceiling: {default: 0.9}
signals:
  thrash: {ratio: [num_preemptions, request_success], over: 5m}
  usage: {metric: kv_cache_usage_perc, over: 5m}
  waiting: {metric: num_requests_waiting, over: 5m}
  each: {metric: num_requests_waiting, over: 5m, across: each}
start: look
states:
  look:
    read: [thrash, usage, waiting, each]
    go:
      - {when: waiting > settings.queue, to: calm}
      - {when: thrash > settings.thrash_ratio && usage > settings.ceiling * 0.5, to: calm}
      - {when: '(waiting > settings.queue) || waiting * usage > settings.calm_ratio', to: calm}
      - {otherwise: over}
    unknown: over
  calm: {watch: {calm: thrash <= settings.calm_ratio}, for: 5m, within: 20m, held: over, not_held: over}
  over: {end: fixed, say: done}
"""
)


def test_what_was_watched_is_charted_first_with_the_settings_it_was_held_against() -> None:
    found = charted(PLAYBOOK, ("look", "calm", "over"))
    assert list(found) == ["thrash", "waiting"]
    assert [limit.setting for limit in found["thrash"]] == ["calm_ratio", "thrash_ratio"]
    assert found["waiting"] == (Limit(setting="queue", value=2.0),)


def test_what_a_product_is_compared_with_is_no_limit_of_its_factor() -> None:
    found = charted(PLAYBOOK, ("look",))
    assert "usage" not in found
    assert found["waiting"] == (Limit(setting="queue", value=2.0),)


def test_a_state_that_was_not_entered_says_nothing() -> None:
    assert [limit.setting for limit in charted(PLAYBOOK, ("look",))["thrash"]] == ["thrash_ratio"]


def test_the_time_before_the_alert_is_shown_too() -> None:
    began = run()
    shown = shown_time(began, START + 600)
    assert (shown.start, shown.end) == (began.starts_at - MIN_LEAD_SECONDS, START + 600)


def test_a_moment_without_samples_has_no_point_and_is_never_zero() -> None:
    spec = MetricSignal(metric="kv_cache_usage_perc", over="30s")
    times = [*range(0, 200, 5), *range(400, 600, 5)]
    scrapes = [Scrape(replica="a", uid="a", at=float(at), ranks={"0": {"kv_cache_usage_perc": 0.9}}) for at in times]
    line = sampled_line("usage", spec, (), scrapes, shown=Window(0.0, 600.0), span=30.0)
    assert {value for _, value in line.points} == {0.9}
    assert not [at for at, _ in line.points if 240 < at < 400]
    assert len(line.points) <= MAX_POINTS


def test_a_signal_that_nobody_sampled_says_why() -> None:
    spec = MetricSignal(metric="kv_cache_usage_perc", over="30s")
    line = sampled_line("usage", spec, (), [], shown=Window(0.0, 600.0), span=30.0)
    assert line.points == ()
    assert line.unknown


def test_the_chart_has_the_lines_their_change_and_what_was_decided() -> None:
    chart = chart_of(fixed(thrash_line(), usage_line()))
    assert chart is not None
    assert [(panel.title, panel.change) for panel in chart.panels] == [
        ("thrash", "2.81 → 0.0004"),
        ("kv usage", "99.1% → 63.4%"),
    ]
    assert [mark.at - OPENED for mark in chart.marks] == [0, 120, 240, 244, 1380, 1382]
    assert [mark.is_change for mark in chart.marks].index(True) == 3
    assert "(Ana)" in chart.marks[1].text


def test_a_line_that_goes_on_after_the_last_reading_says_where_it_came_to() -> None:
    last = thrash_line().points[-1][0]
    longer = thrash_line().model_copy(update={"points": (*thrash_line().points, (last + 60, 0.02))})
    chart = chart_of(fixed(longer))
    assert chart is not None
    assert chart.panels[0].change == "2.81 → 0.02"


def test_before_the_end_the_readings_themselves_are_the_lines() -> None:
    chart = chart_of(fixed())
    assert chart is not None
    assert [point[1] for point in chart.panels[0].points] == [2.81, 0.0004]


def test_a_picture_that_was_drawn_earlier_goes_on_with_what_was_read_since() -> None:
    so_far = thrash_line()
    so_far = so_far.model_copy(update={"points": tuple(point for point in so_far.points if point[0] < OPENED + 5)})
    entries = [item.entry for item in fixed()]
    drawn = Entry(kind="chart", at=OPENED + 5, text="so far", data=as_evidence([so_far]))
    chart = chart_of(chain([*entries[:3], drawn, *entries[3:]], head=GENESIS, length=0))
    assert chart is not None
    assert chart.panels[0].points[-1] == (OPENED + 1380, 0.0004)


def test_a_later_picture_keeps_what_only_an_earlier_one_still_knew() -> None:
    early, late = thrash_line(), thrash_line()
    early = early.model_copy(update={"points": tuple(point for point in early.points if point[0] < OPENED)})
    late = late.model_copy(update={"points": tuple(point for point in late.points if point[0] > OPENED + 600)})
    entries = [item.entry for item in fixed()]
    drawn = [Entry(kind="chart", at=OPENED, text="drawn", data=as_evidence([line])) for line in (early, late)]
    chart = chart_of(chain([*entries, *drawn], head=GENESIS, length=0))
    assert chart is not None
    assert chart.panels[0].points[0] == early.points[0]
    assert chart.panels[0].points[-1] == late.points[-1]


def test_lines_read_for_an_export_are_newer_than_any_on_the_timeline() -> None:
    longer = thrash_line().model_copy(update={"points": (*thrash_line().points, (OPENED + 3600, 0.3))})
    chart = chart_of(fixed(thrash_line()), [longer])
    assert chart is not None
    assert chart.panels[0].points[-1] == (OPENED + 3600, 0.3)
    assert chart.ends_at == OPENED + 3600


def test_a_timeline_without_lines_has_no_chart() -> None:
    assert chart_of([]) is None


def test_more_decisions_than_can_be_distinguished_are_counted() -> None:
    notes = [Entry(kind="decided", at=OPENED + at, text="said", who="U1") for at in range(20)]
    chart = chart_of(chain([*(item.entry for item in fixed(thrash_line())), *notes], head=GENESIS, length=0))
    assert chart is not None
    assert (len(chart.marks), chart.marks_left_out) == (MAX_MARKS, 26 - MAX_MARKS)
    assert [mark.text[9:] for mark in chart.marks if mark.is_change] == ["set --max-num-seqs"]
    assert chart.marks[0].text.endswith("opened")
    assert chart.marks[-1].text.endswith("fixed and verified")


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_an_altered_line_is_left_out(raw: Any) -> None:
    entries = [item.entry for item in fixed(thrash_line())][:-1]
    altered = Entry(kind="chart", at=OPENED, text="x", data={"series": [raw, {"signal": "a", "points": raw}]})
    chart = chart_of(chain([*entries, altered], head=GENESIS, length=0))
    assert chart is None or all(abs(n) < 1e12 for p in chart.panels for point in p.points for n in point)


def test_a_mark_says_what_was_done_once() -> None:
    story = [
        Entry(kind="opened", at=OPENED, text="opened"),
        Entry(kind="decided", at=OPENED + 10, text="approved R1: Set --max-num-seqs 7 on llm", who="U0ANA"),
        Entry(kind="call", at=OPENED + 11, text="done: Set --max-num-seqs 7 on llm", data={"call": "c"}),
        Entry(kind="verdict", at=OPENED + 20, text="held", state="calm", data={"verdict": "held", "parts": {}}),
        Entry(kind="chart", at=OPENED + 30, text="drawn", data=as_evidence([usage_line()])),
    ]
    made = chart_of(chain(story, head=GENESIS, length=0))
    assert made is not None
    texts = [mark.text.partition(" ")[2] for mark in made.marks]
    assert texts == ["opened", "approved by U0ANA", "Set --max-num-seqs 7 on llm", "calm: yes"]
