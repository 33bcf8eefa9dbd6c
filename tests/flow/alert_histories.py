"""Alerts of two workloads, people who close and reopen, and two bots whose steps run in any order.

Every command to Redis is one step: a bot waits before it until it is let on, so that a list of numbers is a history.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.event import AlertChanged, Commanded, Event
from bot.domain.incidents.machine import Decision
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.playbooks.library import Library
from bot.flow.advance_run import AdvanceRun
from bot.flow.route_alerts import RouteAlerts
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES, compiled_once
from tests.flow.scenes import drill_playbook
from tests.open_index import faults_now
from tests.redis_server import VirtualTime

WORKLOADS = ("llm", "chat")
REMEMBERED_SECONDS = 3600
BOTS = ("one", "two")
CHANGE_THE_INDEX = frozenset({"route", "advance", "reopen", "step", "settle"})


class Gate:
    """Lets one step on at a time."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self._arrived = asyncio.Event()

    async def pass_(self) -> None:
        called = asyncio.get_running_loop().create_future()
        self.waiting.append(called)
        self._arrived.set()
        await called

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._arrived.set())
        return task

    async def settled(self) -> None:
        """Until what was let on waits for its next step, or has ended."""
        await self._arrived.wait()
        self._arrived.clear()

    async def let_on(self, number: int) -> None:
        self.waiting.pop(number % len(self.waiting)).set_result(None)
        await self.settled()


class GatedConnection(Connection):
    def __init__(self, client: aioredis.Redis, gate: Gate, *, tag: str, clock: str) -> None:
        super().__init__(client, tag=tag, clock=clock)
        self._gate = gate

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        await self._gate.pass_()
        return await super().script(name, keys, args)

    async def ask(self, command: Any) -> Any:
        await self._gate.pass_()
        return await super().ask(command)


@dataclass
class Received:
    """What one bot decided of one alert that fires, when that decision was last made."""

    alert: Alert
    run: Run


class Recording(AdvanceRun):
    received: dict[str, Received]

    async def _decide(self, run: Run, event: Event, other: str) -> Decision | None:
        decision = await super()._decide(run, event, other)
        if decision is not None and isinstance(event, AlertChanged):
            self.received[event.event_id] = Received(event.alert, decision.run)
        return decision


@dataclass
class History:
    client: aioredis.Redis
    tag: str = field(default_factory=lambda: f"history-{uuid.uuid4().hex}")
    gate: Gate = field(default_factory=Gate)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    received: dict[str, Received] = field(default_factory=dict)
    last_status: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Fingerprint and startsAt to the status that was last new, and when."""
    news: list[Alert] = field(default_factory=list)
    """Every alert that had to be taken as new, in order."""
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.time = VirtualTime(self.client, self.tag)
        connection = Connection(self.client, tag=self.tag, clock=self.time.prelude)
        self.eyes = RedisStore(connection, owner="a test")
        self.numbers = itertools.count(1)
        library = Library({"drill": drill_playbook()})
        self.routes, self.advances = [], []
        for owner in BOTS:
            gated = GatedConnection(self.client, self.gate, tag=self.tag, clock=self.time.prelude)
            store = RedisStore(gated, owner=owner)
            cluster = MemoryCluster(self.time.now)
            clusters = {"test": cluster}
            self.routes.append(
                RouteAlerts(store, store, library, clusters, restrictions=restrictions(), wake=lambda *_: None)
            )
            advance = Recording(store, compiled_once, RULES)
            advance.received = self.received
            self.advances.append(advance)

    # --- what may happen ---------------------------------------------------------------------------------------------

    async def alert(self, workload: int, fingerprint: int, starts: int, status: str) -> None:
        alert = builders.alert(
            status,
            fingerprint=f"f{workload}{fingerprint}",
            starts_at=builders.START + starts,
            deployment=WORKLOADS[workload],
        )
        key = f"{alert.fingerprint}/{alert.starts_at}"
        before, since = self.last_status.get(key, ("", 0.0))
        is_new = before != status or self.time.now() - since >= REMEMBERED_SECONDS
        if is_new:
            self.last_status[key] = status, self.time.now()
            self.news.append(alert)
        if await self.eyes.accept([alert], truncated=0) != is_new:
            self.faults.append(f"{key} {status}: taken as {'a repeat' if is_new else 'new'}")

    async def route(self, bot: int, steps: int) -> None:
        await self._start(self.routes[bot](), steps)

    async def advance(self, bot: int, incident: int, steps: int) -> None:
        await self._start(self.advances[bot](f"INC-{incident}"), steps)

    async def resolve(self, incident: int) -> None:
        """A person closes it; the incident decides about that later, like a bot that finds that all is well."""
        event = Commanded(event_id=f"resolve/{next(self.numbers)}", command="resolve", user="U0LEA", text="done")
        await self.eyes.append(f"INC-{incident}", [event])

    async def note(self, incident: int) -> None:
        """As messages that were posted, it comes to open incidents and to closed ones, and leaves them so."""
        event = Commanded(event_id=f"note/{next(self.numbers)}", command="note", user="U0LEA", text="hm")
        await self.eyes.append(f"INC-{incident}", [event])

    async def reopen(self, incident: int) -> None:
        run = await self.eyes.load(f"INC-{incident}")
        if run is not None and not run.is_open:
            event = Commanded(event_id=f"reopen/{next(self.numbers)}", command="reopen", user="U0LEA", text="again")
            await self.eyes.reopen(run, event)

    async def pass_(self, seconds: int) -> None:
        await self.time.advance(seconds)

    async def step(self, number: int) -> None:
        if self.gate.waiting:
            await self.gate.let_on(number)

    async def settle(self) -> None:
        """Every bot ends what it has begun."""
        while self.gate.waiting:
            await self.gate.let_on(0)

    async def _start(self, work: Coroutine[Any, Any, Any], steps: int = 0) -> None:
        """Begin this, and take its first steps at once."""
        self.tasks.add(task := self.gate.start(work))
        await self.gate.settled()
        for _ in range(steps):
            if not task.done():
                await self.gate.let_on(-1)

    # --- and what must hold ------------------------------------------------------------------------------------------

    async def play(self, moves: Sequence[tuple[str, tuple[int | str, ...]]]) -> list[str]:
        await self.time.start()
        await self.alert(0, 1, 0, "firing")
        await self._come_to_rest()
        for name, arguments in moves:
            await getattr(self, name)(*arguments)
            if name in CHANGE_THE_INDEX:
                self.faults += await faults_now(self.client, self.tag)
            if self.faults:
                break
        await self._come_to_rest()
        self.faults += await faults_now(self.client, self.tag)
        self.faults += self._swallowed()
        await self.client.delete(*await self.client.keys(f"{{{self.tag}}}:*"))
        return self.faults

    async def _come_to_rest(self) -> None:
        """Every step that waits is taken, then the net is pulled until nothing is left to do."""
        await self.settle()
        for task in self.tasks:
            task.result()
        while True:
            await self._alone(self.routes[0]())
            await self.time.advance(2)
            pending = await self.eyes.pending(100)
            if not pending:
                break
            for incident in pending:
                await self._alone(self.advances[0](incident))
        for incident in await self.eyes.recent_incidents(100):
            if await self.eyes.inbox(incident):
                self.faults.append(f"{incident} has an inbox that nobody looks into")

    async def _alone(self, work: Coroutine[Any, Any, Any]) -> None:
        await self._start(work)
        await self.settle()

    def _swallowed(self) -> list[str]:
        """Alerts that fire and that no open incident held, not even for a moment."""
        fired = [alert for alert in self.news if alert.status == "firing"]
        received = [each for each in self.received.values() if each.alert.status == "firing"]
        faults = [f"{len(fired)} alerts fired, {len(received)} were received"] if len(fired) != len(received) else []
        for each in received:
            known = each.run.alerts[each.alert.fingerprint]
            is_late = known.starts_at > each.alert.starts_at
            if not is_late and not (each.run.is_open and known.status == "firing"):
                faults.append(f"{each.run.incident_id} swallowed {each.alert.dedupe_key}")
        return faults
