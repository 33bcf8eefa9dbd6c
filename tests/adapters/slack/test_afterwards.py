"""Slack has its answer as soon as a press is stored: forms and replies follow, and a failure of theirs is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from slack_bolt.async_app import AsyncAck
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from bot.adapters.slack.inbound.afterwards import Afterwards
from bot.adapters.slack.inbound.boundary import Boundary, Click, announce_in_time
from bot.adapters.slack.inbound.forms import Modal
from bot.domain.kernel.errors import PaceError
from tests.adapters.slack.conftest import Bench

PRESS = {"user": {"id": "U0ANA", "username": "ana"}, "trigger_id": "1.2.3"}


class SlowForms(AsyncWebClient):
    """Slack, which opens a form only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_open = asyncio.Event(), asyncio.Event()
        self.opened: list[str] = []

    async def views_open(self, *, trigger_id: str | None = None, view: Any = None, **_: Any) -> Any:
        self.asked.set()
        await self.may_open.wait()
        self.opened.append(str(trigger_id))
        return {"ok": True}


async def form(_click: Click) -> Modal:
    return Modal("reason", "Refuse", "Refuse", (), {})


async def test_a_press_is_answered_before_slack_has_opened_its_form(bench: Bench) -> None:
    slack = SlowForms()
    listener = Boundary(slack, bench.messenger).click(form, "not stored")
    ack = AsyncAck()  # type: ignore[no-untyped-call]  # slack-bolt leaves it untyped
    await listener(ack, PRESS, {"value": ""})
    assert ack.response is not None
    await slack.asked.wait()
    assert slack.opened == []
    slack.may_open.set()


@pytest.mark.fast
async def test_a_failure_after_the_answer_is_logged() -> None:
    async def fails() -> None:
        raise ValueError("no such view")

    afterwards = Afterwards()
    with capture_logs() as logged:
        afterwards.begin(fails(), "reply to a click")
        await afterwards.settled()
    assert [(each["event"], each["work"], str(each["exc_info"])) for each in logged] == [
        ("slack.failed_afterwards", "reply to a click", "no such view")
    ]


class Busy:
    """A messenger whose pace of posts is used up so often; `forever`: always."""

    def __init__(self, times: int, *, forever: bool = False) -> None:
        self.times, self.forever = times, forever
        self.announced: list[str] = []

    async def announce(self, text: str, *, mentions: Collection[str] = ()) -> None:
        self.times -= 1
        if self.forever or self.times >= 0:
            raise PaceError("the pace of posts is used up", lasting=False, retry_after_seconds=60.0)
        self.announced.append(text)


@pytest.mark.fast
async def test_a_halt_is_announced_once_the_pace_of_posts_allows_it() -> None:
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    messenger: Any = Busy(2)
    await announce_in_time(messenger, "⛔ Everything is halted", pause=pause)
    assert (messenger.announced, paused) == (["⛔ Everything is halted"], [60.0, 60.0])
    with pytest.raises(PaceError):
        await announce_in_time(Busy(0, forever=True), "too late", pause=pause)  # type: ignore[arg-type]
