"""One simulator on a free port in this event loop, and short helpers to use it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette

from bot.sandbox.slack.server import listening_socket, prepare
from bot.sandbox.slack.team import Settings, Team

Json = dict[str, Any]
DEADLINE_SECONDS = 10.0


@dataclass
class Clock:
    """The time of day, moved by hand."""

    ahead_seconds: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


@dataclass(frozen=True)
class StandIn:
    """`client` is the bot's; `act` is what a person or a test does."""

    team: Team
    clock: Clock
    http: httpx.AsyncClient
    client: AsyncWebClient

    @property
    def api_url(self) -> str:
        return f"{self.team.base_url}/api/"

    async def act(self, deed: str, /, **body: object) -> Json:
        response = await self.http.post(f"/__sandbox__/{deed}", json=body)
        answer = response.json()
        assert isinstance(answer, dict)
        return answer

    async def faults(self, *faults: Json) -> None:
        response = await self.http.post("/__sandbox__/faults", json=list(faults))
        assert response.json() == {"ok": True}

    async def read(self, name: str, **query: str) -> Any:
        return (await self.http.get(f"/__sandbox__/{name}", params=query)).json()

    async def call(self, method: str, /, **arguments: object) -> Json:
        """A Web API call as a form, without the SDK's checks and exceptions."""
        answer = await self.http.post(
            f"/api/{method}", data=arguments, headers={"Authorization": "Bearer xoxb-sandbox"}
        )
        body = answer.json()
        assert isinstance(body, dict)
        return body

    async def post(self, *blocks: Json, **more: object) -> str:
        """Post into the incident channel; the message's ts."""
        answer = await self.client.chat_postMessage(
            **{"channel": "C0INC", "text": "a card", "blocks": list(blocks) or None, **more}  # type: ignore[arg-type]  # a test chooses the names
        )
        ts = answer["ts"]
        assert isinstance(ts, str)
        return ts


async def until(condition: Callable[[], Awaitable[bool]], description: str) -> None:
    """Wait for a condition; fail with its description when the deadline passes."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await condition():  # noqa: ASYNC110 - the condition lives in another process or a browser
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE_SECONDS} s: {description}") from None


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """Any other application on a free port, until the block ends."""
    listener = listening_socket(0)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def stand_in(settings: Settings) -> AsyncIterator[StandIn]:
    listener = listening_socket(0)
    clock = Clock()
    team = Team(settings, clock)
    listens = asyncio.Event()
    server = prepare(team, listener, announce=lambda _: listens.set())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await listens.wait()
    client = AsyncWebClient(token="xoxb-sandbox", base_url=f"{team.base_url}/api/", retry_handlers=[])
    async with httpx.AsyncClient(base_url=team.base_url, trust_env=False) as http:
        try:
            yield StandIn(team, clock, http, client)
        finally:
            server.stop()
            await serving
