"""The clients' clock: a machine that has no time for the stand-in must not look like a fleet with fewer clients."""

from __future__ import annotations

import pytest

from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engine import EngineLimits
from bot.sandbox.fleet.server import VllmServer
from bot.sandbox.fleet.startup import Started
from bot.sandbox.fleet.traffic import Traffic
from bot.sandbox.fleet.workload import Load

ADDRESS = "10.0.0.1"
FULL = Load(workers=40)

pytestmark = pytest.mark.fast


async def test_a_loop_that_comes_late_serves_the_same_clients() -> None:
    on_time, late = fleet(), fleet()
    run(on_time, each=0.05)
    run(late, each=2.0)
    assert served(late) == pytest.approx(served(on_time), rel=0.02)


async def test_after_a_long_sleep_only_the_last_seconds_are_caught_up() -> None:
    traffic = fleet()
    traffic.catch_up(0.0, 3600.0)
    assert traffic.servers[ADDRESS].engine.clock == pytest.approx(3600.0, abs=0.1)
    assert traffic.servers[ADDRESS].engine.measured.finished_requests < 100  # of about 15,000 in an hour


def fleet() -> Traffic:
    """One replica in rotation, and clients whose time begins at 0."""
    started = Started("llm", "llm", "0.32.0", EngineLimits(), 0.0, {}, (), ())
    traffic = Traffic(seed=1)
    traffic.add(ADDRESS, VllmServer("llm-1", started, ContainerLog(), process_started_at=0.0, now=0.0))
    traffic.rotation = frozenset({"llm-1"})
    traffic.change(FULL, now=0.0)
    return traffic


def run(traffic: Traffic, each: float) -> None:
    """A minute of the loop, looked after every so many seconds."""
    until = 0.0
    for step in range(1, round(60 / each) + 1):
        until = traffic.catch_up(until, step * each)


def served(traffic: Traffic) -> tuple[float, float]:
    measured = traffic.servers[ADDRESS].engine.measured
    return measured.preemptions, measured.finished_requests
