"""Which API servers are asked through a proxy."""

from __future__ import annotations

import asyncio

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection

HOST = "cluster.example.org"


@pytest.mark.parametrize("through", [True, False], ids=["a proxy is named", "no_proxy names the host"])
async def test_the_environment_names_the_proxy(through: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for name in ("NO_PROXY", "HTTP_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}" if through else "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "" if through else "127.0.0.1")
        url = f"http://{HOST}:8001" if through else f"http://127.0.0.1:{port}"
        async with KubernetesClient(Connection(url=url)) as client:
            answer = await client.request("GET", "/version")
    asked = f"http://{HOST}:8001/version" if through else "/version"
    assert (answer.status, lines) == (407, [f"GET {asked} HTTP/1.1\r\n".encode()])
