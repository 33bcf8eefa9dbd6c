"""Scenarios with thousands: a storm of alerts, repeated alerts, thousands open, and a restart among them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import redis

from tests.bench.load import Post, at_planned_times, back_to_back, targets, webhook
from tests.bench.scenario import Figures, Size, open_incidents
from tests.bench.systems import SYSTEMS, Surroundings, System

QUIET_WITHIN_SECONDS = 60.0
IMPORTS = "import aiohttp, cel_expr_python, kubernetes.aio, pydantic, redis.asyncio, slack_bolt.async_app, uvicorn"


async def repeats(around: Surroundings, system: System, size: Size) -> Figures:
    """CPU of an alert that is known already, and of another alert about a workload with an open incident."""
    [opened] = (await open_incidents(around, system, targets("repeat", 1))).values()
    await _until_quiet(around, size)
    if opened.incident_id:
        around.crowd(opened.incident_id, size.incidents)
    posts = [webhook(name, alerts=1, token=around.alert_token) for name in targets("crowd", size.incidents)]
    await back_to_back(system.url, posts, connections=1)
    again = [posts[number % len(posts)] for number in range(size.repeats)]
    joining = [_numbered(posts[number % len(posts)], number) for number in range(size.repeats)]
    return {
        "repeated CPU ms": await _cpu_ms_each(around, system, size, again),
        "joining CPU ms": await _cpu_ms_each(around, system, size, joining),
    }


def _numbered(post: Post, number: int) -> Post:
    """The same group, with an alert of a fingerprint that was not seen before."""
    body = post.body.replace(b'"fingerprint": "', f'"fingerprint": "{number:08x}'.encode())
    return replace(post, body=body)


async def _cpu_ms_each(around: Surroundings, system: System, size: Size, posts: list[Post]) -> float:
    await _until_quiet(around, size)
    before = system.cpu_seconds()
    await at_planned_times(system.url, posts, per_second=100)
    await _until_quiet(around, size)
    return (system.cpu_seconds() - before) / len(posts) * 1000


async def _until_quiet(around: Surroundings, size: Size) -> None:
    """Until Slack has received nothing for a while: the work of the last posts is done."""
    seen, since = -1, time.monotonic()
    async with asyncio.timeout(QUIET_WITHIN_SECONDS):
        while time.monotonic() - since < size.quiet_seconds:
            if (count := around.calls()) != seen:
                seen, since = count, time.monotonic()
            await asyncio.sleep(0.1)


async def storm(around: Surroundings, system: System, size: Size) -> Figures:
    """All alerts at once, several for each workload: until they are answered, and until every card is shown."""
    names = targets("storm", size.storm_groups)
    posts = [webhook(name, alerts=size.storm_alerts, token=around.alert_token) for name in names]
    cpu, began = system.cpu_seconds(), time.monotonic()
    await back_to_back(system.url, posts, connections=size.connections)
    accepted = time.monotonic() - began
    came = around.wait_for_cards(names, within=size.storm_within)
    return {
        "accepted s": accepted,
        "all shown s": max(card.at for card in came.values()) - began,
        "CPU ms a group": (system.cpu_seconds() - cpu) / len(names) * 1000,
    }


async def round_trips(around: Surroundings, system: System, size: Size) -> Figures:
    """Commands that Redis gets from outside of its scripts for an incident, from its alert until all is quiet."""
    names = targets("trip", size.incidents)
    with _monitored(around.redis_url) as idle:
        await asyncio.sleep(size.idle_seconds)
    with _monitored(around.redis_url) as seen:
        began = time.monotonic()
        await open_incidents(around, system, names)
        await _until_quiet(around, size)
        elapsed = time.monotonic() - began
    return {"Redis trips each": (len(seen) - len(idle) / size.idle_seconds * elapsed) / len(names)}


@contextlib.contextmanager
def _monitored(url: str) -> Iterator[list[str]]:
    """The commands from clients while the context lasts."""
    seen: list[str] = []
    # A system may be silent for longer than the client waits by default.
    with redis.Redis.from_url(url, decode_responses=True, socket_timeout=None) as client, client.monitor() as monitor:

        def listen() -> None:
            for command in monitor.listen():
                if command["command"].startswith("GET bench:end"):
                    return
                if command["client_type"] != "lua":
                    seen.append(command["command"])

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        yield seen
        with redis.Redis.from_url(url) as other:
            other.get("bench:end")
        listening.join(10)


async def thousands(around: Surroundings, system: System, size: Size) -> Figures:
    """Thousands of incidents that only are open: an idle bot, a new card, memory, and a start after kill -9."""
    empty = _resident_megabytes(system.pid)
    opened = await open_incidents(around, system, targets("thousands", 1))
    [card] = opened.values()
    if card.incident_id:
        around.crowd(card.incident_id, size.crowd)
    await _until_quiet(around, size)
    before = system.cpu_seconds()
    await asyncio.sleep(size.idle_seconds)
    idle = (system.cpu_seconds() - before) / size.idle_seconds * 100
    began = time.monotonic()
    shown = await open_incidents(around, system, targets("after", 1))
    waited = next(iter(shown.values())).at - began
    resident = _resident_megabytes(system.pid)
    os.kill(system.pid, signal.SIGKILL)
    began = time.monotonic()
    with SYSTEMS[system.name](around):
        ready = time.monotonic() - began
    return {
        "idle CPU %": idle,
        "new card ms": waited * 1000,
        "RSS MB at first": empty,
        "RSS MB": resident,
        "ready s": ready,
        "imports alone s": _importing_seconds(),
    }


def _resident_megabytes(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _importing_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.monotonic() - began
