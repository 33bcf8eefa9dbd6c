"""Faults on demand and the journal of mutations: what tests ask of this server beyond Kubernetes.

A fault meets only clients under test, never the simulated kubelets; each is used up by the requests that it meets.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bot.sandbox.kubernetes.access import Attributes

Obj = dict[str, Any]


class Fault(BaseModel):
    """`match` is `VERB resource`, e.g. `PATCH deployments`, `POST pods/eviction`, `list pods`, `* *`."""

    model_config = ConfigDict(extra="forbid")

    match: str = Field(pattern=r"^\S+ \S+$")
    kind: Literal["500", "403", "drop", "lost_reply", "delay"]
    count: int = Field(default=1, ge=1)
    seconds: float = Field(default=1.0, ge=0)

    def meets(self, method: str, attributes: Attributes) -> bool:
        verb, _, resource = self.match.partition(" ")
        return verb in ("*", method, attributes.verb) and resource in ("*", attributes.full_resource)


FAULTS: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


class Faults:
    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, faults: list[Fault]) -> None:
        self._waiting.extend(faults)

    def clear(self) -> None:
        self._waiting.clear()

    def waiting(self) -> list[Obj]:
        return [fault.model_dump() for fault in self._waiting]

    def take(self, method: str, attributes: Attributes) -> Fault | None:
        """The first fault that meets this request, one use of it spent."""
        for index, fault in enumerate(self._waiting):
            if fault.meets(method, attributes):
                left = fault.count - 1
                self._waiting[index : index + 1] = [fault.model_copy(update={"count": left})] if left else []
                return fault
        return None


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
