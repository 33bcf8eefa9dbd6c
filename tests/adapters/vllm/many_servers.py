"""Many small metrics servers on loopback in this process: each answers with its own number, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from bot.flow.ports.cluster import Replica

Page = Callable[[int], str | None]
"""The page of the server with this number; None: it accepts and never answers."""


@contextlib.asynccontextmanager
async def many_servers(count: int, page: Page) -> AsyncIterator[Sequence[Replica]]:
    over = asyncio.Event()
    servers = [await asyncio.start_server(_answering(page(number), over), "127.0.0.1", 0) for number in range(count)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    try:
        yield [
            Replica(name=f"llm-{number}", uid=f"u{number}", address="127.0.0.1", port=port, namespace="serving")
            for number, port in enumerate(ports)
        ]
    finally:
        over.set()
        for server in servers:
            server.close()


def _answering(
    page: str | None, over: asyncio.Event
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], asyncio.Task[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if page is None:
                    await over.wait()
                    break
                body = page.encode()
                head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    return lambda reader, writer: asyncio.ensure_future(answer(reader, writer))
