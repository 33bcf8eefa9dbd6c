"""The kill switch by command while Slack's API refuses the bot or is slow: the command itself still comes in."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.commands import Commands
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.people import ON_THE_COMMAND_LINE, SlackPeople
from bot.domain.approvals.grant import Demand
from tests.adapters.slack.conftest import Bench, services_of
from tests.fakes.incident_service import MemoryIncidents
from tests.fakes.shown import MemoryPeople

OPERATORS = Demand(team="operators", user_group="S0SERVING")
TROUBLES = {
    "refuses": {"method": "*", "kind": "error:invalid_auth", "seconds": 1000},
    "is away": {"method": "*", "kind": "500", "seconds": 1000},
    "is slow": {"method": "*", "kind": "delay", "seconds": 30, "count": 20},
}


class SilentSlack(AsyncWebClient):
    """The client of a Slack that never answers; no timeout of the session ends the wait either."""

    async def _request(self, **_: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets this event")


class Caller:
    def __init__(self, bench: Bench, client: AsyncWebClient | None = None, memory: MemoryPeople | None = None) -> None:
        self.memory = memory or MemoryPeople()
        people = SlackPeople(client or bench.client, bench.clock, self.memory, operators=OPERATORS)
        services = dataclasses.replace(services_of(bench), people=people)
        assert isinstance(services.incidents, MemoryIncidents)
        self.people, self.inbound, self._commands = people, services.incidents, Commands(services)

    async def says(self, text: str, user: str = "U0ANA") -> str:
        answer = await self._commands.answer(Command.read(text, user=user, user_name="", trigger_id=text))
        assert isinstance(answer, Message)
        return answer.text


@pytest.fixture
def caller(bench: Bench) -> Caller:
    return Caller(bench)


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
async def test_everything_can_be_halted_while_slack_does_not_answer(
    caller: Caller, bench: Bench, trouble: dict[str, Any]
) -> None:
    assert await caller.people.read_operators()
    await bench.slack.faults(trouble)
    assert "Everything is halted" in await caller.says("halt all")
    assert caller.inbound.halter == "U0ANA"
    assert "INC-7 is halted" in await caller.says("halt INC-7 it drains the wrong node")
    assert "1 open" in await caller.says("list")


async def test_everything_can_be_halted_while_an_answer_of_slack_never_comes(caller: Caller, bench: Bench) -> None:
    assert await caller.people.read_operators()
    cut_off = Caller(bench, SilentSlack(token="xoxb-sandbox"), caller.memory)
    assert "Everything is halted" in await cut_off.says("halt all")


@pytest.mark.parametrize("trouble", ["refuses", "is away"])
async def test_nothing_is_resumed_while_slack_does_not_say_by_whom(caller: Caller, bench: Bench, trouble: str) -> None:
    assert await caller.people.read_operators()
    caller.inbound.halter = "U0ANA"
    await bench.slack.faults(TROUBLES[trouble])
    assert "could not read" in await caller.says("resume all")
    assert caller.inbound.halter == "U0ANA"


async def test_a_user_who_was_never_read_is_shown_how_to_halt_without_slack(caller: Caller, bench: Bench) -> None:
    await bench.slack.faults(TROUBLES["refuses"])
    assert ON_THE_COMMAND_LINE in await caller.says("halt all")
    assert caller.inbound.halter == ""
