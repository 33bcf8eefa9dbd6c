"""Remembers the open connection of each request, so that a fault can cut it without an answer.

uvicorn hands requests to the application without their socket; its protocol class is the documented place to keep it.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Address = tuple[str, int]


class Connections:
    def __init__(self) -> None:
        self._open: dict[Address, asyncio.BaseTransport] = {}

    def protocol(self) -> type[HttpToolsProtocol]:
        """A protocol class for one server, whose connections are listed here."""
        connections = self._open

        class ListedProtocol(HttpToolsProtocol):
            _address: Address | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
                super().connection_made(transport)
                peer = transport.get_extra_info("peername")
                self._address = (peer[0], peer[1])
                connections[self._address] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                if self._address is not None:
                    connections.pop(self._address, None)
                super().connection_lost(exc)

        return ListedProtocol

    def cut(self, address: Address) -> None:
        transport = self._open.get(address)
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
