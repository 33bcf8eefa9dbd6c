"""Which pods export the GPUs of which node: NVIDIA's dcgm-exporter or AMD's device-metrics-exporter, by their labels.

A node has GPUs of one maker, so a node has one exporter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, is_going_away, name_of, namespace_of
from bot.domain.cluster.snapshot import Obj
from bot.flow.ports import Finder, PodPage

DCGM_LABELS = {"app.kubernetes.io/name": "dcgm-exporter"}
AMD_LABELS: tuple[Mapping[str, str], ...] = (
    {"app.kubernetes.io/name": "metrics-exporter"},
    {"app": "exporter-amdgpu-metrics-exporter"},
)
"""As AMD's GPU operator labels device-metrics-exporter, and as its chart does for the release of its own README."""
DCGM_PORT, AMD_PORT = 9400, 5000
DEADLINE_SECONDS = 2.0


@dataclass(frozen=True)
class Exporter:
    page: PodPage
    is_amd: bool

    @property
    def name(self) -> str:
        return "AMD's device-metrics-exporter" if self.is_amd else "dcgm-exporter"


async def exporters_by_node(finder: Finder, amd_labels: Mapping[str, str] | None = None) -> dict[str, Exporter]:
    """`amd_labels`: where AMD's carries other labels than those known here. Raise `ClusterError` as the finder does."""
    dcgm, *others = await asyncio.gather(
        *(finder.pods_labelled(labels) for labels in (DCGM_LABELS, *((amd_labels,) if amd_labels else AMD_LABELS)))
    )
    amds = [pod for pods in others for pod in pods]
    return _on_nodes(amds, AMD_PORT, is_amd=True) | _on_nodes(dcgm, DCGM_PORT, is_amd=False)


def _on_nodes(pods: Sequence[Obj], port_of_it: int, *, is_amd: bool) -> dict[str, Exporter]:
    found: dict[str, Exporter] = {}
    for pod in pods:
        node, address = dig(pod, "spec", "nodeName"), dig(pod, "status", "podIP")
        if node and address and not is_going_away(pod):
            ports = [p for c in dig(pod, "spec", "containers") or [] for p in c.get("ports") or []]
            port = next((int(p["containerPort"]) for p in ports if p.get("name") == "metrics"), port_of_it)
            found[node] = Exporter(PodPage(namespace_of(pod), name_of(pod), address, port), is_amd)
    return found
