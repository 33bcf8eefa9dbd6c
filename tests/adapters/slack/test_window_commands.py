"""`/incident maintenance` and `/incident freeze`, and where people see what is open."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from bot.adapters.slack.inbound import window_commands
from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.commands import Commands
from bot.adapters.slack.outbound.home import Seen, home
from bot.adapters.slack.outbound.message import Message
from bot.domain.kernel.planned_window import PlannedWindow
from bot.domain.kernel.target import Target
from bot.flow.ports.storage import HeldAlert
from tests import builders
from tests.adapters.slack.conftest import Bench, services_of, until
from tests.fakes.incident_service import MemoryPlaybooks
from tests.fakes.restrictions import MemoryWindowService


class Caller:
    def __init__(self, bench: Bench) -> None:
        services = services_of(bench)
        assert isinstance(services.windows, MemoryWindowService)
        assert isinstance(services.playbooks, MemoryPlaybooks)
        self.windows, self.playbooks, self._commands = services.windows, services.playbooks, Commands(services)

    async def says(self, text: str, user: str = "U0ANA") -> str:
        answer = await self._commands.answer(Command.read(text, user=user, user_name="Ana", trigger_id=text))
        assert isinstance(answer, Message)
        return json.dumps([answer.text, answer.blocks], ensure_ascii=False)


@pytest.fixture
def caller(bench: Bench) -> Caller:
    return Caller(bench)


@pytest.mark.parametrize(("kind", "does"), [("maintenance", "alerts open no incident"), ("freeze", "only advised")])
async def test_a_window_is_begun_listed_and_ended(kind: str, does: str, caller: Caller) -> None:
    answer = await caller.says(f"{kind} serving/llm-* for 90m new <!here> driver")
    assert does in answer
    assert "new &lt;!here&gt; driver" in answer
    (window,) = caller.windows.windows.windows
    assert (window.kind, window.targets, window.ends_at - window.starts_at) == (kind, ("serving/llm-*",), 5400)
    assert "serving/llm-*" in await caller.says(kind)
    assert "serving/llm-*" in await caller.says("list")
    assert "is over" in await caller.says(f"{kind} serving/llm-* off")
    assert caller.windows.windows.windows == []
    assert "Nobody planned" in await caller.says(f"{kind} serving/llm-* off")


async def test_the_channel_of_all_incidents_learns_of_a_window(caller: Caller, bench: Bench) -> None:
    await caller.says("freeze serving/llm for 2h the <launch>")

    async def is_posted() -> bool:
        page = str(await bench.slack.page())
        return "the &lt;launch&gt;" in page and "only advised" in page

    await until(is_posted, "the freeze is in the channel")
    [announced] = [message["text"] for message in await bench.slack.messages()]
    ends = re.escape("^{date_short_pretty} {time}|") + r"[-0-9]+ [0-9:]+ UTC>"
    frozen = rf"⏸ \*Freeze\* of `serving/llm` until <!date\^\d+{ends}, by <@U0ANA>: the &lt;launch&gt;"
    assert re.fullmatch(rf"{frozen}\nUntil then, changes are only advised\.", announced)
    await caller.says("freeze serving/llm off")

    async def is_over() -> bool:
        return "is over, ended by <@U0ANA>" in str(await bench.slack.page())

    await until(is_over, "the channel learns of its end")
    assert caller.windows.announced == ["serving/llm"]


@pytest.mark.parametrize("text", ["freeze serving/llm for 2h", "halt all"])
async def test_people_whom_an_operator_mentions_in_a_reason_are_mentioned(
    caller: Caller, bench: Bench, text: str
) -> None:
    assert "&lt;@U0BEN" not in await caller.says(f"{text} ask <@U0BEN|ben>")

    async def is_posted() -> bool:
        return any("ask <@U0BEN>" in message["text"] for message in await bench.slack.messages())

    await until(is_posted, "the channel reads whom to ask")


async def test_a_window_of_a_workload_that_is_not_there_is_begun_with_a_warning(caller: Caller) -> None:
    assert "Is the name right?" in await caller.says("maintenance serving/lmm for 1h new driver")
    assert len(caller.windows.windows.windows) == 1
    caller.playbooks.workloads.append(Target(cluster="prod-1", namespace="serving", name="lmm"))
    assert "Is the name right?" not in await caller.says("freeze serving/lmm for 1h new driver")


async def test_a_window_of_a_cluster_that_is_not_there_is_begun_with_a_warning(caller: Caller) -> None:
    caller.playbooks.workloads.append(Target(cluster="prod-2", namespace="serving", name="llm"))
    assert "'prod-9' is not a cluster of this bot" in await caller.says("maintenance prod-9/serving/llm for 1h x")
    assert "⚠️" not in await caller.says("freeze serving/llm for 1h in every cluster")
    assert len(caller.windows.windows.windows) == 2


async def test_a_cluster_that_does_not_answer_hides_no_window(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(cluster: str, namespace: str, name: str) -> None:
        del cluster, namespace, name
        await asyncio.Event().wait()

    monkeypatch.setattr(window_commands, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(caller.playbooks, "workload", never)
    assert "alerts open no incident" in await caller.says("maintenance serving/llm for 1h new driver")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("maintenance llm for 1h x", "is not a target; write NAMESPACE/WORKLOAD"),
        ("maintenance serving/llm for soon x", "is not a duration"),
        ("maintenance serving/llm for 1h", "a reason is needed"),
        ("freeze serving/llm 1h release", "for 1h WHY"),
    ],
)
async def test_a_missing_argument_is_reported_with_an_example(text: str, why: str, caller: Caller) -> None:
    assert why in await caller.says(text)
    assert caller.windows.windows.windows == []


async def test_everything_can_be_frozen(caller: Caller) -> None:
    assert "every target" in await caller.says("freeze all for 2d holidays")


async def test_only_operators_plan_a_window(caller: Caller) -> None:
    assert "you are not in" in await caller.says("freeze all for 1h x", user="U0EVE")
    assert caller.windows.windows.windows == []


async def test_alerts_that_wait_are_listed(caller: Caller) -> None:
    caller.windows.alerts = [HeldAlert("1", builders.alert(), builders.TARGET)]
    assert "VllmKVCacheThrash` of `serving/llm` waits for the end" in await caller.says("maintenance")


def test_a_home_shows_what_is_open() -> None:
    window = PlannedWindow(
        kind="freeze", targets=(), starts_at=builders.START, ends_at=builders.START + 60, why="release", by="ana"
    )
    blocks = home(Seen([], [], windows=[window]), [], now=builders.START)
    assert "*Freeze* of `every target`" in json.dumps(blocks)
