"""The GPU exporters of the cluster's nodes, and each of their GPUs as the page names it.

A page says of a GPU what its operator chose to export: a reading that is absent is not known.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from bot.domain.kernel.errors import SourceError
from bot.flow.ports import Finder, PodPages
from bot.probes.gpu import amd, nvidia
from bot.probes.gpu.exporter_pods import DEADLINE_SECONDS, Exporter, exporters_by_node

XIDS_COUNTED = "DCGM_EXP_XID_ERRORS_COUNT"
"""How often each XID came within the exporter's own window of some minutes: unlike the register it forgets."""
_FIELDS = nvidia.WANTED | {
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "row_remap_pending",
    "DCGM_FI_DEV_SLOWDOWN_TEMP": "slowdown_temperature",
    "DCGM_FI_DEV_MEM_MAX_OP_TEMP": "memory_limit",
}
_AT_ONCE = 64
"""Pages asked for at a time: a facility has hundreds of nodes."""


@dataclass(frozen=True)
class GpuSeen:
    """One GPU on an exporter's page; `pod` holds it, where the exporter maps pods."""

    gpu: str
    uuid: str = ""
    bus_id: str = ""
    namespace: str = ""
    pod: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    is_amd: bool = False


@dataclass(frozen=True)
class NodeSeen:
    """A node's GPUs, or why they cannot be read."""

    gpus: tuple[GpuSeen, ...] = ()
    unreadable: str = ""


class Exporters:
    def __init__(self, finder: Finder, pages: PodPages, amd_labels: Mapping[str, str] | None = None) -> None:
        self._finder, self._pages, self._amd_labels = finder, pages, amd_labels
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def nodes(self, wanted: frozenset[str] | None = None) -> dict[str, NodeSeen]:
        """The wanted nodes, or all that have an exporter. Raise `ClusterError` when exporters cannot be listed."""
        found = await exporters_by_node(self._finder, self._amd_labels)
        asked = sorted(found if wanted is None else wanted)
        seen = await asyncio.gather(*(self._seen(node, found.get(node)) for node in asked))
        return dict(zip(asked, seen, strict=True))

    async def _seen(self, node: str, exporter: Exporter | None) -> NodeSeen:
        if exporter is None:
            return NodeSeen(unreadable=f"no exporter of NVIDIA or AMD on {node}")
        try:
            async with self._slots, asyncio.timeout(DEADLINE_SECONDS):
                text = await self._pages.read(exporter.page)
        except TimeoutError:
            return NodeSeen(unreadable=f"{node}: its exporter did not answer within {DEADLINE_SECONDS:g} s")
        except SourceError as error:
            return NodeSeen(unreadable=f"{node}: its exporter: {error}")
        gpus = _amds_on(text) if exporter.is_amd else nvidias_on(text)
        return NodeSeen(gpus, "" if gpus else f"{node}: no GPU on the exporter's page")


def nvidias_on(page: str) -> tuple[GpuSeen, ...]:
    """The GPUs of a dcgm-exporter's page; none where it is no such page."""
    prefixes = ("DCGM_FI_DEV_", "DCGM_EXP_")
    lines = "\n".join(line for line in page.splitlines() if line.startswith(prefixes))
    values: dict[str, dict[str, float]] = defaultdict(dict)
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    try:
        samples = [sample for family in text_string_to_metric_families(lines + "\n") for sample in family.samples]
    except ValueError:
        return ()
    for sample in samples:
        gpu = sample.labels.get("gpu", sample.labels.get("UUID", ""))
        labels[gpu] |= sample.labels
        if sample.name in _FIELDS and abs(sample.value) < nvidia.BLANK:
            values[gpu][_FIELDS[sample.name]] = sample.value
        elif sample.name == XIDS_COUNTED and sample.value > 0:
            values[gpu][f"counted:{sample.labels.get('xid', '')}"] = sample.value
        elif sample.name == "DCGM_EXP_CLOCK_EVENTS_COUNT" and sample.value > 0:
            values[gpu][f"event:{sample.labels.get('clock_event', '')}"] = sample.value
    return tuple(
        GpuSeen(
            gpu=gpu,
            uuid=named.get("UUID", ""),
            bus_id=named.get("pci_bus_id", ""),
            namespace=named.get("exported_namespace", named.get("namespace", "")),
            pod=named.get("exported_pod", named.get("pod", "")),
            values=values[gpu],
        )
        for gpu, named in sorted(labels.items())
    )


def _amds_on(page: str) -> tuple[GpuSeen, ...]:
    return tuple(GpuSeen(gpu=gpu, values=values, is_amd=True) for gpu, values in amd.readings_of(page, []).items())
