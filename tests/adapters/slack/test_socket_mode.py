"""Socket Mode: the same app over a connection that the bot opens; nothing listens on HTTP here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from slack_sdk.errors import SlackApiError

from bot.adapters.slack.inbound.app import bolt_app
from bot.adapters.slack.inbound.socket_mode import listening
from tests.adapters.slack.conftest import (
    CHANNEL,
    TOKEN,
    Bench,
    Counter,
    behind,
    send_in,
    services_of,
    until,
    view_of,
    whispered,
)
from tests.adapters.slack.runs import run, waiting

APP_TOKEN = "xapp-sandbox"
stored_while_slack_waits: list[int] = []
"""How many presses each request has stored before Slack had its answer."""


@pytest.fixture
async def counter(bench: Bench) -> AsyncIterator[Counter]:
    services = services_of(bench)
    counter = behind(services, bench)

    @contextlib.contextmanager
    def answering() -> Iterator[None]:
        before = len(counter.inbound.presses)
        yield
        stored_while_slack_waits.append(len(counter.inbound.presses) - before)

    stored_while_slack_waits.clear()
    app = bolt_app(bench.client, services, counter.homes, answering)
    async with listening(app, bench.client, APP_TOKEN):
        await connected(counter, 1)
        yield counter
    await connected(counter, 0)


async def connected(counter: Counter, count: int) -> None:
    async def is_so() -> bool:
        return bool((await counter.slack.page())["sockets"] == count)

    await until(is_so, f"{count} connections are open", deadline_seconds=30)


async def approve(counter: Counter) -> None:
    await counter.bench.messenger.show(waiting())
    ts = [m for m in await counter.slack.messages() if "thread_ts" in m][-1]["ts"]
    answer = await counter.slack.do("press", user="U0ANA", channel=CHANNEL, ts=ts, action_id="approve")
    assert answer["ok"], answer


async def test_a_press_is_stored(counter: Counter) -> None:
    await approve(counter)
    [(incident, press)] = counter.inbound.presses.values()
    assert (incident, press.action, press.about, press.user) == ("INC-7", "approve", "R3", "U0ANA")


async def test_other_work_gives_way_until_a_press_is_answered(counter: Counter) -> None:
    await approve(counter)
    assert stored_while_slack_waits == [1]


async def test_a_press_that_cannot_be_stored_is_reported(counter: Counter) -> None:
    counter.inbound.away = True
    await approve(counter)
    await whispered(counter, "press again")


async def test_a_command_is_answered(counter: Counter) -> None:
    assert "INC-7" in await counter.say("list")


async def test_a_form_is_opened_and_its_faults_stand_below_its_fields(counter: Counter) -> None:
    assert await counter.say("status") == ""
    view = await view_of(counter, "status")
    counter.inbound.away = True
    errors = (await send_in(counter, view, text="half are back"))["errors"]
    assert "may or may not have been recorded" in errors["field:next"]
    counter.inbound.away = False
    assert (await send_in(counter, view, text="half are back"))["ok"]
    assert [event.command for _, event in counter.inbound.commands.values()] == ["status"]


async def test_an_event_that_cannot_be_stored_comes_again(counter: Counter) -> None:
    await counter.bench.messenger.show(run())
    card = (await counter.slack.messages())[-1]["ts"]
    message = await counter.slack.do("say", user="U0BEN", channel=CHANNEL, text="XIDs", thread_ts=card)
    counter.inbound.away = True
    refused = await counter.slack.do("react", user="U0ANA", channel=CHANNEL, ts=message["ts"], name="pushpin")
    assert refused["error"] == "operation_timeout"
    counter.inbound.away = False

    async def is_added() -> bool:
        return len(counter.inbound.commands) == 1

    await until(is_added, "the next attempt was stored")


async def test_a_connection_that_slack_ends_is_opened_anew(counter: Counter) -> None:
    await counter.slack.do("refresh-sockets")
    await connected(counter, 1)
    await approve(counter)
    assert len(counter.inbound.presses) == 1


async def test_a_connection_is_missed_until_it_is_there(bench: Bench) -> None:
    """Cards are posted meanwhile, and only presses are lost."""
    services = services_of(bench)
    counter = behind(services, bench)
    async with listening(bolt_app(bench.client, services, counter.homes), bench.client, APP_TOKEN) as trouble:
        assert "no press or command arrives" in await trouble()
        await connected(counter, 1)

        async def is_well() -> bool:
            return await trouble() == ""

        await until(is_well, "the connection is known", deadline_seconds=30)
    assert "no press or command arrives" in await trouble()


async def test_only_the_apps_own_token_opens_a_connection(counter: Counter) -> None:
    with pytest.raises(SlackApiError, match="invalid_auth"):
        await counter.bench.client.apps_connections_open(app_token=TOKEN)
