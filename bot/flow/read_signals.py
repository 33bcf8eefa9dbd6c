"""Read every wanted signal: one sample now, then windows from the history, probes beside them. Never raises.

Each source has its own deadline; one that fails or is late makes its signals unknown, with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import structlog

from bot.domain.change.world import Obj, World
from bot.domain.errors import BotError
from bot.domain.playbook.language import ProbeSignal, SignalSpec
from bot.domain.sampling import SampledSpec, metrics_of, read_window, span_of
from bot.domain.scrape import Scrape
from bot.domain.signal import Reading, unknown
from bot.domain.target import Target
from bot.domain.window import Window
from bot.flow.ports import ReadContext

DEADLINE_SECONDS = 5.0

log = structlog.get_logger()

# --- ports ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replica:
    """One pod that serves the engine, and where its own pages are: never through a Service, which picks any of them."""

    name: str
    uid: str
    address: str
    port: int = 8000
    role: Literal["target", "spare"] = "target"
    in_rotation: bool | None = None
    node: str = ""


class Worlds(Protocol):
    async def world(self, target: Target, *, incident_id: str) -> World:
        """As `Cluster.world`, the only part of the cluster that reading needs."""
        ...


class Replicas(Protocol):
    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        """The running replicas of the workload and of the incident's spare. Raise `ClusterError` on no answer."""
        ...


class Scraper(Protocol):
    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        """One scrape for each replica, in order; one that does not answer in time has `error` set instead of values."""
        ...


class History(Protocol):
    source: str

    async def sample(self, context: ReadContext) -> None:
        """Add the replicas' present values to the history, where the history does not grow by itself."""
        ...

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float
    ) -> Sequence[Scrape]:
        """What is known of these metrics in this time. Raise `SourceError` or `ClusterError` when nobody answers."""
        ...


class PodLogs(Protocol):
    async def read(
        self, namespace: str, pod: str, *, previous: bool = False, tail_lines: int | None = None
    ) -> str | None:
        """The log of the pod's engine container: its first MiB, or its last lines.

        None when there is none: no such container yet, or none before this one. Raise `ClusterError` on no answer.
        """
        ...


class PodFinder(Protocol):
    async def pods_labelled(self, labels: Mapping[str, str]) -> Sequence[Obj]:
        """Pods of any namespace with these labels. Raise `ClusterError` on no answer or when it is not allowed."""
        ...


class Probe(Protocol):
    async def __call__(self, question: Question) -> Reading:
        """Answer within the reader's deadline. Raise `BotError` when the source does not answer."""
        ...


@dataclass(frozen=True)
class Question:
    """One probe asked by one state. The world is read once for all probes of a reading."""

    name: str
    spec: ProbeSignal
    context: ReadContext
    at: float
    world: Callable[[], Awaitable[World]]


# --- reading ----------------------------------------------------------------------------------------------------------


class ReadSignals:
    """The `Signals` port."""

    def __init__(
        self,
        *,
        history: History,
        probes: Mapping[str, Probe],
        cluster: Worlds,
        now: Callable[[], float],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._history, self._probes, self._cluster, self._now = history, probes, cluster, now
        self._deadline = deadline_seconds

    async def sample(self, context: ReadContext) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                await self._history.sample(context)
        except (BotError, TimeoutError) as error:
            # The gap that this leaves in the history is what later readings must see.
            log.warning("sample.failed", target=context.target.key, reason=self._reason(error, self._history.source))

    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        sampled = {name: spec for name, spec in wanted.items() if not isinstance(spec, ProbeSignal)}
        probed = {name: spec for name, spec in wanted.items() if isinstance(spec, ProbeSignal)}
        world = _ReadOnce(lambda: self._cluster.world(context.target, incident_id=context.incident_id))
        windows, answers = await asyncio.gather(
            self._read_windows(sampled, context),
            asyncio.gather(*(self._ask(name, spec, context, world) for name, spec in probed.items())),
        )
        await world.close()
        return {**windows, **{reading.name: reading for reading in answers}}

    async def _read_windows(self, wanted: Mapping[str, SampledSpec], context: ReadContext) -> dict[str, Reading]:
        if not wanted:
            return {}
        spans, readings = _spans(wanted, context, at=self._now())
        try:
            async with asyncio.timeout(self._deadline):
                await self._history.sample(context)
                now = self._now()
                metrics = frozenset[str]().union(*(metrics_of(wanted[name]) for name in spans))
                longest = max(spans.values(), default=0.0)
                scrapes = await self._history.between(context, metrics, now - longest, now)
        except (BotError, TimeoutError) as error:
            reason = self._reason(error, self._history.source)
            return readings | {name: unknown(name, reason, at=self._now()) for name in spans}
        for name, span in spans.items():
            window = Window(now - span, now)
            reading = read_window(name, wanted[name], scrapes, window=window, picked=context.picked)
            readings[name] = reading.model_copy(update={"source": self._history.source})
        return readings

    async def _ask(self, name: str, spec: ProbeSignal, context: ReadContext, world: _ReadOnce) -> Reading:
        probe = self._probes.get(spec.probe)
        if probe is None:
            return unknown(name, f"no source for '{spec.probe}' is configured", at=self._now())
        question = Question(name, spec, context, self._now(), world.get)
        try:
            async with asyncio.timeout(self._deadline):
                return await probe(question)
        except (BotError, TimeoutError) as error:
            return unknown(name, self._reason(error, spec.probe), at=self._now(), source=spec.probe)
        except Exception as error:
            # One probe's own fault must not take the other readings with it, nor stop the run.
            log.exception("probe.failed", probe=spec.probe, target=context.target.key)
            reason = f"'{spec.probe}' itself failed: {type(error).__name__}"
            return unknown(name, reason, at=self._now(), source=spec.probe)

    def _reason(self, error: BotError | TimeoutError, source: str) -> str:
        if isinstance(error, TimeoutError):
            return f"{source} did not answer within {self._deadline:g} s"
        return f"{source}: {error}"


class _ReadOnce:
    """The world, read at most once and shared by those who wait; one who gives up leaves it to the others."""

    def __init__(self, read: Callable[[], Awaitable[World]]) -> None:
        self._read = read
        self._task: asyncio.Future[World] | None = None

    async def get(self) -> World:
        if self._task is None:
            self._task = asyncio.ensure_future(self._read())
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def _spans(
    wanted: Mapping[str, SampledSpec], context: ReadContext, *, at: float
) -> tuple[dict[str, float], dict[str, Reading]]:
    """Each signal's window in seconds, and a reading for those whose window is no duration."""
    spans: dict[str, float] = {}
    faulty: dict[str, Reading] = {}
    for name, spec in wanted.items():
        try:
            spans[name] = span_of(spec.over, context.settings)
        except ValueError as error:
            faulty[name] = unknown(name, str(error), at=at)
    return spans, faulty
