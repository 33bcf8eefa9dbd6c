"""GPU health from the exporters on the replicas' nodes, NVIDIA's or AMD's, and from what nodes and events say.

A fault is a change within the incident's time, not a register that has been set for months. What the exporter does not
export is unknown: nothing readable never means healthy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import ClusterError, SourceError
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.flow.ports import Finder, PodPages, ProbeRequest, SampleStore
from bot.probes.answers import answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe, Sources
from bot.probes.gpu import amd, nvidia
from bot.probes.gpu.exporter_pods import DEADLINE_SECONDS, Exporter, exporters_by_node
from bot.probes.gpu.inside import InsideGpus
from bot.probes.gpu.node_events import about_nodes, judge_events
from bot.probes.gpu.nodes import judge_node
from bot.probes.gpu.verdict import BEFORE_SECONDS, SOURCE, Verdict, any_of


@dataclass(frozen=True)
class GpuHealth:
    healthy: bool | None
    fault: bool | None
    thermal: bool | None
    detail: str


class ReadGpuHealth:
    """The `gpu_health` probe. Its history of registers is kept in the sample store, one key a node."""

    def __init__(
        self,
        *,
        finder: Finder,
        pages: PodPages,
        store: SampleStore,
        now: Callable[[], float],
        inside: InsideGpus | None = None,
        amd_labels: Mapping[str, str] | None = None,
    ) -> None:
        """`amd_labels`: where AMD's exporter carries other labels than those known here."""
        self._finder, self._pages, self._store, self._now = finder, pages, store, now
        self._inside, self._amd_labels = inside, amd_labels

    async def __call__(self, request: ProbeRequest) -> Reading:
        world = await request.world()
        if failed := unreadable(request, world, "pods"):
            return failed
        replicas: dict[str, list[Obj]] = defaultdict(list)
        for pod in pods_asked_for(request, world):
            if node := dig(pod, "spec", "nodeName"):
                replicas[node].append(pod)
        if not replicas:
            return no_answer(request, "no replica is on a node")
        exporters, said = await asyncio.gather(exporters_by_node(self._finder, self._amd_labels), self._said(request))
        nodes = {name_of(node): node for node in world.nodes}
        gpus = await asyncio.gather(
            *(self._gpus(node, exporters.get(node), pods, request) for node, pods in replicas.items())
        )
        start = request.context.began_at - BEFORE_SECONDS
        judged = {
            node: [judge_node(node, nodes.get(node), start), *said(node), *found]
            for node, found in zip(replicas, gpus, strict=True)
        }
        return _told(request, judged, replicas)

    async def _said(self, request: ProbeRequest) -> Callable[[str], list[Verdict]]:
        """What events say of a node. They only add: without them the exporters and the nodes still speak."""
        start = request.context.began_at - BEFORE_SECONDS
        try:
            events = about_nodes(await self._finder.node_events())
        except ClusterError as error:
            note = f"events of nodes cannot be read: {error}"
            return lambda node: [Verdict(node, False, False, (note,))]
        return lambda node: [judge_events(node, events.get(node, ()), start)]

    async def _gpus(
        self, node: str, exporter: Exporter | None, pods: Sequence[Obj], request: ProbeRequest
    ) -> list[Verdict]:
        """By the node's exporter; where there is none that answers, by the replicas themselves if that is allowed."""
        try:
            return await self._by_exporter(node, exporter, [name_of(pod) for pod in pods], request)
        except SourceError as error:
            if self._inside is None:
                return [Verdict(node, None, None, (str(error),))]
        key = f"gpus/{request.context.target.cluster}/{node}"
        return await self._inside.judge(key, pods, request.context.began_at - BEFORE_SECONDS)

    async def _by_exporter(
        self, node: str, exporter: Exporter | None, pods: Sequence[str], request: ProbeRequest
    ) -> list[Verdict]:
        """Raise `SourceError` where the exporter says nothing of these pods' GPUs."""
        if exporter is None:
            raise SourceError(f"no exporter of NVIDIA or AMD on {node}")
        page = await self._page(node, exporter)
        gpus = (amd if exporter.is_amd else nvidia).readings_of(page, pods)
        if not gpus:
            raise SourceError(f"{node}: no GPU on the exporter's page")
        found, start = list[Verdict](), request.context.began_at - BEFORE_SECONDS
        key, now = f"gpus/{request.context.target.cluster}/{node}", self._now()
        earlier = await self._store.between(key, start, now)
        await self._store.add(key, [Scrape(replica=node, at=now, ranks=gpus)])
        fastest = max((values.get("sm_clock", 0.0) for values in gpus.values()), default=0.0)
        for gpu, values in gpus.items():
            before = [scrape.ranks[gpu] for scrape in earlier if gpu in scrape.ranks]
            reaches_back = bool(earlier) and earlier[0].at <= start + 60
            where = f"{node}/{gpu}"
            found.append(
                amd.judge_gpu(where, values, before, reaches_back=reaches_back)
                if exporter.is_amd
                else nvidia.judge_gpu(where, values, before, fastest=fastest, reaches_back=reaches_back)
            )
        return found

    async def _page(self, node: str, exporter: Exporter) -> str:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._pages.read(exporter.page)
        except TimeoutError as error:
            raise SourceError(f"{node}: {exporter.name} did not answer within {DEADLINE_SECONDS:g} s") from error
        except SourceError as error:
            raise SourceError(f"{node}: {exporter.name}: {error}") from error


def _told(
    request: ProbeRequest, by_node: Mapping[str, Sequence[Verdict]], replicas: Mapping[str, Sequence[Obj]]
) -> Reading:
    verdicts = [verdict for found in by_node.values() for verdict in found]
    fault = any_of(*(verdict.fault for verdict in verdicts))
    thermal = any_of(*(verdict.thermal for verdict in verdicts))
    trouble = any_of(fault, thermal)
    notes = tuple(dict.fromkeys(note for verdict in verdicts for note in verdict.notes))
    detail = "; ".join(notes) or "no fault and no thermal slowdown"
    if fault is None and thermal is None:
        return no_answer(request, "; ".join(notes), source=SOURCE)
    healthy = None if trouble is None else not trouble
    parts = GpuHealth(healthy=healthy, fault=fault, thermal=thermal, detail=detail[:600])
    missing = dict.fromkeys(PROBE.kinds, "; ".join(notes))
    reading = answer(request, parts, missing=missing, detail=detail[:900], source=SOURCE)
    return reading.model_copy(update={"by_replica": _healthy_replicas(by_node, replicas)})


def _healthy_replicas(
    by_node: Mapping[str, Sequence[Verdict]], replicas: Mapping[str, Sequence[Obj]]
) -> dict[str, float]:
    """1 for replicas on healthy nodes, 0 on others; a replica of which this is not known is absent."""
    found: dict[str, float] = {}
    for node, verdicts in by_node.items():
        trouble = any_of(*(verdict.fault for verdict in verdicts), *(verdict.thermal for verdict in verdicts))
        if trouble is not None:
            found |= dict.fromkeys(map(name_of, replicas[node]), float(not trouble))
    return found


def _reader(sources: Sources) -> ReadGpuHealth:
    shell = sources.gpu_shell
    inside = None if shell is None else InsideGpus(shell, sources.samples, sources.now)
    return ReadGpuHealth(
        finder=sources.finder, pages=sources.pages, store=sources.samples, now=sources.now,
        inside=inside, amd_labels=sources.amd_labels,
    )  # fmt: skip


PROBE = Probe(
    name="gpu_health",
    help="Whether the GPUs and nodes under the replicas are sound now.",
    answer=GpuHealth,
    read=_reader,
)
