"""A Redis that accepts commands but does not answer is reported after one wait, to senders, probes and people alike."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import pytest

from bot.adapters.alertmanager import read_webhook
from bot.adapters.redis.claims import BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.epoch import RedisEpoch
from bot.adapters.redis.planned_windows import RedisPlannedWindows
from bot.adapters.redis.store import RedisStore
from bot.adapters.web import Endpoints, create_app
from bot.dependencies import Storage
from bot.domain.kernel.errors import StorageUnavailableError
from bot.flow.accept_alerts import AcceptAlerts
from bot.sandbox import valkey
from tests.adapters.test_web import BODY
from tests.kit.health import health

pytestmark = pytest.mark.fast
SOON, A_FEW_SECONDS = 0.1, 6.0


@dataclass
class Proxy:
    """Stands before the real server; while it is frozen it takes what is sent and passes nothing on."""

    host: str
    port: int
    url: str = ""
    is_frozen: bool = False
    swallowed: list[bytes] = field(default_factory=list)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    clients: list[asyncio.StreamWriter] = field(default_factory=list)

    def cut(self) -> None:
        for client in self.clients:
            client.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients.append(writer)
        inward, outward = await asyncio.open_connection(self.host, self.port)
        back = asyncio.create_task(_pass_on(inward, writer))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.is_frozen:
                    self.swallowed.append(data)
                    self.taken.set()
                else:
                    outward.write(data)
        outward.close()
        await asyncio.gather(back, return_exceptions=True)
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


@pytest.fixture
async def proxy(redis_server: valkey.Embedded) -> AsyncIterator[Proxy]:
    parts = urlsplit(redis_server.url)
    made = Proxy(str(parts.hostname), int(parts.port or 6379))
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}/0"
    yield made
    listening.close()


@pytest.fixture
async def storage(proxy: Proxy, tag: str) -> AsyncIterator[Storage]:
    """Connected while the server was well, and the server frozen since."""
    connection = Connection.open(proxy.url, tag=tag, silent_seconds=SOON)
    async with asyncio.timeout(A_FEW_SECONDS):
        while not await _is_connected(connection):
            pass
    proxy.is_frozen = True
    store, claims = RedisStore(connection, owner="one"), RedisClaims(connection, BreakerLimits())
    yield Storage(connection, store, claims, RedisEpoch(connection), RedisPlannedWindows(connection))
    await connection.close()


async def _is_connected(connection: Connection) -> bool:
    """On a busy machine even the first answer may take longer than `SOON`."""
    try:
        return await connection.now() > 0
    except StorageUnavailableError:
        return False


async def test_a_command_that_nobody_answers_is_not_sent_again(proxy: Proxy, storage: Storage) -> None:
    with pytest.raises(StorageUnavailableError, match=r"Redis did not answer 'now'"):
        await storage.connection.now()
    assert len(proxy.swallowed) == 1


async def test_a_connection_to_a_frozen_server_is_tried_once(proxy: Proxy) -> None:
    proxy.is_frozen = True
    connection = Connection.open(proxy.url, silent_seconds=SOON)
    with pytest.raises(StorageUnavailableError):
        await connection.now()
    assert len(proxy.swallowed) == 1
    await connection.close()


async def test_a_server_that_takes_no_connection_is_given_up_on_after_one_wait() -> None:
    """Its machine is frozen or cut off: no connection is refused, and none is made."""
    with socket.socket() as listening, contextlib.ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            fills_the_queue = waiting.enter_context(socket.socket())
            fills_the_queue.setblocking(False)
            fills_the_queue.connect_ex(listening.getsockname())
        connection = Connection.open(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        with pytest.raises(StorageUnavailableError, match="Timeout connecting"):
            await asyncio.wait_for(connection.now(), A_FEW_SECONDS)
        await connection.close()


async def test_probes_and_senders_get_an_error_while_redis_is_frozen(storage: Storage) -> None:
    endpoints = Endpoints(
        read=read_webhook,
        accept=AcceptAlerts(storage.store, lambda _: None),
        not_ready=health(storage.store).not_ready,
        metrics=_no_metrics,
    )
    transport = httpx.ASGITransport(create_app(endpoints, credentials=None, body_limit_bytes=10_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://bot") as http:
        ready, posted = await http.get("/readyz"), await http.post("/alertmanager", content=BODY)
    assert (ready.status_code, "redis" in ready.json()["faults"]) == (503, True)
    assert (posted.status_code, posted.headers["retry-after"]) == (503, "5")


async def test_a_command_whose_connection_was_cut_is_not_sent_again_by_itself(proxy: Proxy, storage: Storage) -> None:
    asking = asyncio.create_task(storage.connection.now())
    async with asyncio.timeout(A_FEW_SECONDS):
        await proxy.taken.wait()
    proxy.cut()
    with pytest.raises(StorageUnavailableError):
        await asking
    assert len(proxy.swallowed) == 1
    proxy.is_frozen = False
    assert await storage.connection.now() > 0, "the next one makes a new connection"


async def _no_metrics() -> str:
    return ""
