"""The real server on a real socket: a slow client is closed and does not delay other clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from structlog.testing import capture_logs

from bot.adapters.alertmanager import read_webhook
from bot.adapters.http_server import BoundedProtocol, ClientLimits, FewWarnings, bounded, server_config
from bot.adapters.web import Endpoints, create_app
from bot.domain.kernel.alert import Alert
from bot.settings import load_settings
from tests.adapters.test_web import BODY
from tests.kit.settings import ENOUGH
from tests.waiting import until_awaited

UNFINISHED = b"POST /alertmanager HTTP/1.1\r\nHost: bot\r\nX-Padding: "
NO_BODY = b"POST /alertmanager HTTP/1.1\r\nHost: bot\r\nContent-Length: 1000\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: bot\r\n\r\n"
SOON, NEVER, MAX_SECONDS = 0.1, 600.0, 20.0
PATIENT = ClientLimits(headers_seconds=NEVER, body_seconds=NEVER)


@dataclass
class Stored:
    """Takes alerts as soon as `may_answer` says so."""

    alerts: list[Alert] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def accept(self, alerts: list[Alert], truncated: int) -> int:
        self.asked.set()
        await self.may_answer.wait()
        self.alerts += alerts
        return len(alerts)


@dataclass
class Door:
    port: int
    stored: Stored
    url: str = ""

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"

    async def connect(self, sends: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sends)
        await writer.drain()
        return reader, writer


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@contextlib.asynccontextmanager
async def serving(limits: ClientLimits, *, page: str = "") -> AsyncIterator[Door]:
    """`page`: what `/metrics` shows."""

    async def nothing() -> dict[str, str]:
        return {}

    async def metrics() -> str:
        return page

    stored = Stored()
    endpoints = Endpoints(read=read_webhook, accept=stored.accept, not_ready=nothing, metrics=metrics)
    app = create_app(endpoints, credentials=None, body_limit_bytes=100_000)
    config = uvicorn.Config(app, port=0, http=bounded(limits), log_level="critical", lifespan="off")
    server = Server(config)
    running = asyncio.create_task(server.serve())
    await server.is_up.wait()
    try:
        yield Door(server.servers[0].sockets[0].getsockname()[1], stored)
    finally:
        server.should_exit = server.force_exit = True
        await running


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Waits for the server to end the connection."""
    async with asyncio.timeout(MAX_SECONDS):
        try:
            while await reader.read(4096):
                pass
        except ConnectionResetError:
            pass
    return True


@pytest.mark.parametrize(
    ("sends", "limits"),
    [
        pytest.param(b"", ClientLimits(headers_seconds=SOON), id="nothing at all"),
        pytest.param(UNFINISHED, ClientLimits(headers_seconds=SOON), id="unfinished headers"),
        pytest.param(NO_BODY, ClientLimits(body_seconds=SOON), id="no body"),
        pytest.param(NO_BODY + b"{", ClientLimits(body_seconds=SOON), id="half a body"),
        pytest.param(HEALTH + b"\r\n", ClientLimits(headers_seconds=SOON), id="an empty line after an answer"),
        pytest.param(HEALTH + b"GET /", ClientLimits(headers_seconds=SOON), id="half a request after an answer"),
        pytest.param(UNFINISHED + b"x" * 2000, ClientLimits(NEVER, header_bytes=1000), id="endless headers"),
    ],
)
async def test_a_client_that_does_not_finish_its_request_is_closed(sends: bytes, limits: ClientLimits) -> None:
    async with serving(limits) as door:
        reader, writer = await door.connect(sends)
        assert await is_closed(reader)
        writer.close()


async def test_sending_byte_by_byte_gives_no_more_time() -> None:
    async with serving(ClientLimits(headers_seconds=SOON)) as door:
        reader, writer = await door.connect(UNFINISHED)
        async with asyncio.timeout(MAX_SECONDS):
            while not reader.at_eof():
                with contextlib.suppress(ConnectionError):
                    writer.write(b"x")
                    await writer.drain()
                with contextlib.suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(reader.read(1), 0.01)
        writer.close()


async def test_webhooks_and_health_are_answered_while_more_clients_than_allowed_keep_it_waiting() -> None:
    limits = ClientLimits(headers_seconds=NEVER, body_seconds=NEVER, connections=20)
    async with serving(limits) as door, httpx.AsyncClient(base_url=door.url) as http:
        door.stored.may_answer.set()
        slow = [await door.connect(UNFINISHED if number % 2 else NO_BODY) for number in range(60)]
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.post("/alertmanager", content=BODY)).status_code == 200
        assert len(door.stored.alerts) == 1
        assert await is_closed(slow[0][0]), "who has waited longest makes room"
        for _, writer in slow:
            writer.close()


async def test_a_request_that_is_being_answered_is_closed_for_nobody() -> None:
    limits = ClientLimits(headers_seconds=SOON, body_seconds=SOON, connections=5)
    async with serving(limits) as door, httpx.AsyncClient(base_url=door.url, timeout=MAX_SECONDS) as http:
        posting = asyncio.create_task(http.post("/alertmanager", content=BODY))
        await door.stored.asked.wait()
        slow = [await door.connect(UNFINISHED) for _ in range(20)]
        for reader, writer in slow:
            assert await is_closed(reader)
            writer.close()
        door.stored.may_answer.set()
        assert (await posting).status_code == 200


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_a_line_in_the_log() -> None:
    with capture_logs() as logged:
        async with serving(ClientLimits(body_seconds=SOON)) as door:
            reader, writer = await door.connect(NO_BODY)
            assert await is_closed(reader)
            writer.close()
    assert [one["event"] for one in logged] == ["connections.closed", "request.aborted"]


async def test_many_closed_connections_do_not_fill_the_log() -> None:
    with capture_logs() as logged:
        async with serving(ClientLimits(headers_seconds=NEVER, connections=1)) as door:
            slow = [await door.connect(UNFINISHED) for _ in range(20)]
            assert await is_closed(slow[0][0])
            for _, writer in slow:
                writer.close()
    assert len([one for one in logged if one["event"] == "connections.closed"]) < 5


async def test_many_requests_that_are_no_http_do_not_fill_the_log() -> None:
    written: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    server = Server(server_config(Starlette(), host="127.0.0.1", port=0))
    logger, kept = logging.getLogger("uvicorn.error"), Kept()
    logger.addHandler(kept)
    running = asyncio.create_task(server.serve())
    await server.is_up.wait()
    door = Door(server.servers[0].sockets[0].getsockname()[1], Stored())
    for _ in range(20):
        reader, writer = await door.connect(b"no http\r\n\r\n")
        assert await is_closed(reader)
        writer.close()
    server.should_exit = server.force_exit = True
    await running
    logger.removeHandler(kept)
    assert written[0] == "Invalid HTTP request received."
    assert len(written) < 5


def test_warnings_are_written_once_a_second_and_errors_always() -> None:
    few = FewWarnings()
    times = [(10.0, logging.WARNING), (10.5, logging.WARNING), (10.6, logging.ERROR), (11.0, logging.WARNING)]
    records = [logging.makeLogRecord({"created": at, "levelno": level}) for at, level in times]
    assert [few.filter(record) for record in records] == [True, False, True, True]


PAGE = b"GET /metrics HTTP/1.1\r\nHost: bot\r\n\r\n"
LONG = "x" * (16 << 20)
"""More than the buffers of both sides hold."""


async def test_a_client_that_does_not_read_its_answer_is_closed() -> None:
    with capture_logs() as logged:
        async with serving(ClientLimits(reading_seconds=SOON), page=LONG) as door:
            _, writer = await door.connect(PAGE)

            async def is_logged() -> bool:
                return any("too slow, waited for its answer to be read" in one.get("reason", "") for one in logged)

            await until_awaited(is_logged, "the connection is closed", MAX_SECONDS)
            writer.close()


async def test_clients_that_do_not_read_make_room_for_others() -> None:
    limits = ClientLimits(headers_seconds=NEVER, reading_seconds=NEVER, connections=5)
    async with serving(limits, page=LONG) as door, httpx.AsyncClient(base_url=door.url) as http:
        stuck = [await door.connect(PAGE) for _ in range(5)]
        for reader, _ in stuck:
            assert await reader.read(1)
        assert (await http.get("/healthz")).status_code == 200
        assert await is_closed(stuck[0][0])
        for _, writer in stuck:
            writer.close()


async def test_who_sends_many_requests_before_the_first_answer_is_closed() -> None:
    async with serving(PATIENT) as door:
        reader, writer = await door.connect(HEALTH * 5)
        for _ in range(5):
            assert b"200 OK" in await reader.readuntil(b"ok\n")
        writer.write(HEALTH * 1000)
        assert (await reader.read()).count(b"200 OK") <= 1
        writer.close()


def test_serve_uses_it() -> None:
    settings = load_settings(ENOUGH)
    protocol = server_config(Starlette(), host=settings.http.host, port=settings.http.port).http
    assert isinstance(protocol, type)
    assert issubclass(protocol, BoundedProtocol)


async def test_one_connection_may_send_many_requests() -> None:
    async with serving(PATIENT) as door:
        reader, writer = await door.connect()
        for _ in range(3):
            writer.write(HEALTH)
            assert b"200 OK" in await reader.readuntil(b"ok\n")
        writer.close()
