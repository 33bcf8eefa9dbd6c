"""The `gpu_health` probe: whether the GPUs and nodes under the replicas are sound, by exporters, nodes and events.

A fault is a change in the incident's time; a register that has been set for months is none. A value that is not
exported is unknown: missing data never counts as healthy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe, Sources
from bot.probes.gpu import amd, nvidia
from bot.probes.gpu.exporters import Exporters, Gpu, NodeGpus
from bot.probes.gpu.held import gpus_of, missing_gpus
from bot.probes.gpu.history import (
    NO_RECORD,
    Readings,
    Record,
    RegisterHistory,
    place_of,
    recorded_xids,
    start_of,
)
from bot.probes.gpu.node_events import about_nodes, judge_events
from bot.probes.gpu.nodes import judge_node
from bot.probes.gpu.smi import Smi
from bot.probes.gpu.verdict import SOURCE, Verdict, any_of


@dataclass(frozen=True)
class GpuHealth:
    healthy: bool | None
    fault: bool | None
    thermal: bool | None
    detail: str


class ReadGpuHealth:
    def __init__(self, sources: Sources) -> None:
        self._exporters, self._finder = Exporters(sources), sources.finder
        self._history, self._records = RegisterHistory("gpus", sources), sources.registers
        self._smi = Smi(sources.gpu_shell, self._history) if sources.gpu_shell else None
        self._only_reads = sources.only_reads

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        replicas: dict[str, list[Obj]] = defaultdict(list)
        for pod in pods_asked_for(request, snapshot):
            if node := dig(pod, "spec", "nodeName"):
                replicas[node].append(pod)
        if not replicas:
            return no_answer(request, "no replica is on a node")
        pages, judge_events_of = await asyncio.gather(self._exporters.read(replicas), self._events(request))
        nodes = {name_of(node): node for node in snapshot.nodes}
        recorded = await recorded_xids(
            self._records, [gpu.uuid for page in pages.values() for gpu in page.gpus], request
        )
        gpus = await asyncio.gather(
            *(
                self._judge_gpus(node, nodes.get(node), pages[node], pods, request, recorded)
                for node, pods in replicas.items()
            )
        )
        verdicts = {
            node: [judge_node(node, nodes.get(node), start_of(request)), judge_events_of(node), *found]
            for node, found in zip(replicas, gpus, strict=True)
        }
        return _reading_of(request, verdicts, replicas)

    async def _events(self, request: ProbeRequest) -> Callable[[str], Verdict]:
        """Judges the events of a node. They only add to the registers, which count without them too."""
        try:
            events = about_nodes(await self._finder.node_events())
        except ClusterError as error:
            note = f"events of nodes cannot be read: {error}"
            return lambda node: Verdict(False, False, (note,))
        return lambda node: judge_events(node, events.get(node, ()), start_of(request))

    async def _judge_gpus(
        self,
        node: str,
        seen: Obj | None,
        page: NodeGpus,
        pods: Sequence[Obj],
        request: ProbeRequest,
        recorded: Mapping[str, Record],
    ) -> list[Verdict]:
        """By the node's exporter, else by the replicas themselves if that is allowed. `seen`: the node's object."""
        place, since = place_of(request, node), start_of(request)
        gpus = gpus_of(page.gpus, pods)
        if any(gpu.values for gpu in gpus):
            readings = await self._history.add(place, {gpu.index: gpu.values for gpu in page.gpus}, since)
            notes = missing_gpus(page.gpus, pods, readings.gone, seen)
            missing = [Verdict.on(node, None, None, note) for note in notes]
            fastest = max(gpu.values.get("sm_clock", 0.0) for gpu in gpus)
            return missing + [
                _judge(f"GPU {gpu.index} of {node}", gpu, readings, fastest, recorded.get(gpu.uuid, NO_RECORD))
                for gpu in gpus
            ]
        if self._smi and not self._only_reads(request.context.target):
            return await self._smi.judge(place, pods, since)
        return [Verdict(None, None, (page.unreadable or f"{node}: no GPU on the exporter's page",))]


def _judge(where: str, gpu: Gpu, readings: Readings, fastest: float, record: Record) -> Verdict:
    before, back = readings.before(gpu.index), readings.reaches_back
    if gpu.is_amd:
        return amd.judge_gpu(where, gpu.values, before, reaches_back=back)
    return nvidia.judge_gpu(where, gpu.values, before, fastest=fastest, reaches_back=back, record=record)


def _reading_of(
    request: ProbeRequest, by_node: Mapping[str, Sequence[Verdict]], replicas: Mapping[str, Sequence[Obj]]
) -> Reading:
    verdicts = [verdict for found in by_node.values() for verdict in found]
    fault = any_of(*(verdict.fault for verdict in verdicts))
    thermal = any_of(*(verdict.thermal for verdict in verdicts))
    trouble = any_of(fault, thermal)
    notes = "; ".join(dict.fromkeys(note for verdict in verdicts for note in verdict.notes))
    if fault is None and thermal is None:
        return no_answer(request, notes, source=SOURCE)
    detail = notes or "no fault and no thermal slowdown"
    healthy = None if trouble is None else not trouble
    parts = GpuHealth(healthy=healthy, fault=fault, thermal=thermal, detail=detail[:600])
    missing = dict.fromkeys(PROBE.kinds, notes)
    reading = answer(request, parts, missing=missing, detail=detail[:900], source=SOURCE)
    return reading.model_copy(update={"by_replica": _healthy_replicas(by_node, replicas)})


def _healthy_replicas(
    by_node: Mapping[str, Sequence[Verdict]], replicas: Mapping[str, Sequence[Obj]]
) -> dict[str, float]:
    """1 for replicas on healthy nodes, 0 on others; absent if it is unknown."""
    found: dict[str, float] = {}
    for node, verdicts in by_node.items():
        trouble = any_of(*(verdict.fault for verdict in verdicts), *(verdict.thermal for verdict in verdicts))
        if trouble is not None:
            found |= dict.fromkeys(map(name_of, replicas[node]), float(not trouble))
    return found


PROBE = Probe(
    name="gpu_health",
    label="Health of the nodes",
    help="Whether the GPUs and nodes under the replicas are sound now.",
    answer=GpuHealth,
    read=ReadGpuHealth,
)
