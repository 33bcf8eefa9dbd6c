"""The messenger's record and pace in memory, and a clock that moves only when the test moves it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Literal

from bot.adapters.slack.outbound.shown import Pace, Shown
from bot.flow.ports.people import Draw


class MemoryShownStore:
    """`ShownStore`; `saved` has the order in which slots were written."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.pace: Pace = pace or MemoryPace()
        self.slots: dict[str, dict[str, Shown]] = {}
        self.saved: list[tuple[str, Shown]] = []

    async def load(self, incident_id: str) -> Mapping[str, Shown]:
        return dict(self.slots.get(incident_id, {}))

    def read(self, incident_id: str, stored: Mapping[str, str]) -> Mapping[str, Shown]:
        return {slot: Shown(**json.loads(record)) for slot, record in stored.items()}

    def written(self, shown: Mapping[str, Shown]) -> Mapping[str, str]:
        return {slot: json.dumps(dataclasses.asdict(each)) for slot, each in shown.items()}

    async def save(self, incident_id: str, shown: Mapping[str, Shown]) -> None:
        self.slots.setdefault(incident_id, {}).update(shown)
        self.saved += shown.items()

    async def attempt(self, incident_id: str, shown: Mapping[str, Shown], *, channel: str) -> float:
        wait = await self.pace.take("post", channel)
        if not wait:
            await self.save(incident_id, shown)
        return wait


class MemoryPace:
    """`Pace` without limits until `waits` holds the answers to give for a kind."""

    def __init__(self) -> None:
        self.waits: dict[str, list[float]] = {}
        self.taken: list[tuple[str, str]] = []

    async def take(self, kind: Literal["post", "update", "home", "card"], key: str) -> float:
        waits = self.waits.get(kind)
        wait = waits.pop(0) if waits else 0.0
        if not wait:
            self.taken.append((kind, key))
        return wait


class MemoryPeople:
    """`Memory` of accounts and groups."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, float]] = {}

    async def keep(self, what: str, answer: str, *, at: float) -> None:
        self.answers[what] = (answer, at)

    async def last(self, what: str) -> tuple[str, float] | None:
        return self.answers.get(what)


class MemoryViewers:
    """`Viewers` in memory."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.shown: dict[str, str] = {}

    async def opened(self, user: str, at: float) -> None:
        self.at[user] = at

    async def since(self, at: float) -> Mapping[str, str]:
        users = sorted(self.at, key=lambda user: -self.at[user])
        return {user: self.shown.get(user, "") for user in users if self.at[user] > at}

    async def published(self, user: str, content: str) -> None:
        self.shown[user] = content


def file_of(content: bytes) -> Draw:
    """A file that is ready."""

    async def read() -> bytes:
        return content

    return read


class MovableClock:
    """`Clock` that stands still."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += seconds
