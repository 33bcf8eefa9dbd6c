"""The report of a closed incident is kept outside once its history was read; an outage there loses none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bot.domain.incidents.effect import ReadSeries, StoreReport
from bot.domain.incidents.event import EffectFailed, Posted, SeriesRead
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.flow.handlers import store_report
from bot.flow.handlers.store_report import TRIES, StoreReportHandler
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.storage import Owed
from tests.adapters.slack.runs import BEGAN, run
from tests.domain.incidents.machine.steps import Story
from tests.flow.test_draw_chart import Timelines

pytestmark = pytest.mark.fast
REPORT = StoreReport(effect_id="report/series/closed:9")


class Kept:
    name = "memory"

    def __init__(self) -> None:
        self.files: dict[str, Mapping[str, bytes]] = {}
        self.is_away = False

    async def put(self, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
        if self.is_away:
            raise SourceError("nobody answers")
        self.files[incident_id] = files

    async def check(self) -> None:
        """It is always there."""


async def at_once(work: Callable[..., Any], *given: Any) -> Any:
    return work(*given)


def storing(*sinks: Kept, redact: bool = False) -> StoreReportHandler:
    entries = [
        Entry(kind="opened", at=BEGAN, text="opened"),
        Entry(kind="note", at=BEGAN + 5, text="restarted by hand", who="U0ANA", data={"user_name": "Ana"}),
    ]
    runs: Any = Timelines(chain(entries, head=GENESIS, length=0))
    return StoreReportHandler(runs, sinks, lambda chart: b"<svg></svg>", redact=redact, aside=at_once)


def context(attempts: int = 0) -> EffectContext:
    return EffectContext(run(), Owed("INC-7", REPORT, attempts, "t"), BEGAN + 600)


async def test_every_sink_gets_every_format() -> None:
    sinks = (Kept(), Kept())
    assert await storing(*sinks)(context(), REPORT) == Done()
    for sink in sinks:
        assert sorted(sink.files["INC-7"]) == ["INC-7.html", "INC-7.json", "INC-7.md"]
        assert all(b"restarted by hand" in content for content in sink.files["INC-7"].values())


async def test_without_names_nobody_is_in_the_files() -> None:
    sink = Kept()
    await storing(sink, redact=True)(context(), REPORT)
    assert all(b"U0ANA" not in content and b"Ana" not in content for content in sink.files["INC-7"].values())


async def test_an_outage_is_waited_for_and_given_up_after_hours_only() -> None:
    sink = Kept()
    sink.is_away = True
    waits = [await storing(sink)(context(attempts), REPORT) for attempts in range(TRIES - 1)]
    assert all(isinstance(wait, Later) and wait.failed for wait in waits)
    assert sum(wait.after_seconds for wait in waits if isinstance(wait, Later)) > 4 * 3600
    with pytest.raises(SourceError):
        await storing(sink)(context(TRIES - 1), REPORT)


async def test_a_sink_that_hangs_is_waited_for_as_one_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Kept):
        async def put(self, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(store_report, "PUT_SECONDS", 0.0)
    waits = await storing(Hanging())(context(5), REPORT)
    assert isinstance(waits, Later)
    with pytest.raises(SourceError, match="memory does not answer"):
        await storing(Hanging())(context(TRIES - 1), REPORT)


# --- when it is wanted ------------------------------------------------------------------------------------------------


def with_a_place(story: Story) -> Story:
    story.rules = story.rules.model_copy(update={"stores_reports": True})
    return story


def closed(story: Story) -> Story:
    story.applied().watched("held")
    story.happens(Posted(event_id="p", slot=story.run.posts[-1].slot, ts="1", channel="C1"))
    return story


def test_it_is_wanted_once_the_history_was_read_or_could_not_be() -> None:
    story = closed(with_a_place(Story()))
    wanted = story.wanted(ReadSeries).effect_id
    story.happens(SeriesRead(event_id=wanted, effect_id=wanted, lines=()))
    assert story.wanted(StoreReport).effect_id == f"report/{wanted}"
    story = closed(with_a_place(Story()))
    story.happens(EffectFailed(event_id="f", effect_id=wanted, effect_kind="read_series", reason="nobody answers"))
    assert story.wanted(StoreReport).effect_id == f"report/{wanted}"


def test_it_is_not_wanted_of_an_open_incident_or_without_a_place() -> None:
    story = with_a_place(Story()).opened().reads(0.95)
    story.happens(SeriesRead(event_id="s", effect_id="series/first", lines=()))
    assert "store_report" not in story.kinds()
    story = closed(Story())
    story.happens(SeriesRead(event_id="s", effect_id="series/closed:9", lines=()))
    assert "store_report" not in story.kinds()
