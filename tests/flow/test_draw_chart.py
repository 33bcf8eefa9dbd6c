"""The chart of an incident: lines on the timeline, then a picture in the diagnosis or in the last message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.incidents.effect import DrawChart, ExportTimeline, ReadSeries
from bot.domain.incidents.event import EffectFailed, Posted, SeriesRead
from bot.domain.incidents.run import Run
from bot.domain.incidents.series import Series, as_evidence
from bot.domain.kernel.errors import Fault, PlaybookError, SourceError
from bot.domain.kernel.timeline import GENESIS, Chained, Entry, chain
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.reports.chart import Chart, Panel, chart_of
from bot.domain.signals.scrape import Scrape
from bot.flow.handlers.draw_chart import ReadSeriesHandler, caption_of
from bot.flow.handlers.read import PlaybookOf
from bot.flow.handlers.show import ExportHandler
from bot.flow.perform_effect import EffectContext
from bot.flow.ports.people import Draw
from bot.flow.ports.readings import ReadContext
from bot.flow.ports.storage import Owed
from tests.adapters.slack.runs import BEGAN, run
from tests.domain.incidents.machine.steps import Story
from tests.domain.reports.charted import WATCHED, fixed, thrash_line, usage_line

pytestmark = pytest.mark.fast


class Sampled:
    """A history with a sample in five seconds, since the incident began."""

    source = "samples"
    has_whole_pages = True

    async def sample(self, read_context: ReadContext) -> None:
        raise AssertionError("a line is about the past")

    async def between(
        self, read_context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        assert metrics == {"kv_cache_usage_perc"}
        times = [BEGAN + after for after in range(0, 600, 5)]
        ranks = {"0": {"kv_cache_usage_perc": 0.97}}
        return [Scrape(replica="a", uid="a", at=at, ranks=ranks) for at in times if start <= at <= end]


async def test_the_lines_are_read_from_the_history_with_their_limits() -> None:
    effect = ReadSeries(effect_id="series/closed:9")
    context = EffectContext(run(state="calm", path=("calm",)), Owed("INC-7", effect, 1, "t"), BEGAN + 600)
    done = await ReadSeriesHandler(Sampled(), watched)(context, effect)
    [event] = done.events
    assert isinstance(event, SeriesRead)
    [line] = event.lines
    assert (line.signal, line.unit, line.limits[0].setting, line.limits[0].value) == ("usage", "ratio", "ceiling", 0.9)
    assert {value for _, value in line.points} == {0.97}
    assert min(at for at, _ in line.points) > BEGAN


async def test_the_page_of_an_open_incident_is_drawn_up_to_the_export() -> None:
    exported = await exported_page(Sampled())
    assert max(at for at, _ in exported.panels[0].points) == BEGAN + 600


async def test_a_history_that_does_not_answer_leaves_the_page_its_readings_and_says_so() -> None:
    uploaded: list[bytes] = []
    exported = await exported_page(Silent(), uploaded)
    assert exported.panels[0].points[-1] == (BEGAN + 5, 0.97)
    assert b"usage: the history could not be read (nobody answers)" in uploaded[0]


async def test_a_playbook_that_cannot_be_read_leaves_the_page_its_readings() -> None:
    uploaded: list[bytes] = []

    async def stranded(run: Run) -> CompiledPlaybook:
        raise PlaybookError((Fault("small.yaml:1:1", "unknown key 'at_most'"),))

    exported = await exported_page(Sampled(), uploaded, stranded)
    assert exported.panels[0].points[-1] == (BEGAN + 5, 0.97)
    assert len(uploaded) == 1


class Silent(Sampled):
    async def between(
        self, read_context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        raise SourceError("nobody answers")


class Uploads:
    """A messenger that takes files and nothing else."""

    def __init__(self, uploaded: list[bytes]) -> None:
        self.uploaded = uploaded

    async def upload(self, run: Run, *, key: str, name: str, content: Draw, comment: str) -> None:
        self.uploaded.append(await content())


class Timelines:
    def __init__(self, entries: Sequence[Chained]) -> None:
        self.entries = entries

    async def whole_timeline(self, incident_id: str) -> tuple[Sequence[Chained], None]:
        """The run is not stored any more."""
        return self.entries, None

    async def timeline(self, incident_id: str) -> Sequence[Chained]:
        return self.entries


async def watched(run: Run) -> CompiledPlaybook:
    return WATCHED


async def exported_page(
    history: Sampled, uploaded: list[bytes] | None = None, playbook_of: PlaybookOf = watched
) -> Chart:
    """The chart in the page of an incident that was last drawn five seconds after it opened."""
    drawn: list[Chart] = []

    def draw(chart: Chart) -> bytes:
        drawn.append(chart)
        return b"<svg></svg>"

    so_far = Series(signal="usage", unit="ratio", points=((BEGAN, 0.96), (BEGAN + 5, 0.97)))
    entries = [
        Entry(kind="opened", at=BEGAN, text="opened"),
        Entry(kind="chart", at=BEGAN + 5, text="so far", data=as_evidence([so_far])),
    ]
    runs: Any = Timelines(chain(entries, head=GENESIS, length=0))
    messenger: Any = Uploads([] if uploaded is None else uploaded)
    export = ExportHandler(messenger, runs, draw, ReadSeriesHandler(history, playbook_of))
    context = EffectContext(run(state="calm", path=("calm",)), Owed("INC-7", EXPORT, 1, "t"), BEGAN + 600)
    await export(context, EXPORT)
    return drawn[0]


EXPORT = ExportTimeline(effect_id="export/ana", format="html")


def closed() -> Story:
    story = Story().applied().watched("held")
    story.happens(Posted(event_id="p", slot=story.run.posts[-1].slot, ts="1", channel="C1"))
    return story


def test_the_end_wants_lines_and_lines_want_a_picture() -> None:
    story = closed()
    wanted = story.wanted(ReadSeries).effect_id
    story.happens(SeriesRead(event_id=wanted, effect_id=wanted, lines=(thrash_line(),)))
    assert story.texts("chart") == ["over the whole time: thrash (97 points)"]
    assert story.wanted(DrawChart).slot == story.run.posts[-1].slot


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
    assert story.texts("failed")[-1] == "the chart could not be posted here: uploading: HTTP 500"
    assert story.run.question == ""


def test_who_cannot_see_the_picture_reads_what_it_shows() -> None:
    chart = chart_of(fixed(thrash_line(), usage_line()))
    assert isinstance(chart, Chart)
    assert caption_of(run(), chart) == "INC-7 so far: thrash 2.81 → 0.0004 per finished; kv usage 99.1% → 63.4%"


def test_a_caption_names_units_and_leaves_out_a_line_without_a_number() -> None:
    def panel(title: str, unit: str, change: str) -> Panel:
        return Panel(title=title, unit=unit, change=change, points=((BEGAN, 1.0),), limits=())

    chart = chart_of(fixed(thrash_line()))
    assert isinstance(chart, Chart)
    shown = (panel("Preemptions", "per request", "3.8 → 0"), panel("Requests waiting", "requests", "14 → 0"))
    seconds = panel("First token p99", "s", "4.7 s → 58 ms")
    chart = chart.model_copy(update={"panels": (*shown, seconds, panel("Preemptions of the fleet", "", ""))})
    summary = "Preemptions 3.8 → 0 per request; Requests waiting 14 → 0; First token p99 4.7 s → 58 ms"
    assert caption_of(run(), chart) == f"INC-7 so far: {summary}"
