"""The process: one socket, one line `ready {json}`, and an end within a second of SIGTERM or SIGINT."""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BreakableProtocol(HttpToolsProtocol):
    """Gives its transport to the application, which alone knows when to break a connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own narrowing
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


def bind(host: str, port: int) -> socket.socket:
    """Bound before anything else starts: port 0 becomes a known number."""
    # The protocol is named because asyncio switches Nagle off only if it is.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    return listening


Task = Callable[[], Awaitable[None]]


async def serve(server: "AnnouncingServer", listening: socket.socket, tasks: list[Task]) -> None:
    """Serves until SIGTERM or SIGINT; `tasks` run in parallel and are cancelled at the end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_run(task)) for task in tasks]
        await server.serve(sockets=[listening])
        for task in running:
            task.cancel()


async def _run(task: Task) -> None:
    await task()


class AnnouncingServer(uvicorn.Server):
    """Announces when it listens, and ends open streams before it waits for them."""

    def __init__(self, app: Starlette, ready: dict[str, Any], end_streams: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=BreakableProtocol,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=75,
        )
        super().__init__(config)
        self._ready = ready
        self._end_streams = end_streams

    def stop(self) -> None:
        self.should_exit = True
        self._end_streams()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # Signals are ours: uvicorn would raise them again after a clean end.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"ready {json.dumps(self._ready)}", flush=True)
