"""The bot's own history: scrapes every replica, stores it in the sample store, reads windows from there.

A replica that does not answer is recorded as such, never as zero.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from bot.domain.cluster.objects import CANARY_LABEL, dig, is_going_away, labels_of, name_of, namespace_of, uid_of
from bot.domain.cluster.rotation import is_in_rotation, whole_replica
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import has_a_page_for_each_engine, serves, workers_serve
from bot.domain.flags.engine_port import engine_port
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.target import Target
from bot.domain.signals.load_log import last_slot, load_point
from bot.domain.signals.scrape import Scrape
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import LoadLog, ReadContext, Replicas, SampleStore, Scraper, Signals, Snapshots
from bot.flow.reconcile import logged

log = structlog.get_logger()

MAX_WORKLOADS = 64
"""A scrape takes 2 ms of processor time for each replica, and as much for its workload: an eighth of a core where each
has four replicas. With twice as many, an idle bot with 5,000 open incidents needs 3 % of a core and not 1.8."""
ROUNDS_KEPT = 10
"""Where there are more, so many rounds sample the same ones: reading thousands of keys costs 10 ms."""
KEYS_KEPT = 20_000
CLOSEST_SECONDS = 1.0
"""Two samples closer than this are the same; quantiles would count that moment twice."""


class SampledHistory:
    """The `History` port over direct scrapes."""

    source = "direct scrapes"
    has_whole_pages = True

    def __init__(
        self,
        *,
        replicas: Replicas,
        scraper: Scraper,
        store: SampleStore,
        now: Callable[[], float],
        loads: LoadLog | None = None,
    ) -> None:
        self._replicas, self._scraper, self._store, self._now = replicas, scraper, store, now
        self._loads = loads
        self._slot_kept: dict[str, float] = {}
        self._sampled_at: dict[str, float] = {}
        self._sampling: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def sample(self, context: ReadContext) -> None:
        workload = context.target.key
        # A caller that arrives while a sample is taken waits for that one.
        async with self._sampling[workload]:
            if self._now() - self._sampled_at.get(workload, 0.0) < CLOSEST_SECONDS:
                return
            found = await self._replicas.replicas(context.target, incident_id=context.incident_id)
            if found:
                await self._store.add(workload, await self._scraper.scrape(found))
            is_first = workload not in self._sampled_at
            self._sampled_at[workload] = self._now()
            if not is_first:
                # The first sample is part of an incident's first reading, which people wait for.
                await self._keep_load(workload)

    async def _keep_load(self, workload: str) -> None:
        """Once a slot: stores the load that its samples show, before they expire."""
        slot = last_slot(self._now())
        if self._loads is None or self._slot_kept.get(workload) == slot.start:
            return
        point = load_point(await self._store.between(workload, slot.start, slot.end), slot)
        if point is not None:
            await self._loads.add(workload, point)
        self._slot_kept[workload] = slot.start

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        return await self._store.between(context.target.key, start, end)


async def _always() -> bool:
    return True


class KeepSampling:
    """Samples workloads continuously, so that an incident finds a history from before it opened."""

    def __init__(
        self,
        signals: Signals,
        contexts: Callable[[], Awaitable[Iterable[ReadContext]]],
        *,
        every_seconds: float = 5.0,
        may_sample: Callable[[], Awaitable[bool]] = _always,
    ) -> None:
        """`may_sample`: whether it is this process's turn.

        What a workload may keep is limited: with samples of two replicas of the bot it would reach half as far back.
        """
        self._signals, self._contexts, self._every = signals, contexts, every_seconds
        self._may_sample = may_sample

    async def run(self) -> None:
        """Until cancelled, a round each `every_seconds`; a round that takes longer is followed by the next at once."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.sample_all()
            await asyncio.sleep(max(0.0, began + self._every - loop.time()))

    async def sample_all(self) -> None:
        await logged(self._round(), "sampling.skipped")

    async def _round(self) -> None:
        contexts = await self._contexts()
        if await self._may_sample():
            await asyncio.gather(*(self._sample(context) for context in contexts))

    async def _sample(self, context: ReadContext) -> None:
        try:
            await self._signals.sample(context)
        except Exception:
            # A bug of ours about one workload must not silently end the sampling of all.
            log.exception("sampling.failed", target=context.target.key)


class OpenTargets(Protocol):
    async def open_targets(self) -> Mapping[str, str]:
        """Target key to the id of its open incident."""

    async def incidents_reading(self) -> frozenset[str]:
        """The incidents that wait for a reading or for what they watch."""


class LeftOut:
    """The workloads that too many others keep from being scraped all the time."""

    def __init__(self, *, is_recorded_elsewhere: bool = False) -> None:
        """`is_recorded_elsewhere`: a Prometheus keeps the history of all workloads."""
        self._is_recorded_elsewhere = is_recorded_elsewhere
        self._keys, self._of = frozenset[str](), 0

    @property
    def count(self) -> int:
        return len(self._keys)

    def are(self, keys: Iterable[str], *, of: int) -> None:
        if not self._is_recorded_elsewhere:
            self._keys, self._of = frozenset(keys), of

    def why(self, target: Target) -> str:
        """Why the target has few samples; empty if it is scraped all the time."""
        if target.key not in self._keys:
            return ""
        return (
            f"it is scraped only when its incident reads: {self._of} workloads have an open incident or are in the "
            f"settings, and {MAX_WORKLOADS} are scraped all the time"
        )

    def notices(self) -> Mapping[str, str]:
        if not self._keys:
            return {}
        return {"sampling": f"{self.count} of {self._of} workloads are scraped only when their incidents read"}


class SampledWorkloads:
    """The workloads of one cluster to sample: those that the settings name, and those with an open incident."""

    def __init__(
        self,
        runs: OpenTargets,
        named: Iterable[Target],
        is_ours: Callable[[Target], bool],
        left_out: LeftOut | None = None,
    ) -> None:
        self._runs, self._named, self._is_ours = runs, {target.key: "" for target in named}, is_ours
        self._left_out = left_out or LeftOut()
        self._known: dict[str, bool] = {}
        self._is_bounded = False
        self._kept: list[ReadContext] = []
        self._rounds_left = 0

    async def __call__(self) -> list[ReadContext]:
        if self._rounds_left > 0:
            self._rounds_left -= 1
            return self._kept
        incidents = {**self._named, **await self._runs.open_targets()}
        readable = [(key, incident) for key, incident in sorted(incidents.items()) if self._is_readable(key)]
        if len(readable) > MAX_WORKLOADS and not self._is_bounded:
            log.warning("sampling.bounded", workloads=len(readable), sampled=MAX_WORKLOADS)
        self._is_bounded = len(readable) > MAX_WORKLOADS
        if self._is_bounded:
            reading = await self._runs.incidents_reading()
            readable.sort(key=lambda one: (one[0] not in self._named, one[1] not in reading))
            self._rounds_left = ROUNDS_KEPT - 1
        self._left_out.are((key for key, _ in readable[MAX_WORKLOADS:]), of=len(readable))
        self._kept = [
            ReadContext(target=Target.of_key(key), incident_id=incident, opened_at=0.0, picked={}, settings={})
            for key, incident in readable[:MAX_WORKLOADS]
        ]
        return self._kept

    def _is_readable(self, key: str) -> bool:
        """Remembered: with thousands of open incidents, parsing their keys took most of the time of a round."""
        if key not in self._known:
            if len(self._known) >= KEYS_KEPT:
                self._known.clear()
            target = Target.of_key(key)
            self._known[key] = target.kind != "Unknown" and self._is_ours(target)
        return self._known[key]


class SnapshotReplicas:
    """The `Replicas` port over the snapshot that planning uses too."""

    def __init__(self, cluster: Snapshots) -> None:
        self._cluster = cluster

    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        snapshot = await self._cluster.snapshot(target, incident_id=incident_id)
        if "pods" in snapshot.unreadable:
            raise ClusterError(f"pods cannot be listed: {snapshot.unreadable['pods']}")
        return replicas_in(snapshot)


PAGE_EACH = "each engine has its own page (--data-parallel-multi-port-external-lb), and the bot reads one page of a pod"


def replicas_in(snapshot: ClusterSnapshot) -> tuple[Replica, ...]:
    """Every running pod of the workload and of our canary that serves, has an address and is not terminating."""
    is_read = "endpoint_slices" not in snapshot.unreadable
    return tuple(
        Replica(
            name=name_of(pod),
            uid=uid_of(pod),
            address=dig(pod, "status", "podIP"),
            port=engine_port(pod),
            role="canary" if CANARY_LABEL in labels_of(pod) else "target",
            in_rotation=is_in_rotation(pod, snapshot) if is_read else None,
            node=dig(pod, "spec", "nodeName") or "",
            namespace=namespace_of(pod),
            workers=_workers_that_serve(pod, snapshot),
            unread=PAGE_EACH if has_a_page_for_each_engine(pod) else "",
        )
        for pod in snapshot.pods
        if serves(pod)
        and dig(pod, "status", "phase") == "Running"
        and dig(pod, "status", "podIP")
        and not is_going_away(pod)
    )


def _workers_that_serve(pod: Obj, snapshot: ClusterSnapshot) -> tuple[tuple[str, str], ...]:
    group = whole_replica(snapshot, pod)
    if len(group) == 1 or not workers_serve(pod):
        return ()
    return tuple((name_of(one), dig(one, "status", "podIP") or "") for one in group if not serves(one))
