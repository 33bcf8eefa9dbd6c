"""The GPU exporters of the cluster's nodes, and the GPUs on their pages.

NVIDIA's dcgm-exporter and AMD's device-metrics-exporter are found by their labels. A node has GPUs of one vendor, so it
has one exporter. Operators choose what it exports: an absent value is unknown.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bot.domain.cluster.objects import dig, is_going_away, name_of, namespace_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import SourceError
from bot.flow.parse_in_turn import ParseInTurn
from bot.flow.ports.readings import PodPage
from bot.probes.declaration import Sources
from bot.probes.gpu.amd import AFID

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

Labels = Mapping[str, str]
DCGM_LABELS: tuple[Labels, ...] = (
    {"app.kubernetes.io/name": "dcgm-exporter"},
    {"app": "nvidia-dcgm-exporter"},
)
"""Set by the chart of dcgm-exporter, and by NVIDIA's GPU operator."""
AMD_LABELS: tuple[Labels, ...] = (
    {"app.kubernetes.io/name": "metrics-exporter"},
    {"app": "exporter-amdgpu-metrics-exporter"},
)
"""Set by AMD's GPU operator, and by the chart of device-metrics-exporter under the release name of its README."""
DCGM_PORT, AMD_PORT = 9400, 5000
DEADLINE_SECONDS = 2.0
_AT_ONCE = 64
"""Pages read at the same time: a facility has hundreds of nodes."""
BLANK = 9e18
"""DCGM writes 9223372036854775794 for a value that the GPU does not have."""

AMD_ACTIVITY = "gpu_gfx_activity"
"""AMD's counterpart of GR_ENGINE_ACTIVE, in per cent. A GPU that cannot measure it reports 65535."""

_DCGM_LINE = re.compile(r"^DCGM_(?:FI_DEV_|EXP_|FI_PROF_GR_ENGINE_ACTIVE).*$", re.MULTILINE)
_AMD_LINE = re.compile(
    r"^(?:\w*_)?(gpu_(?:health|(?:junction|edge|memory)_temperature|ecc_uncorrect_total|afid_errors"
    r"|gfx_activity|(?:total|used)_vram|violation_(?:processor_hot|ppt|socket_thermal|vr_thermal|hbm_thermal)_residency_(?:accumulated|percentage))"
    r"[{ ].*)$",
    re.MULTILINE,
)
"""A line without the prefix of its name, which the operator of AMD's exporter chooses."""
_NAMES = {
    "DCGM_FI_DEV_XID_ERRORS": "xid",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row_remap_failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "row_remap_pending",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_dbe",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
    "DCGM_FI_DEV_MEMORY_TEMP": "memory_temperature",
    "DCGM_FI_DEV_SLOWDOWN_TEMP": "slowdown_temperature",
    "DCGM_FI_DEV_MEM_MAX_OP_TEMP": "memory_limit",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock",
    "DCGM_FI_DEV_GPU_UTIL": "busy",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "clock_reasons",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "clock_reasons",
    "DCGM_FI_DEV_FB_FREE": "free",
    "DCGM_FI_DEV_FB_USED": "used",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "compute",
    "gpu_total_vram": "total",
    "gpu_used_vram": "used",
    AMD_ACTIVITY: "compute",
}
"""Our names. AMD's other values keep theirs. Memory is in MiB, and AMD's exporter gives no free memory. GPU_UTIL shows
only that some kernel ran, so it does not measure compute."""
_HEALTH = "gpu_health"
"""AMD's: 1 is healthy."""
_LOAD = frozenset({"free", "used", "total", "compute"})
_COUNTS = {
    "DCGM_EXP_XID_ERRORS_COUNT": ("counted", "xid"),
    "DCGM_EXP_CLOCK_EVENTS_COUNT": ("event", "clock_event"),
}
"""Counts within the exporter's own window of some minutes, by a label. Unlike the XID register, they forget."""


Holder = tuple[str, str]
"""Namespace and name of a pod."""


@dataclass(frozen=True)
class Gpu:
    """One GPU on an exporter's page."""

    index: str
    uuid: str = ""
    bus_id: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    """Registers, temperatures and clocks."""
    loads: Mapping[Holder, Mapping[str, float]] = field(default_factory=dict)
    """Memory and compute by pod: a shared GPU has a sample for each pod that holds it."""
    is_amd: bool = False

    @property
    def holders(self) -> frozenset[Holder]:
        """The pods that hold it, or a slice of it; none if the exporter does not map pods."""
        return frozenset((namespace, pod) for namespace, pod in self.loads if pod)


@dataclass(frozen=True)
class NodeGpus:
    """The GPUs of one node, or why they cannot be read."""

    gpus: tuple[Gpu, ...] = ()
    unreadable: str = ""


@dataclass(frozen=True)
class _Exporter:
    page: PodPage
    is_amd: bool


class Exporters:
    def __init__(self, sources: Sources) -> None:
        self._finder, self._pages = sources.finder, sources.pages
        self._dcgm_labels = (sources.dcgm_labels,) if sources.dcgm_labels else DCGM_LABELS
        self._amd_labels = (sources.amd_labels,) if sources.amd_labels else AMD_LABELS
        self._namespaces = sources.exporter_namespaces
        self._slots, self._parsed = asyncio.Semaphore(_AT_ONCE), ParseInTurn()

    async def read(self, nodes: Iterable[str]) -> dict[str, NodeGpus]:
        """These nodes. Raise `ClusterError` if exporters cannot be listed."""
        return await self._read_all(nodes, await self._by_node())

    async def read_with(self, nodes: Iterable[str]) -> dict[str, NodeGpus]:
        """These nodes and all that have an exporter; nothing if none has. Raise `ClusterError` as `read` does."""
        found = await self._by_node()
        return await self._read_all({*found, *nodes}, found) if found else {}

    async def _read_all(self, nodes: Iterable[str], found: Mapping[str, _Exporter]) -> dict[str, NodeGpus]:
        wanted = sorted(nodes)
        read = await asyncio.gather(*(self._read(node, found.get(node)) for node in wanted))
        return dict(zip(wanted, read, strict=True))

    async def _by_node(self) -> dict[str, _Exporter]:
        dcgm, amd = await asyncio.gather(self._labelled(self._dcgm_labels), self._labelled(self._amd_labels))
        return _on_nodes(amd, AMD_PORT, is_amd=True) | _on_nodes(dcgm, DCGM_PORT, is_amd=False)

    async def _labelled(self, known: Iterable[Labels]) -> list[Obj]:
        """Pods with one of these sets of labels, where exporters run."""
        found = await asyncio.gather(*(self._finder.pods_labelled(labels) for labels in known))
        own = self._namespaces
        return [pod for pods in found for pod in pods if not own or namespace_of(pod) in own]

    async def _read(self, node: str, exporter: _Exporter | None) -> NodeGpus:
        if exporter is None:
            return NodeGpus(unreadable=f"no exporter of NVIDIA or AMD on {node}")
        try:
            async with self._slots, asyncio.timeout(DEADLINE_SECONDS):
                text = await self._pages.read(exporter.page)
        except TimeoutError:
            return NodeGpus(unreadable=f"{node}: its exporter did not answer within {DEADLINE_SECONDS:g} s")
        except SourceError as error:
            return NodeGpus(unreadable=f"{node}: its exporter: {error}")
        gpus = await self._parsed(partial(gpus_on, is_amd=exporter.is_amd), text)
        return NodeGpus(gpus, "" if gpus else f"{node}: no GPU on the exporter's page")


def _on_nodes(pods: Sequence[Obj], default_port: int, *, is_amd: bool) -> dict[str, _Exporter]:
    found: dict[str, _Exporter] = {}
    for pod in pods:
        node, address = dig(pod, "spec", "nodeName"), dig(pod, "status", "podIP")
        if node and address and not is_going_away(pod):
            ports = [p for c in dig(pod, "spec", "containers") or [] for p in c.get("ports") or []]
            port = next((int(p["containerPort"]) for p in ports if p.get("name") == "metrics"), default_port)
            found[node] = _Exporter(PodPage(namespace_of(pod), name_of(pod), address, port), is_amd)
    return found


def gpus_on(page: str, *, is_amd: bool) -> tuple[Gpu, ...]:
    """The GPUs on an exporter's page; none if it is not such a page."""
    lines = (_AMD_LINE if is_amd else _DCGM_LINE).findall(page)
    try:
        # Loaded with the first page: it takes a tenth of a second, and the check of a playbook reads none.
        from prometheus_client.parser import text_string_to_metric_families

        samples = [sample for one in text_string_to_metric_families("\n".join(lines) + "\n") for sample in one.samples]
    except ValueError:
        return ()
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    values: dict[str, dict[str, float]] = defaultdict(dict)
    loads: dict[str, dict[Holder, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        gpu = _first(sample.labels, "gpu_id" if is_amd else "gpu", "UUID")
        if not gpu:
            continue  # a switch, a link of one, or a CPU
        labels[gpu] |= sample.labels
        holder = (
            _first(sample.labels, "exported_namespace", "namespace"),
            _first(sample.labels, "exported_pod", "pod"),
        )
        load = loads[gpu][holder]
        if not (name := _name_of(sample)):
            continue
        value = sample.value / 100 if sample.name == AMD_ACTIVITY else sample.value
        if name in _LOAD:
            load[name] = value
        else:
            # A sliced GPU has a sample for each slice: an XID of one of them counts.
            worst = min if name == _HEALTH else max
            values[gpu][name] = worst(values[gpu].get(name, value), value)
    return tuple(
        Gpu(
            index=gpu,
            uuid=named.get("UUID", ""),
            bus_id=named.get("pci_bus_id", ""),
            values=values[gpu],
            loads=loads[gpu],
            is_amd=is_amd,
        )
        for gpu, named in sorted(labels.items())
    )


def _name_of(sample: Sample) -> str:
    """Our name for a value; empty if it is not read or blank."""
    if sample.name in _COUNTS:
        kind, label = _COUNTS[sample.name]
        # Readings of a register without an XID are counted too, as XID 0.
        what = sample.labels.get(label, "0")
        return f"{kind}:{what}" if sample.value > 0 and what != "0" else ""
    if not abs(sample.value) < BLANK or (sample.name == AMD_ACTIVITY and not 0 <= sample.value <= 100):
        return ""
    if sample.name == AFID:
        # The value is the number of the field identifier, as an XID's is, and there is a list of them.
        return f"{AFID}:{sample.labels.get('afid_index', '0')}"
    return _NAMES.get(sample.name, sample.name if sample.name.startswith("gpu_") else "")


def _first(labels: Mapping[str, str], *names: str) -> str:
    """The first of these labels that is not empty."""
    return next((labels[name] for name in names if labels.get(name)), "")
