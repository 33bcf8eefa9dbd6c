"""A server that accepts requests but does not answer: after a few, calls fail at once and name it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest

from bot.adapters import logs
from bot.adapters.alertmanager import read_listed
from bot.adapters.alertmanager_api import AlertmanagerApi
from bot.adapters.http_client import CircuitClient
from bot.adapters.prometheus.memory import PrometheusMemory
from bot.dependencies import Circuits
from bot.domain.kernel.errors import CircuitOpenError, SourceError
from bot.flow.circuit import OPENS_AFTER, Circuit
from tests.fakes.clocks import Steps


@dataclass
class Frozen:
    url: str
    connections: int = 0


@pytest.fixture
async def frozen() -> AsyncIterator[Frozen]:
    server = Frozen("")

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(take, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    listening.close()


def client(circuit: Circuit) -> CircuitClient:
    return CircuitClient(circuit, timeout=0.05)


async def freeze(http: CircuitClient, server: Frozen) -> None:
    for _ in range(OPENS_AFTER):
        with pytest.raises(httpx.TimeoutException):
            await http.get(server.url)


async def test_a_frozen_server_is_not_asked_again(frozen: Frozen) -> None:
    async with client(Circuit("Prometheus", elapsed=Steps())) as http:
        await freeze(http, frozen)
        with pytest.raises(CircuitOpenError, match="Prometheus has not answered since"):
            await http.get(frozen.url)
    assert frozen.connections == OPENS_AFTER


async def test_readings_and_silences_say_who_does_not_answer(frozen: Frozen) -> None:
    async with client(Circuit("Prometheus", elapsed=Steps())) as http:
        await freeze(http, frozen)
        with pytest.raises(SourceError, match="Prometheus has not answered since"):
            await PrometheusMemory(http, frozen.url).least_free_mib("serving", ["llm-0"])
    async with client(Circuit("Alertmanager", elapsed=Steps())) as http:
        await freeze(http, frozen)
        with pytest.raises(SourceError, match="Alertmanager has not answered since"):
            await AlertmanagerApi(http, frozen.url, read_listed).expire("s1")


async def test_metrics_show_which_dependency_is_silent(frozen: Frozen) -> None:
    facts = logs.Facts()
    circuits = Circuits(facts.circuits)
    assert circuits.new("kubernetes", "the Kubernetes API", of="east").name == "the Kubernetes API of east"
    circuits.new("kubernetes", "the Kubernetes API", of="west")
    circuits.known["prometheus"] = Circuit("Prometheus", elapsed=Steps())
    async with client(circuits.known["prometheus"]) as http:
        await freeze(http, frozen)
    page = facts.page({})
    assert 'incident_bot_dependency_silent{dependency="prometheus"} 1.0' in page
    assert 'incident_bot_dependency_silent{dependency="kubernetes/east"} 0.0' in page
    assert 'incident_bot_dependency_silent{dependency="kubernetes/west"} 0.0' in page
