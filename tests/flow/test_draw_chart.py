"""The chart of an incident: its lines come onto the timeline after the end, then once as a picture into the thread."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.effect import DrawChart, ReadSeries
from bot.domain.event import EffectFailed, Posted, SeriesRead
from bot.domain.playbook.compiled import CompiledPlaybook
from bot.domain.report.chart import Chart, chart_of
from bot.domain.run import Run
from bot.domain.scrape import Scrape
from bot.flow.draw_chart import ReadSeriesForRun, comment_of
from bot.flow.perform_effect import Job
from bot.flow.ports import Owed, ReadContext
from tests.adapters.slack.runs import BEGAN, run
from tests.domain.charted import fixed, thrash_line, usage_line
from tests.domain.machine.steps import Story

pytestmark = pytest.mark.fast

PLAYBOOK = load_text(
    """
language: 1
playbook: test
title: Test
opens_on: ['alertname="Test"']
settings: {ceiling: {default: 0.9}}
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
start: calm
states:
  calm: {watch: {calm: usage <= settings.ceiling}, for: 5m, within: 20m, held: over, not_held: over}
  over: {end: fixed, say: done}
"""
)


class Sampled:
    """A history with a sample in five seconds, since the incident began."""

    source = "samples"

    async def sample(self, context: ReadContext) -> None:
        raise AssertionError("a line is about the past")

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float
    ) -> Sequence[Scrape]:
        assert metrics == {"kv_cache_usage_perc"}
        times = [BEGAN + after for after in range(0, 600, 5)]
        ranks = {"0": {"kv_cache_usage_perc": 0.97}}
        return [Scrape(replica="a", uid="a", at=at, ranks=ranks) for at in times if start <= at <= end]


async def test_the_lines_are_read_from_the_history_with_their_limits() -> None:
    async def playbook_of(run: Run) -> CompiledPlaybook:
        return PLAYBOOK

    effect = ReadSeries(effect_id="series/closed:9")
    job = Job(run(state="calm", way=("calm",)), Owed("INC-7", effect, 1, "t"), BEGAN + 600)
    done = await ReadSeriesForRun(Sampled(), playbook_of)(job, effect)
    [event] = done.events
    assert isinstance(event, SeriesRead)
    [line] = event.lines
    assert (line.signal, line.unit, line.limits[0].setting, line.limits[0].value) == ("usage", "ratio", "ceiling", 0.9)
    assert {value for _, value in line.points} == {0.97}
    assert min(at for at, _ in line.points) > BEGAN


def closed() -> Story:
    story = Story().applied().watched("held")
    story.happens(Posted(event_id="p", slot=story.run.posts[-1].slot, ts="1", channel="C1"))
    return story


def test_the_end_wants_lines_and_lines_want_a_picture() -> None:
    story = closed()
    wanted = story.wanted(ReadSeries).effect_id
    story.happens(SeriesRead(event_id=wanted, effect_id=wanted, lines=(thrash_line(),)))
    assert story.texts("chart") == ["over the whole time: thrash (97 points)"]
    assert story.wanted(DrawChart)


def test_whoever_is_asked_first_sees_how_it_came_to_that_and_nobody_else() -> None:
    story = Story().opened().reads(0.95)
    first = story.wanted(ReadSeries)
    story.happens(SeriesRead(event_id="s", effect_id=first.effect_id, lines=(thrash_line(),)))
    assert story.texts("chart") == ["so far: thrash (97 points)"]
    assert story.wanted(DrawChart)
    assert "read_series" not in story.chooses("grow").planned().kinds()


def test_a_picture_that_fails_while_people_decide_asks_them_nothing() -> None:
    story = Story().opened().reads(0.95)
    waits_for = story.run.question
    story.happens(EffectFailed(event_id="f", effect_id="chart/series/first", effect_kind="draw_chart", reason="no"))
    assert (story.run.question, len(story.run.questions)) == (waits_for, 1)


def test_without_a_known_point_nothing_is_drawn_and_the_timeline_says_why() -> None:
    story = closed()
    unread = thrash_line().model_copy(update={"points": (), "unknown": "nobody answered"})
    story.happens(SeriesRead(event_id="s", effect_id="s", lines=(unread,)))
    assert story.texts("chart") == ["over the whole time: thrash unknown: nobody answered"]
    assert "draw_chart" not in story.kinds()


def test_a_picture_that_could_not_be_uploaded_is_on_the_timeline_and_asks_nobody() -> None:
    story = closed()
    story.happens(
        EffectFailed(event_id="f", effect_id="chart/s", effect_kind="draw_chart", reason="uploading: HTTP 500")
    )
    assert story.texts("failed")[-1] == "the chart could not be put here: uploading: HTTP 500"
    assert story.run.question == ""


def test_who_cannot_see_the_picture_reads_what_it_shows() -> None:
    chart = chart_of(fixed(thrash_line(), usage_line()))
    assert isinstance(chart, Chart)
    assert comment_of(run(), chart) == "INC-7 in pictures: thrash 2.81 → 0.0004; kv usage 99.1% → 63.4%"
