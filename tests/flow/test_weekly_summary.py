"""The weekly summary is posted once, on Monday morning, and only about a week in which something was advised."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import pytest

from bot.domain.approvals.advice import OBSERVE_ONLY
from bot.domain.approvals.grant import CarriedOut
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import MessengerError
from bot.flow.weekly_summary import READ, WeeklySummary
from tests import builders

pytestmark = pytest.mark.fast


def at(day: int, hour: int) -> float:
    """In November 2026; the 23rd is a Monday."""
    return datetime(2026, 11, day, hour, tzinfo=UTC).timestamp()


class Past:
    """The stored runs, Slack, and the time."""

    def __init__(self, asked_at: float) -> None:
        request = builders.request(status="advised", advice=OBSERVE_ONLY, asked_at=asked_at)
        self.run, self.time, self.refuses, self.loads = builders.run(requests={"R1": request}), 0.0, False, 0
        self.names = ["INC-1"]
        self.posted: dict[str, str] = {}
        self.mentioned: set[str] = set()
        self.weekly = WeeklySummary(self, self.announce)

    async def now(self) -> float:
        return self.time

    async def recent_incidents(self, limit: int) -> Sequence[str]:
        self.loads += 1
        return self.names[:limit]

    async def load_all(self, incident_ids: Sequence[str]) -> Sequence[Run]:
        return [self.run.with_(incident_id=name) for name in incident_ids]

    async def announce(self, about: str, text: str, mentions: Collection[str]) -> None:
        if self.refuses:
            raise MessengerError("Slack refuses", lasting=False)
        self.mentioned |= set(mentions)
        self.posted.setdefault(about, text)

    async def posted_by(self, day: int, hour: int) -> dict[str, str]:
        self.time = at(day, hour)
        await self.weekly.once()
        return self.posted


async def test_the_last_week_is_announced_on_monday_morning_once() -> None:
    past = Past(at(17, 12))
    assert await past.posted_by(23, 7) == {}
    posted = await past.posted_by(23, 8)
    assert list(posted) == ["observed/2026-W48"]
    assert "Observe-only, Mon 16 Nov to Sun 22 Nov: the bot would have proposed 1 change" in posted["observed/2026-W48"]
    assert list(await past.posted_by(24, 8)) == ["observed/2026-W48"]
    assert past.loads == 1, "the runs are read once a week, not every second"


async def test_the_summary_mentions_those_who_carried_something_out_and_nobody_whom_they_name() -> None:
    past = Past(at(17, 12))
    done = CarriedOut(user="U0ANA", at=at(17, 13), text="drained it, ask <@U0CEO>")
    request = past.run.requests["R1"].model_copy(update={"carried_out": (done,)})
    past.run = past.run.with_(requests={"R1": request})
    assert "<@U0ANA> did something else" in str(await past.posted_by(23, 8))
    assert past.mentioned == {"U0ANA"}


async def test_a_week_with_more_incidents_than_are_read_at_a_time_is_counted_whole() -> None:
    past = Past(at(17, 12))
    past.names = [f"INC-{number}" for number in range(READ + 1, 0, -1)]
    assert f"the bot would have proposed {READ + 1} changes" in str(await past.posted_by(23, 8))


async def test_nothing_is_announced_about_a_week_without_advice() -> None:
    assert await Past(at(2, 12)).posted_by(23, 9) == {}


async def test_a_summary_that_slack_refuses_is_tried_again() -> None:
    past = Past(at(17, 12))
    past.refuses = True
    assert await past.posted_by(23, 9) == {}
    past.refuses = False
    assert list(await past.posted_by(23, 10)) == ["observed/2026-W48"]
