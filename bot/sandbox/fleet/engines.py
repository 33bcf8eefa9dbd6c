"""What runs in the containers of the fleet: engines of `simulated`, or real ones of `vllm_process`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engine import Sequence
from bot.sandbox.fleet.pod_spec import PodSpec


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one replica; it belongs to the pod, so a replacement is healthy."""

    kind: Literal["none", "small_pool", "slow", "stuck", "metrics_down", "dies"] = "none"
    blocks: int = 32
    factor: float = 4.0
    after: float = 20.0
    """dies: how long the engine lives each time."""


class EngineServer(Protocol):
    """One engine that serves, for its container, the gateway and the faults."""

    name: str
    exited: asyncio.Future[int]
    """Its exit code, or `START_AGAIN`."""

    @property
    def running(self) -> int:
        """How many requests it works on."""

    def send(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | str:
        """The accepted request, or why not: `shed` (503), `empty` (answered without a token), `down` (no answer)."""

    def take_ended(self) -> list[Sequence]:
        """Requests that ended since the last call, complete or cut."""

    def advance(self, until: float) -> None:
        """Let its time pass; a real engine needs nobody for that."""

    async def state(self) -> dict[str, Any]:
        """Figures for people and tests, by name."""

    def refusal(self, fault: str) -> str:
        """Why this engine cannot have a fault of this kind; empty if it can."""

    def suffer(self, fault: Fault) -> bool:
        """Apply `fault` from now on. False if it ends for that, and must be started again with the fault."""

    def die(self, cause: str, now: float) -> None:
        """The engine dies, and its API server exits by itself."""

    async def terminate(self, now: float) -> None:
        """SIGTERM; returns when it has exited."""

    def kill(self) -> None:
        """SIGKILL."""

    async def close(self) -> None:
        """Release what is left after the exit."""


START_AGAIN = -1
"""No exit code: the container goes on, and starts its engine again with its present fault."""


class Engines(Protocol):
    async def start(self, spec: PodSpec, address: str, log: ContainerLog, fault: Fault) -> EngineServer | int:
        """The engine of this container once it serves, or the exit code of one that failed to start."""

    async def close(self) -> None: ...
