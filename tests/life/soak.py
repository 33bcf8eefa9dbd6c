"""Days of one bot in virtual time over a real Redis: incidents come, are answered, close and expire.

`Soak.day` says how many keys and entries there are afterwards. Redis has no virtual time, so what has a time to live
is removed here, once that time has passed.
"""

from __future__ import annotations

import copy
import random
import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis.asyncio as aioredis

from bot.adapters.redis.store import StoreLimits
from bot.adapters.redis.sweep import RedisSweep
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.flow.sweep_storage import SweepStorage
from tests import builders
from tests.fakes.signals import Script
from tests.flow.harness import APPROVERS, CHANNEL, LEAD, Bot, Scene
from tests.flow.scenes import drill_scene

DAY = 86_400.0
STEP_SECONDS, MAX_STEP_SECONDS = 1.0, 600.0
RETENTION_SECONDS = int(2 * DAY)
PER_INCIDENT = ("run", "inbox", "timeline", "effects", "known", "shown", "claims", "failures", "watch")


@dataclass(frozen=True)
class Left:
    """What the storage holds at the end of a day."""

    day: int
    opened: int
    keys: Counter[str]
    """Keys by kind."""
    entries: Counter[str]
    """Entries of what is shared by all incidents, by key."""
    rss_megabytes: float

    @property
    def of_incidents(self) -> int:
        return sum(count for kind, count in self.keys.items() if kind in PER_INCIDENT)


@dataclass
class Soak:
    scene: Scene
    bot: Bot
    sweep: SweepStorage
    rng: random.Random
    trouble: Script
    healthy: Any
    """What the cluster held at first."""
    opened: int = 0
    _ends: dict[str, float] = field(default_factory=dict)
    """When a key's time to live ends, in virtual time."""
    _pressed: set[str] = field(default_factory=set)

    async def day(self, number: int, incidents: int) -> Left:
        start = self.scene.time.now()
        # Evenly, so that the breaker of the one workload that is changed stays closed.
        for place in range(incidents):
            await self._idle_until(start + (place + self.rng.uniform(0, 0.5)) / incidents * (DAY - 3600))
            await self._incident()
        await self._idle_until(start + DAY)
        await self.sweep.once()
        self._forget()
        return await self._left(number)

    async def _idle_until(self, at: float) -> None:
        while (now := self.scene.time.now()) < at:
            await self.scene.time.advance(min(at - now, MAX_STEP_SECONDS * 6))
            await self._expire()
            await self.bot.turn()

    async def _incident(self) -> None:
        """One alert fires until its incident is over; every fourth needs people and changes something."""
        self.opened += 1
        needs_people = self.opened % 4 == 0
        self.scene.script = self.trouble if needs_people else lambda: {"thrash": 0.0, "canary_room": 0.0}
        name = "llm" if needs_people else f"llm-{self.opened}"
        alert = builders.alert(fingerprint=f"f{self.opened}", starts_at=self.scene.time.now(), deployment=name)
        await self._send(alert)
        while still_open := await self.scene.eyes.open_incidents():
            for run in await self.scene.eyes.load_all(still_open):
                await self._press(run)
            await self.bot.turn()
            await self.scene.time.advance(STEP_SECONDS)
        await self._send(alert.model_copy(update={"status": "resolved"}))
        self.scene.cluster.objects = copy.deepcopy(self.healthy)

    async def _send(self, alert: Alert) -> None:
        self.scene.alerts.append(alert)
        await self.bot.turn()

    async def _press(self, run: Run) -> None:
        request, question = run.open_request, run.open_question
        presses = []
        if request is not None and f"request:{request.request_id}" in run.in_slack.places:
            fields = {
                "action": "approve",
                "about": request.request_id,
                "digest": request.digest,
                "reason": "users wait",
            }
            presses += [builders.press(user=user, **fields) for user in APPROVERS[: request.policy.needed]]
        if question is not None and f"question:{question.question_id}" in run.in_slack.places:
            value = "cap" if "cap" in question.choices else next(iter(question.choices))
            presses.append(builders.press(action="choose", about=question.question_id, value=value, user=LEAD))
        for press in presses:
            press_id = f"{run.incident_id}/{press.about}/{press.user}"
            if press_id not in self._pressed:
                self._pressed.add(press_id)
                sent = press.model_copy(update={"press_id": press_id, "channel": CHANNEL})
                await self.bot.receive.press(sent, run.incident_id)

    async def _expire(self) -> None:
        client, now = self.scene.client, self.scene.time.now()
        names = [str(name) async for name in client.scan_iter(count=1000)]
        reading = client.pipeline(transaction=False)
        for name in names:
            reading.ttl(name)
        found = dict(zip(names, await reading.execute(), strict=True))
        ends = {name: min(self._ends.get(name, now + ttl), now + ttl) for name, ttl in found.items() if ttl >= 0}
        if over := [name for name, at in ends.items() if at <= now]:
            await client.delete(*over)
        self._ends = {name: at for name, at in ends.items() if at > now}

    def _forget(self) -> None:
        """What people and the simulators remember is not the bot's."""
        self.scene.team.reset()
        self.scene.stage.points.clear()
        self.scene.pages.clear()
        self.scene.cluster.applied.clear()
        self.scene.cluster.sent.clear()
        self._pressed.clear()

    async def _left(self, number: int) -> Left:
        client = self.scene.client
        names = [str(name) async for name in client.scan_iter(count=1000)]
        kinds = {name: name.partition("}:")[2].partition(":")[0] for name in names}
        shared = [name for name, kind in kinds.items() if kind not in PER_INCIDENT]
        entries: Counter[str] = Counter()
        sizes: Mapping[str, Callable[[str], Awaitable[int]]] = {
            "zset": client.zcard, "list": client.llen, "hash": client.hlen, "set": client.scard, "stream": client.xlen,
        }  # fmt: skip
        for name in shared:
            kind = str(await client.type(name))
            if kind != "string":
                entries[kinds[name]] += int(await sizes[kind](name))
        return Left(number, self.opened, Counter(kinds.values()), entries, rss_megabytes())


async def soak_of(client: aioredis.Redis, tag: str, seed: int) -> Soak:
    scene = await drill_scene(client, tag)
    scene.alerts.clear()
    scene.people_are_there = False  # they press here, in any of the incidents
    scene.cards, scene.limits = (10, 60.0), StoreLimits(retention_seconds=RETENTION_SECONDS)
    bot = Bot(scene, "bot")
    sweep = SweepStorage(bot.store, RedisSweep(scene.eyes._redis))
    return Soak(scene, bot, sweep, random.Random(seed), scene.script, copy.deepcopy(scene.cluster.objects))


def rss_megabytes() -> float:
    """Of this process now, not its highest."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
