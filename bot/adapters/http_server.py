"""uvicorn with limits for clients without a token: time for headers and body, bytes, connections.

uvicorn waits forever for the end of a request, so a thousand unfinished ones used up the file descriptors. If there are
too many connections, the one that has kept the server waiting longest is closed, never one that is being answered: a
client that sends its request at once is always served.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from dataclasses import dataclass, field
from typing import ClassVar

import structlog
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = structlog.get_logger(__name__)
MAX_FILES = 65_536
LINES_APART_SECONDS = 1.0
STOP_SECONDS = 3


@dataclass(frozen=True)
class ClientLimits:
    headers_seconds: float = 5.0
    """From the connection, or the first byte of a further request, to the end of the headers."""
    body_seconds: float = 20.0
    """From the headers to the end of the body."""
    header_bytes: int = 64 * 1024
    connections: int = 1000


@dataclass
class Waiting:
    """State that the connections of one server share."""

    on: dict[BoundedProtocol, str] = field(default_factory=dict)
    """Connections on which the client must send something, and what; the first one has waited longest."""
    closed: int = 0
    logged_at: float = float("-inf")

    def count(self, reason: str, *, now: float) -> None:
        """Logs one line a second, however many are closed."""
        self.closed += 1
        if now - self.logged_at >= LINES_APART_SECONDS:
            log.warning("connections.closed", reason=reason, since_last=self.closed)
            self.closed, self.logged_at = 0, now


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Made by `bounded`, which gives each server its own limits and list of waiting connections."""

    limits: ClassVar[ClientLimits]
    waiting: ClassVar[Waiting]

    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0

    # --- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for("headers", self.limits.headers_seconds)
        if len(self.connections) > self.limits.connections:
            next(iter(self.waiting.on)).close("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        is_between = self.cycle is None or self.cycle.response_complete
        if is_between and self.waiting.on.get(self) in (None, "another request"):
            self._wait_for("headers", self.limits.headers_seconds)
        if self.waiting.on.get(self) == "headers":
            self._header_bytes += len(data)
        super().data_received(data)
        if self.waiting.on.get(self) == "headers" and self._header_bytes > self.limits.header_bytes:
            self.close("headers too large")

    # --- the request ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.waiting.on.get(self) != "headers":
            self._wait_for("headers", self.limits.headers_seconds)

    def on_headers_complete(self) -> None:
        self._wait_for("body", self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._heard()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn itself closes a connection that sends nothing more; until then it may be closed to make room.
        if self not in self.waiting.on and not self.transport.is_closing():
            self.waiting.on[self] = "another request"

    # --- deadlines ------------------------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        self.waiting.count(f"{why}, waited for {self.waiting.on.get(self)}", now=self.loop.time())
        self._heard()
        self.transport.close()

    def _wait_for(self, what: str, seconds: float) -> None:
        self._heard()
        self.waiting.on[self] = what
        self._deadline = self.loop.call_later(seconds, self.close, "too slow")

    def _heard(self) -> None:
        self.waiting.on.pop(self, None)
        self._header_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bounded(limits: ClientLimits) -> type[BoundedProtocol]:
    """The protocol class for one `uvicorn.Config`."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits, "waiting": Waiting()})


def limits_here() -> ClientLimits:
    """Raises the process's limit of open files as far as allowed, and leaves half of them to the bot itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return ClientLimits(connections=min(ClientLimits.connections, max(soft, wanted) // 2))


# --- the server -------------------------------------------------------------------------------------------------------


def server_config(app: Starlette, *, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        app, host=host, port=port, log_level="warning", lifespan="off",
        timeout_graceful_shutdown=STOP_SECONDS, http=bounded(limits_here()), ws="none",
        # Nothing here depends on the sender's address, and each request is logged where it is handled.
        proxy_headers=False, access_log=False,
    )  # fmt: skip


async def serve_until_stopped(app: Starlette, *, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT; prints `ready {json}` on standard output once it listens."""
    await _Announcing(server_config(app, host=host, port=port)).serve()


class _Announcing(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            print("ready", json.dumps({"url": f"http://{host}:{port}"}), flush=True)
            log.info("bot.started", host=host, port=port)
