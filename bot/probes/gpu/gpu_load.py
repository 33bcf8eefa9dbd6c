"""How much memory is free on the GPUs of the replicas, and how busy they are, by the exporters on their nodes.

The fullest GPU decides. What no exporter says of a pod's own GPUs is unknown: another pod's room is not ours.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bot.domain.cluster.objects import dig, name_of
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.signal import Reading
from bot.flow.ports import Finder, MemoryHistory, PodPages, ProbeRequest
from bot.probes.answers import answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe
from bot.probes.gpu.exporter_pods import DEADLINE_SECONDS, Exporter, exporters_by_node
from bot.probes.gpu.nvidia import BLANK

SOURCE = "GPU exporters"
MIB_IN_GIB = 1024.0
WANTED = {
    "DCGM_FI_DEV_FB_FREE": "free",
    "DCGM_FI_DEV_FB_USED": "used",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "compute",
    "gpu_total_vram": "total",
    "gpu_used_vram": "used",
}
"""Memory in MiB; AMD's exporter gives no free memory. GPU_UTIL only says that some kernel ran, so it is left out."""

AMD_PREFIX = "amd_"
"""As the exporter's own examples set `MetricsFieldPrefix`."""

Gpus = dict[str, dict[str, float]]


@dataclass(frozen=True)
class GpuLoad:
    least_free: float | None
    least_free_day: float | None
    total: float | None
    compute: float | None


class ReadGpuLoad:
    """The `gpu_load` probe. `day`: who remembers a day of it; None when nobody does."""

    def __init__(
        self,
        *,
        finder: Finder,
        pages: PodPages,
        day: MemoryHistory | None = None,
        amd_labels: Mapping[str, str] | None = None,
    ) -> None:
        self._finder, self._pages, self._day, self._amd_labels = finder, pages, day, amd_labels

    async def __call__(self, request: ProbeRequest) -> Reading:
        world = await request.world()
        if failed := unreadable(request, world, "pods"):
            return failed
        by_node: dict[str, list[str]] = defaultdict(list)
        for pod in pods_asked_for(request, world):
            by_node[dig(pod, "spec", "nodeName") or ""].append(name_of(pod))
        exporters = await exporters_by_node(self._finder, self._amd_labels)
        told = await asyncio.gather(*(self._gpus(exporters.get(node), pods) for node, pods in by_node.items()))
        silent = [node or "no node" for node, gpus in zip(by_node, told, strict=True) if not gpus]
        if silent or not told:
            reason = f"nothing is exported of the GPUs on {', '.join(silent)}" if silent else "there is no such pod"
            return no_answer(request, reason, source=SOURCE)
        gpus = [gpu for found in told for gpu in found.values()]
        day, why_not = await self._least_free_day(request, [pod for pods in by_node.values() for pod in pods])
        parts = _parts(gpus, day)
        missing = dict.fromkeys(PROBE.kinds, "the exporter does not export it") | {"least_free_day": why_not}
        return answer(request, parts, missing=missing, detail=f"{len(gpus)} GPUs", source=SOURCE)

    async def _least_free_day(self, request: ProbeRequest, pods: Sequence[str]) -> tuple[float | None, str]:
        if self._day is None:
            return None, "nobody remembers a day of the GPUs' memory; a Prometheus would"
        try:
            return await self._day.least_free_mib(request.context.target.namespace, pods) / MIB_IN_GIB, ""
        except SourceError as error:
            return None, str(error)

    async def _gpus(self, exporter: Exporter | None, pods: Sequence[str]) -> Gpus:
        """Empty when this node's exporter does not answer or says nothing of these pods."""
        if exporter is None:
            return {}
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return gpus_of(await self._pages.read(exporter.page), pods)
        except (TimeoutError, SourceError):
            # The reading says of which node nothing is known.
            return {}


def gpus_of(page: str, pods: Sequence[str]) -> Gpus:
    """The GPUs that these pods hold, by index; none where the page does not say who holds which."""
    bare = (line.removeprefix(AMD_PREFIX) for line in page.splitlines())
    lines = "\n".join(line for line in bare if line.startswith(tuple(WANTED)))
    gpus: Gpus = defaultdict(dict)
    try:
        samples = [sample for family in text_string_to_metric_families(lines + "\n") for sample in family.samples]
    except ValueError:
        return {}
    for sample in samples:
        holder = sample.labels.get("exported_pod") or sample.labels.get("pod", "")
        gpu = sample.labels.get("UUID") or sample.labels.get("gpu") or sample.labels.get("gpu_id", "")
        if sample.name in WANTED and holder in pods and abs(sample.value) < BLANK and math.isfinite(sample.value):
            gpus[gpu][WANTED[sample.name]] = sample.value
    return dict(gpus)


def _parts(gpus: Sequence[Mapping[str, float]], least_free_day: float | None) -> GpuLoad:
    free = [_free(gpu) for gpu in gpus]
    total = [_total(gpu) for gpu in gpus]
    busy = [gpu["compute"] for gpu in gpus if "compute" in gpu]
    return GpuLoad(
        least_free=None if None in free else min(one for one in free if one is not None) / MIB_IN_GIB,
        least_free_day=least_free_day,
        total=None if None in total else min(one for one in total if one is not None) / MIB_IN_GIB,
        compute=sum(busy) / len(busy) if len(busy) == len(gpus) else None,
    )


def _free(gpu: Mapping[str, float]) -> float | None:
    if "free" in gpu:
        return gpu["free"]
    return gpu["total"] - gpu["used"] if "total" in gpu and "used" in gpu else None


def _total(gpu: Mapping[str, float]) -> float | None:
    if "total" in gpu:
        return gpu["total"]
    return gpu["free"] + gpu["used"] if "free" in gpu and "used" in gpu else None


PROBE = Probe(
    name="gpu_load",
    help="GPU memory that is free, now and in a day, and how busy the GPUs are.",
    answer=GpuLoad,
    read=lambda sources: ReadGpuLoad(
        finder=sources.finder, pages=sources.pages, day=sources.memory, amd_labels=sources.amd_labels
    ),
)
