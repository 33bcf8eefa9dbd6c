"""The `gpu_load` probe: how much memory is free on the GPUs of the replicas, and how busy they are.

The fullest GPU decides. GPUs that the exporter does not map to our pods are left out: another pod's room is not ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe, Sources
from bot.probes.gpu.exporters import Exporters, Gpu
from bot.probes.gpu.held import holder_of

SOURCE = "GPU exporters"
MIB_IN_GIB = 1024.0


@dataclass(frozen=True)
class GpuLoad:
    least_free: float | None
    least_free_day: float | None
    total: float | None
    compute: float | None


class ReadGpuLoad:
    def __init__(self, sources: Sources) -> None:
        self._exporters, self._day = Exporters(sources), sources.memory

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        by_node: dict[str, list[Obj]] = defaultdict(list)
        for pod in pods_asked_for(request, snapshot):
            by_node[dig(pod, "spec", "nodeName") or ""].append(pod)
        pages = await self._exporters.read(by_node)
        found = {node: loads_of(pages[node].gpus, pods) for node, pods in by_node.items()}
        silent = [node or "no node" for node, loads in found.items() if not loads]
        if silent or not found:
            reason = f"nothing is exported of the GPUs on {', '.join(silent)}" if silent else "there is no such pod"
            return no_answer(request, reason, source=SOURCE)
        gpus = [load for loads in found.values() for load in loads]
        day, why_not = await self._least_free_day(request, [name_of(pod) for pods in by_node.values() for pod in pods])
        parts = _parts(gpus, day)
        missing = dict.fromkeys(PROBE.kinds, "the exporter does not export it") | {"least_free_day": why_not}
        return answer(request, parts, missing=missing, source=SOURCE)

    async def _least_free_day(self, request: ProbeRequest, pods: Sequence[str]) -> tuple[float | None, str]:
        if self._day is None:
            return None, "no Prometheus is configured to ask for a day of memory"
        try:
            return await self._day.least_free_mib(request.context.target.namespace, pods) / MIB_IN_GIB, ""
        except SourceError as error:
            return None, str(error)


def loads_of(gpus: Sequence[Gpu], pods: Sequence[Obj]) -> list[dict[str, float]]:
    """Memory and compute of each GPU that these pods hold; none if the page does not map pods."""
    ours = {holder_of(pod) for pod in pods}
    found = [
        {name: value for holder, load in gpu.loads.items() if holder in ours for name, value in load.items()}
        for gpu in gpus
    ]
    return [load for load in found if load]


def _parts(gpus: Sequence[Mapping[str, float]], least_free_day: float | None) -> GpuLoad:
    complete = [_completed(gpu) for gpu in gpus]
    free, total, compute = (_of_each(complete, name) for name in ("free", "total", "compute"))
    return GpuLoad(
        least_free=min(free) / MIB_IN_GIB if free else None,
        least_free_day=least_free_day,
        total=min(total) / MIB_IN_GIB if total else None,
        compute=sum(compute) / len(compute) if compute else None,
    )


def _completed(gpu: Mapping[str, float]) -> Mapping[str, float]:
    """NVIDIA's exporter gives free and used memory, AMD's total and used."""
    if "used" in gpu and "free" in gpu:
        return {"total": gpu["free"] + gpu["used"], **gpu}
    return {"free": gpu["total"] - gpu["used"], **gpu} if "used" in gpu and "total" in gpu else gpu


def _of_each(gpus: Sequence[Mapping[str, float]], name: str) -> list[float]:
    """This value of every GPU; empty if one of them lacks it."""
    values = [gpu[name] for gpu in gpus if name in gpu]
    return values if len(values) == len(gpus) else []


PROBE = Probe(
    name="gpu_load",
    label="GPU memory",
    units=dict.fromkeys(("least_free", "least_free_day", "total"), "GiB") | {"compute": "ratio"},
    help="GPU memory that is free, now and at least in the last day, and how busy the GPUs are.",
    answer=GpuLoad,
    read=ReadGpuLoad,
)
