"""Which addresses are asked through a proxy."""

from __future__ import annotations

import asyncio

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.proxies import proxy_from_environment

PROXY = "http://ana:secret@proxy.example.com:3128"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("https://slack.com/api/", PROXY, id="outside"),
        pytest.param("https://10.0.0.1:6443", PROXY, id="an address"),
        pytest.param("http://alertmanager.example.com", None, id="no proxy for this scheme"),
        pytest.param("https://api.cluster.example.org", None, id="named by no_proxy"),
        pytest.param("https://localhost:6443", None, id="localhost"),
        pytest.param("https://127.0.0.1:6443", None, id="loopback"),
        pytest.param("https://[::1]:6443", None, id="loopback, IPv6"),
        pytest.param("", None, id="no address"),
    ],
)
def test_a_proxy_is_used_where_the_environment_names_one(
    url: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", ".example.org")
    assert proxy_from_environment(url) == expected


async def test_the_kubernetes_client_asks_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        async with KubernetesClient(Connection(url="http://cluster.example.com:8001")) as client:
            answer = await client.request("GET", "/version")
    assert (answer.status, lines) == (407, [b"GET http://cluster.example.com:8001/version HTTP/1.1\r\n"])
