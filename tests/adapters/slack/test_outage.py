"""While Slack fails, one call now and then tries again for all incidents; once it answers, all that is owed is shown.

Over real sockets: `bot.sandbox.slack` fails on demand, and its calls are counted there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from bot.adapters.slack.client import BACK_OFF, web_client, web_session
from bot.adapters.slack.outbound.messenger import SlackMessenger
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import MessengerError
from bot.flow.circuit import OPENS_AFTER
from tests.adapters.slack.conftest import CHANNEL, TOKEN, Bench, Json
from tests.adapters.slack.runs import waiting
from tests.fakes.shown import file_of

INCIDENTS = 40
MINUTE = 60.0
DOWN: Json = {"method": "*", "kind": "500", "count": 1_000_000}
CLOSED: Json = {"method": "*", "kind": "drop", "count": 1_000_000}
SLOTS = ["card", "diagnosis:1", "request:R3"]


class Fleet:
    """Shows incidents when they are due, as `PerformEffect` does; the clock moves from one due time to the next."""

    def __init__(self, bench: Bench, messenger: SlackMessenger, runs: Sequence[Run]) -> None:
        self._bench, self._messenger = bench, messenger
        self.due = {run.incident_id: (bench.clock.now(), run) for run in runs}

    async def until(self, end: float) -> None:
        while self.due and (at := min(due for due, _ in self.due.values())) <= end:
            self._bench.clock.move(max(at - self._bench.clock.now(), 0.0))
            for incident_id, (due, run) in list(self.due.items()):
                if due <= self._bench.clock.now():
                    await self._show(incident_id, run)
        self._bench.clock.move(max(end - self._bench.clock.now(), 0.0))

    async def _show(self, incident_id: str, run: Run) -> None:
        try:
            await self._messenger.show(run)
        except MessengerError as error:
            if error.lasting or error.retry_after_seconds <= 0:
                raise
            self.due[incident_id] = self._bench.clock.now() + error.retry_after_seconds, run
        else:
            del self.due[incident_id]


def incidents() -> list[Run]:
    return [waiting().with_(incident_id=f"INC-{number}") for number in range(1, INCIDENTS + 1)]


async def calls(bench: Bench) -> Counter[str]:
    every: Counter[str] = Counter()
    for method in ("chat.postMessage", "chat.update", "conversations.history", "conversations.replies"):
        every[method] = len(await bench.slack.calls(method))
    return every


async def keys(bench: Bench) -> dict[str, list[str]]:
    """The slots of each incident in Slack, oldest first."""
    found: dict[str, list[str]] = {}
    for message in await bench.slack.messages():
        incident_id, _, slot = message["metadata"]["event_payload"]["slot"].partition("/")
        found.setdefault(incident_id, []).append(slot)
    return found


@pytest.mark.parametrize("fault", [DOWN, CLOSED], ids=["HTTP 500", "connection closed"])
async def test_while_slack_fails_one_call_tries_for_all(bench: Bench, fault: Json) -> None:
    await bench.slack.faults(fault)
    fleet, began = Fleet(bench, bench.messenger, incidents()), bench.clock.now()
    await fleet.until(began + 10 * MINUTE)
    # aiohttp itself repeats a GET whose kept connection was closed.
    assert (await calls(bench)).total() <= 2 * (10 * MINUTE / BACK_OFF.max_seconds + 10)


@pytest.mark.parametrize("fault", [DOWN, CLOSED], ids=["HTTP 500", "connection closed"])
async def test_nothing_is_lost_or_doubled_and_all_is_shown_soon_after_slack_answers(bench: Bench, fault: Json) -> None:
    await bench.slack.faults(fault)
    fleet, began = Fleet(bench, bench.messenger, incidents()), bench.clock.now()
    await fleet.until(began + 10 * MINUTE)
    await bench.slack.faults()
    await fleet.until(began + 10 * MINUTE + 3 * BACK_OFF.max_seconds)
    assert not fleet.due
    assert await keys(bench) == {run.incident_id: SLOTS for run in incidents()}


async def test_a_person_who_waits_is_not_asked_to_come_back(bench: Bench) -> None:
    """Slack has just delivered the click, so it is the best moment to try; an answer ends the outage for all."""
    await bench.slack.faults(DOWN)
    fleet = Fleet(bench, bench.messenger, incidents())
    await fleet.until(bench.clock.now() + MINUTE)
    await bench.slack.faults()
    async with web_session() as session:
        url, circuits = bench.client.base_url, bench.client.circuits
        await web_client(TOKEN, session, base_url=url, circuits=circuits, insists=True).auth_test()
    assert bench.client.circuits.reason == ""


async def test_a_rate_limit_of_a_channel_holds_back_everything_for_that_channel(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "429", "retry_after": 7, "count": 1_000_000})
    fleet, began = Fleet(bench, bench.messenger, incidents()), bench.clock.now()
    await fleet.until(began + MINUTE)
    assert (await calls(bench)).total() <= MINUTE / 7 + 1
    await bench.slack.faults()
    await fleet.until(began + MINUTE + 10)
    assert await keys(bench) == {run.incident_id: SLOTS for run in incidents()}


async def test_after_a_rate_limit_one_message_at_a_time_tries(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "429", "retry_after": 7, "count": 2})
    first, *others = incidents()
    with pytest.raises(MessengerError):
        await bench.messenger.show(first)
    bench.clock.move(7)
    refused = await asyncio.gather(*map(bench.messenger.show, others), return_exceptions=True)
    waits = [each.retry_after_seconds for each in refused if isinstance(each, MessengerError)]
    assert len(waits) == len(others)
    assert len(await bench.slack.calls("chat.postMessage")) == 2
    assert bench.pace.taken == [("post", CHANNEL)] * 2


async def test_a_rate_limit_of_one_channel_holds_back_no_other(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "429", "retry_after": 7})
    with pytest.raises(MessengerError):
        await bench.messenger.show(incidents()[0])
    await bench.client.chat_postMessage(channel="C0GEN", text="elsewhere")
    await bench.client.chat_postEphemeral(channel=CHANNEL, user="U0ANA", text="to one person")
    assert len(await bench.slack.calls("chat.postMessage")) == 2


async def test_a_rate_limit_is_an_answer(bench: Bench) -> None:
    await bench.slack.faults({"method": "*", "kind": "429", "retry_after": 7, "count": 2 * OPENS_AFTER})
    for run in incidents()[: 2 * OPENS_AFTER]:
        with pytest.raises(MessengerError) as refused:
            await bench.messenger.show(run)
        assert refused.value.retry_after_seconds == 7.0
    assert bench.client.circuits.reason == ""


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "upload"])
async def test_files_that_fail_delay_no_message(bench: Bench, method: str) -> None:
    await Fleet(bench, bench.messenger, incidents()[:1]).until(bench.clock.now())
    await bench.slack.faults({"method": method, "kind": "500", "count": 1_000_000})
    drawn = 0

    async def draw() -> bytes:
        nonlocal drawn
        drawn += 1
        return b"chart"

    run = incidents()[0]
    for _ in range(3 * OPENS_AFTER):
        with pytest.raises(MessengerError):
            await bench.messenger.upload(run, key="export", name="x.png", content=draw, comment="x")
    assert drawn == len(await bench.slack.calls("files.getUploadURLExternal")) == OPENS_AFTER
    await bench.messenger.show(incidents()[1])
    assert bench.client.circuits.reason.startswith("Slack's file storage has not answered since")
    await bench.slack.faults()
    bench.clock.move(BACK_OFF.first_seconds)
    await bench.messenger.upload(run, key="export", name="x.png", content=file_of(b"x"), comment="x")
