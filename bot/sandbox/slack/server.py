"""Assembles the simulator and serves it on loopback until it gets a signal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.sandbox.slack.api_routes import ApiRoutes
from bot.sandbox.slack.bot_link import BotLink
from bot.sandbox.slack.connections import Connections
from bot.sandbox.slack.sandbox_routes import SandboxRoutes
from bot.sandbox.slack.team import Team

PAGE = Path(__file__).parent / "page"
SAVE_SECONDS = 1.0
#: Nothing from elsewhere, no script in the page, no frame around it. Images may come from a bot on this machine.
POLICY = (
    "default-src 'self'; img-src 'self' data: http://127.0.0.1:* http://localhost:*; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)


async def index(request: Request) -> Response:
    del request
    return FileResponse(PAGE / "index.html", headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})


class OnlyFromHere:
    """Refuses a browser's request from another site: a web page must not press buttons in the sandbox."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sites = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
            if scope["method"] == "POST" and any(site not in (b"same-origin", b"none") for site in sites):
                await Response("cross-site request refused", status_code=403)(scope, receive, send)
                return

        async def fresh(message: Message) -> None:
            if message["type"] == "http.response.start" and scope["path"].startswith("/assets/"):
                message["headers"].append((b"cache-control", b"no-cache"))
            await send(message)

        await self._app(scope, receive, fresh)


def write_whole(path: Path, content: str) -> None:
    """Replaces the file in one step, so that a kill leaves the old state or the new one."""
    draft = path.with_suffix(path.suffix + ".new")
    draft.write_text(content)
    draft.replace(path)


async def keep_saved(team: Team, path: Path) -> None:
    saved = team.feed.version
    while True:
        await asyncio.sleep(SAVE_SECONDS)
        if team.feed.version != saved:
            saved = team.feed.version
            await asyncio.to_thread(write_whole, path, team.snapshot())


def build_app(team: Team, connections: Connections, state: Path | None = None) -> Starlette:
    """The application; its lifespan loads the state first and saves it last."""
    link = BotLink(team)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        saving: asyncio.Task[None] | None = None
        if state is not None:
            team.load(state)
            saving = asyncio.create_task(keep_saved(team, state))
        yield
        await link.close()
        if saving is not None and state is not None:
            saving.cancel()
            with suppress(asyncio.CancelledError):
                await saving
            write_whole(state, team.snapshot())

    routes = [
        Route("/", index),
        *ApiRoutes(team, connections).routes(),
        *SandboxRoutes(team, link).routes(),
        WebSocketRoute("/socket/{ticket}", team.sockets.serve),
        Route("/archives/{channel}/{message}", index),
        Mount("/assets", StaticFiles(directory=PAGE)),
    ]
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(OnlyFromHere)])


class Server(uvicorn.Server):
    """Announces itself once it listens, and ends the pages' streams when it stops."""

    def __init__(self, config: uvicorn.Config, team: Team, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._team = team
        self._announce = announce
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._announce(self._team.base_url)

    def stop(self) -> None:
        self.should_exit = True
        self._team.feed.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A requested stop is success: unlike uvicorn, do not die of the signal afterwards."""
        del sig, frame
        self.force_exit = self.should_exit
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)


def listening_socket(port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def prepare(
    team: Team, listener: socket.socket, *, state: Path | None = None, announce: Callable[[str], None] = lambda _: None
) -> Server:
    """A server for this workspace on this socket; the workspace learns its own address."""
    team.listens_on(f"http://127.0.0.1:{listener.getsockname()[1]}")
    connections = Connections()
    config = uvicorn.Config(
        build_app(team, connections, state),
        http=connections.protocol(),
        ws="websockets-sansio",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    return Server(config, team, announce)
