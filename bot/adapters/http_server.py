"""uvicorn with limits for clients without a token: time for headers and body, bytes, connections.

uvicorn waits forever for the end of a request, and for a client that does not read its answer, so a thousand of either
used up the file descriptors; and it keeps every request that is sent before the answer to an earlier one. If there are
too many connections, the one that has kept the server waiting longest is closed, never one that is being answered: a
client that sends its request at once, and reads, is always served.
"""

from __future__ import annotations

import asyncio
import json
import logging
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
READING, ANOTHER = "its answer to be read", "another request"


@dataclass(frozen=True)
class ClientLimits:
    headers_seconds: float = 5.0
    """From the connection, or the first byte of a further request, to the end of the headers."""
    body_seconds: float = 20.0
    """From the headers to the end of the body."""
    reading_seconds: float = 20.0
    """How long a client may read nothing of an answer that waits for it."""
    requests_ahead: int = 8
    """How many requests may be sent before the answer to an earlier one; nobody who calls the bot sends any."""
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
    _unread: asyncio.TimerHandle | None = None
    _header_bytes = 0

    # --- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for("headers", self.limits.headers_seconds)
        if len(self.connections) > self.limits.connections:
            next(iter(self.waiting.on)).close("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        is_between = self.cycle is None or self.cycle.response_complete
        if is_between and self.waiting.on.get(self) in (None, ANOTHER, READING):
            self._wait_for("headers", self.limits.headers_seconds)
        if self.waiting.on.get(self) == "headers":
            self._header_bytes += len(data)
        super().data_received(data)
        if self.waiting.on.get(self) == "headers" and self._header_bytes > self.limits.header_bytes:
            self.close("headers too large")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_for_reader()
        self._wait_for_another()

    # --- the request ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self.limits.requests_ahead:
            self.close("too many requests at once")
            raise ConnectionAbortedError  # ends the parsing: one piece of data may hold thousands
        super().on_message_begin()
        if self.waiting.on.get(self) != "headers":
            self._wait_for("headers", self.limits.headers_seconds)

    def on_headers_complete(self) -> None:
        self._wait_for("body", self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_reader()
        self._wait_for_another()

    # --- deadlines ------------------------------------------------------------------------------------------------

    def close(self, why: str) -> None:
        self.waiting.count(f"{why}, waited for {self.waiting.on.get(self)}", now=self.loop.time())
        self._stop_waiting()
        if self._unread is not None:
            self.transport.abort()  # else it stays until the client has read what was sent
        else:
            self.transport.close()

    def _wait_for_reader(self) -> None:
        """Starts the time in which the client has to read what was sent."""
        self._read()
        if self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(self.limits.reading_seconds, self._is_read)
            self.waiting.on.setdefault(self, READING)

    def _is_read(self) -> None:
        if self.transport.get_write_buffer_size():
            self.close("too slow")
        else:
            self._read()
            self._wait_for_another()

    def _wait_for_another(self) -> None:
        """uvicorn itself closes a connection that sends nothing more; until then it may be closed to make room."""
        is_over = self.cycle is not None and self.cycle.response_complete
        if is_over and self not in self.waiting.on and not self.transport.is_closing():
            self.waiting.on[self] = ANOTHER

    def _read(self) -> None:
        """No longer waits for the client to read."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self.waiting.on.get(self) == READING:
            del self.waiting.on[self]

    def _wait_for(self, what: str, seconds: float) -> None:
        self._stop_waiting()
        self.waiting.on[self] = what
        self._deadline = self.loop.call_later(seconds, self.close, "too slow")

    def _stop_waiting(self) -> None:
        self.waiting.on.pop(self, None)
        self._header_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._unread is not None:
            self.waiting.on[self] = READING


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


class FewWarnings(logging.Filter):
    """Lets one warning a second through: anybody who reaches the port causes uvicorn's by sending what is no HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self._last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        is_due = record.created - self._last >= LINES_APART_SECONDS
        self._last = record.created if is_due else self._last
        return is_due


FEW_WARNINGS = FewWarnings()

# --- the server -------------------------------------------------------------------------------------------------------


def server_config(app: Starlette, *, host: str, port: int) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").addFilter(FEW_WARNINGS)
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
