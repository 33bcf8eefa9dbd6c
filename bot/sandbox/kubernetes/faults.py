"""Faults on demand and the journal of mutations: the additions of this server for tests.

A fault applies only to clients under test, never to the simulated kubelets; each is used up by the requests that it
matches.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bot.sandbox.kubernetes.access import Attributes

Obj = dict[str, Any]


class Fault(BaseModel):
    """`match` is `VERB resource`, e.g. `PATCH deployments`, `POST pods/eviction`, `list pods`, `* *`.

    `delay` and `late` are carried out even if the client has gone: `late` right before the next request that it meets.
    """

    model_config = ConfigDict(extra="forbid")

    match: str = Field(pattern=r"^\S+ \S+$")
    kind: Literal["500", "403", "drop", "lost_reply", "delay", "late"]
    count: int = Field(default=1, ge=1)
    seconds: float = Field(default=1.0, ge=0)

    def meets(self, method: str, attributes: Attributes) -> bool:
        verb, _, resource = self.match.partition(" ")
        return verb in ("*", method, attributes.verb) and resource in ("*", attributes.full_resource)


FAULTS: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


@dataclass(frozen=True)
class _Held:
    fault: Fault
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Faults:
    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self._held: list[_Held] = []

    def add(self, faults: list[Fault]) -> None:
        self._waiting.extend(faults)

    def clear(self) -> None:
        self._waiting.clear()

    def waiting(self) -> list[Obj]:
        return [fault.model_dump() for fault in self._waiting]

    def take(self, method: str, attributes: Attributes) -> Fault | None:
        """The first fault that matches this request; uses it once."""
        for index, fault in enumerate(self._waiting):
            if fault.meets(method, attributes):
                left = fault.count - 1
                self._waiting[index : index + 1] = [fault.model_copy(update={"count": left})] if left else []
                return fault
        return None

    @contextlib.asynccontextmanager
    async def held(self, fault: Fault) -> AsyncIterator[None]:
        """Enter once another request that matches the fault has arrived."""
        held = _Held(fault)
        self._held.append(held)
        try:
            await held.may_go.wait()
            yield
        finally:
            held.is_over.set()

    async def finish_held(self, method: str, attributes: Attributes) -> None:
        """Before this request, carries out the held requests that match the same fault."""
        due = [held for held in self._held if held.fault.meets(method, attributes)]
        self._held = [held for held in self._held if held not in due]
        for held in due:
            held.may_go.set()
            await held.is_over.wait()


@dataclass(frozen=True)
class Mutation:
    """One mutating request that succeeded."""

    time: float
    verb: str
    path: str
    body: Any
    is_dry_run: bool
    agent: str

    def as_json(self) -> Obj:
        return {
            "time": self.time,
            "verb": self.verb,
            "path": self.path,
            "body": self.body,
            "dryRun": self.is_dry_run,
            "userAgent": self.agent,
        }


class Journal:
    def __init__(self) -> None:
        self._mutations: list[Mutation] = []

    def note(self, *, verb: str, path: str, body: Any, is_dry_run: bool, agent: str) -> None:
        self._mutations.append(Mutation(time.time(), verb, path, body, is_dry_run, agent))

    def clear(self) -> None:
        self._mutations.clear()

    def as_json(self) -> list[Obj]:
        return [mutation.as_json() for mutation in self._mutations]


async def delay(fault: Fault) -> None:
    await asyncio.sleep(fault.seconds)
