"""The clients' clock: a machine too busy for the simulator must not look like a fleet with fewer clients."""

from __future__ import annotations

import time

import aiohttp
import pytest

from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engine import Engine, EngineLimits
from bot.sandbox.fleet.server import VllmServer
from bot.sandbox.fleet.startup import Started
from bot.sandbox.fleet.traffic import Traffic
from bot.sandbox.fleet.workload import Load

ADDRESS = "10.0.0.1"
STARTED = Started("llm", "llm", "0.32.0", EngineLimits(), 0.0, {}, (), ())
FULL = Load(workers=40)

pytestmark = pytest.mark.fast


async def test_a_loop_that_comes_late_serves_the_same_clients() -> None:
    on_time, late, very_late = fleet(), fleet(), fleet()
    run(on_time, each=0.05)
    run(late, each=2.0)
    run(very_late, each=30.0)
    assert served(late) == pytest.approx(served(on_time), rel=0.02)
    assert served(very_late) == pytest.approx(served(on_time), rel=0.02)


async def test_a_loop_that_catches_up_in_parts_comes_to_the_same() -> None:
    on_time, in_parts = fleet(), fleet()
    run(on_time, each=0.05)
    parts = 0
    while not in_parts.catch_up(60.0, at_most=1.0):
        parts += 1
    assert parts == pytest.approx(57, abs=2)
    assert served(in_parts) == pytest.approx(served(on_time), rel=0.02)


async def test_after_a_long_sleep_only_the_last_seconds_are_caught_up() -> None:
    traffic = fleet()
    traffic.catch_up(3600.0)
    assert engine_of(traffic).clock == pytest.approx(3600.0, abs=0.1)
    assert engine_of(traffic).measured.finished_requests < 400  # of about 15,000 in an hour


async def test_a_scrape_is_of_now_however_late_the_loop_comes(unused_tcp_port: int) -> None:
    """The rate between two scrapes would else be that of the machine, not that of the clients."""
    traffic = Traffic(seed=1)
    server = VllmServer("llm-1", STARTED, ContainerLog(), process_started_at=0.0, now=0.0)
    traffic.add("127.0.0.1", server)
    begun = time.time()
    traffic.catch_up(begun - 20.0)
    await server.listen("127.0.0.1", unused_tcp_port)
    try:
        async with aiohttp.ClientSession() as session:
            await session.get(f"http://127.0.0.1:{unused_tcp_port}/metrics")
    finally:
        await server.close()
    assert server.engine.clock >= begun


def fleet() -> Traffic:
    """One replica in rotation, and clients whose time begins at 0."""
    traffic = Traffic(seed=1)
    traffic.add(ADDRESS, VllmServer("llm-1", STARTED, ContainerLog(), process_started_at=0.0, now=0.0))
    traffic.rotation = frozenset({"llm-1"})
    traffic.change(FULL, now=0.0)
    traffic.catch_up(0.0)
    return traffic


def run(traffic: Traffic, each: float) -> None:
    """A minute of the loop, looked after every so many seconds."""
    for step in range(1, round(60 / each) + 1):
        traffic.catch_up(step * each)


def served(traffic: Traffic) -> tuple[float, float]:
    measured = engine_of(traffic).measured
    return measured.preemptions, measured.finished_requests


def engine_of(traffic: Traffic) -> Engine:
    server = traffic.servers[ADDRESS]
    assert isinstance(server, VllmServer)
    return server.engine
