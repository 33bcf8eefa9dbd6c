"""The Slack of these tests: the simulator in its own process, reached through the real clients."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from bot.adapters.slack.client import SlackCircuits, SlackClient, web_client, web_session
from bot.adapters.slack.inbound.app import bolt_app, endpoint
from bot.adapters.slack.outbound.home import Homes
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.services import Services
from bot.flow.handlers.draw_path import DrawForChannel
from bot.sandbox.plain_http import async_http
from tests.adapters.slack.runs import policy, run
from tests.fakes.incident_service import KnownPeople, MemoryIncidents, MemoryPlaybooks
from tests.fakes.restrictions import MemoryWindowService
from tests.fakes.shown import MemoryPace, MemoryShownStore, MemoryViewers, MovableClock
from tests.processes import Running, start

SECRET = "signing-secret-of-the-tests"
TOKEN = "xoxb-sandbox"
CHANNEL = "C0INC"
Json = dict[str, Any]


class Sandbox:
    """The doors of the simulator that Slack does not have."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def faults(self, *faults: Json) -> None:
        (await self._http.post("/__sandbox__/faults", json=list(faults))).raise_for_status()

    async def calls(self, method: str) -> list[Json]:
        return list((await self._http.get("/__sandbox__/calls", params={"method": method})).json())

    async def deliveries(self, kind: str) -> list[Json]:
        """What the bot was sent."""
        return list((await self._http.get("/__sandbox__/deliveries", params={"kind": kind})).json())

    async def messages(self, *, seen_by: str = "") -> list[Json]:
        """Everything in the channel, oldest first, and what only this person sees."""
        params = {"channel": CHANNEL} | ({"user": seen_by} if seen_by else {})
        return list((await self._http.get("/__sandbox__/messages", params=params)).json())

    async def whispers(self, user: str) -> list[str]:
        return [m["text"] for m in await self.messages(seen_by=user) if m.get("is_ephemeral")]

    async def do(self, what: str, **arguments: Any) -> Json:
        answer = await self._http.post(f"/__sandbox__/{what}", json=arguments)
        return dict(answer.json())

    async def page(self) -> Json:
        return dict((await self._http.get("/__sandbox__/page")).json())


@dataclass
class Bench:
    """A messenger with its memory, beside the Slack that it speaks to."""

    messenger: SlackMessenger
    store: MemoryShownStore
    pace: MemoryPace
    clock: MovableClock
    slack: Sandbox
    client: SlackClient


@pytest.fixture(scope="session")
def bot_socket() -> Iterator[socket.socket]:
    """Where the bot of these tests will listen; the simulator has to know it before the bot is there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


@pytest.fixture(scope="session")
def simulator(bot_socket: socket.socket) -> Iterator[Running]:
    bot_url = f"http://127.0.0.1:{bot_socket.getsockname()[1]}"
    arguments = ("--port", "0", "--bot-url", bot_url, "--signing-secret", SECRET, "--rate-limits", "off")
    with start("bot.sandbox.slack", *arguments, "--die-with-parent") as running:
        yield running


@pytest.fixture
async def slack(simulator: Running) -> AsyncIterator[Sandbox]:
    """An empty workspace."""
    async with async_http(base_url=simulator.url) as http:
        (await http.post("/__sandbox__/reset")).raise_for_status()
        yield Sandbox(http)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(time.time())


@pytest.fixture
async def client(simulator: Running, clock: MovableClock) -> AsyncIterator[SlackClient]:
    circuits = SlackCircuits(elapsed=clock.now, now=clock.now)
    async with web_session() as session:
        yield web_client(TOKEN, session, base_url=str(simulator.ready["api_url"]), circuits=circuits)


@pytest.fixture
async def bench(client: SlackClient, clock: MovableClock, slack: Sandbox) -> Bench:
    pace = MemoryPace()
    store = MemoryShownStore(pace)
    messenger = SlackMessenger(client, store, pace, clock, Place(channel=CHANNEL, deployment="tests"))
    return Bench(messenger, store, pace, clock, slack, client)


@dataclass
class Counter:
    """The bot behind its Slack app, listening."""

    inbound: MemoryIncidents
    people: KnownPeople
    slack: Sandbox
    bench: Bench
    url: str
    shelf: MemoryPlaybooks
    viewers: MemoryViewers
    homes: Homes
    changed: asyncio.Event

    async def say(self, text: str, *, user: str = "U0ANA") -> str:
        """What this person reads after `/incident text`; nothing where a form is opened."""
        answer = await self.slack.do("command", user=user, channel=CHANNEL, command="/incident", text=text)
        assert answer["ok"], answer
        if answer["reply"] is None:
            return ""
        blocks = answer["reply"].get("blocks", [])
        shown = [block["text"]["text"] for block in blocks if "text" in block]
        return "\n".join(shown) or str(answer["reply"]["text"])


async def view_of(counter: Counter, callback_id: str = "", user: str = "U0ANA") -> Json:
    """The form that is open before this person."""

    async def is_open() -> bool:
        stack = (await counter.slack.page())["views"].get(user)
        return bool(stack) and (not callback_id or stack[-1]["callback_id"] == callback_id)

    await until(is_open, f"the form {callback_id} is open")
    return dict((await counter.slack.page())["views"][user][-1])


async def send_in(counter: Counter, view: Json, *, user: str = "U0ANA", **values: Any) -> Json:
    """Send a form in, with these values in its fields."""
    typed_in = {f"field:{name}": {"entry": value} for name, value in values.items()}
    return await counter.slack.do("submit", user=user, view_id=view["id"], values=typed_in)


async def whispered(counter: Counter, words: str, user: str = "U0ANA") -> None:
    async def is_shown() -> bool:
        return any(words in text for text in await counter.slack.whispers(user))

    await until(is_shown, f"{user} reads: {words}")


def services_of(bench: Bench) -> Services:
    inbound, people, shelf = MemoryIncidents(run()), KnownPeople("U0ANA"), MemoryPlaybooks()
    return Services(
        inbound,
        people,
        bench.messenger,
        bench.clock,
        shelf,
        MemoryWindowService(bench.clock.now),
        bench.messenger.links,
        bench.messenger.want_card,
        draw=DrawForChannel(bench.messenger.share, lambda picture: f"png of {picture.title}".encode()),
        deployment="tests",
        silencers=lambda _: policy(users=("U0ANA",)),
        may_want_pull_request=lambda _: policy(users=("U0ANA",)),
    )


def behind(services: Services, bench: Bench, url: str = "") -> Counter:
    """The counter of these services, with its memory in view."""
    viewers, changed = MemoryViewers(), asyncio.Event()
    homes = Homes(bench.client, services, viewers, bench.pace, changed)
    assert isinstance(services.incidents, MemoryIncidents)
    assert isinstance(services.people, KnownPeople)
    assert isinstance(services.playbooks, MemoryPlaybooks)
    return Counter(
        services.incidents, services.people, bench.slack, bench, url, services.playbooks, viewers, homes, changed
    )


@pytest.fixture
async def counter(bench: Bench, bot_socket: socket.socket) -> AsyncIterator[Counter]:
    services = services_of(bench)
    url = f"http://127.0.0.1:{bot_socket.getsockname()[1]}/slack/events"
    counter = behind(services, bench, url)
    app = bolt_app(bench.client, services, counter.homes)
    web = Starlette(routes=[Route("/slack/events", endpoint(app, lambda: SECRET), methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(web, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[bot_socket.dup()]))
    await until(lambda: _is(server.started), "the bot listens")
    yield counter
    server.should_exit = True
    await serving


async def _is(fact: bool) -> bool:
    return fact


async def until(holds: Callable[[], Awaitable[bool]], description: str, *, deadline_seconds: float = 10.0) -> None:
    """Wait for a condition; fail with its description when the deadline passes."""
    ends_at = time.monotonic() + deadline_seconds
    while not await holds():
        assert time.monotonic() < ends_at, f"not within {deadline_seconds} s: {description}"
        await asyncio.sleep(0.01)
