"""Nodes with GPUs as exporters and the API describe them, in memory: small builders for the probes' tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import SourceError
from bot.flow.ports.readings import PodPage, ProbeRequest
from tests.kit.probes import request

OPENED, NOW = 10_000.0, 10_060.0
STOCK = {
    "DCGM_FI_DEV_XID_ERRORS": 0.0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0.0,
    "DCGM_FI_DEV_GPU_TEMP": 60.0,
    "DCGM_FI_DEV_MEMORY_TEMP": 68.0,
    "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_GPU_UTIL": 90.0,
}


def gpu(index: int = 0, pod: str = "", /, **more: float) -> str:
    """One GPU's lines on a dcgm-exporter's page; `XID_ERRORS=79` stands for `DCGM_FI_DEV_XID_ERRORS 79`."""
    held = f',namespace="serving",pod="{pod}"' if pod else ""
    labels = f'gpu="{index}",UUID="GPU-{index}",pci_bus_id="0000:{index}B:00.0"{held}'
    values = STOCK | {f"DCGM_FI_DEV_{name}": value for name, value in more.items()}
    return "".join(f"{name}{{{labels}}} {value:g}\n" for name, value in values.items())


def counted(xid: int, index: int = 0, pod: str = "") -> str:
    held = f',namespace="serving",pod="{pod}"' if pod else ""
    return f'DCGM_EXP_XID_ERRORS_COUNT{{gpu="{index}",xid="{xid}",window_size_in_ms="300000"{held}}} 1\n'


class Cluster:
    """Pages by node; a node without one does not answer."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = dict(pages)
        self.silent: set[str] = set()
        self.events: list[Obj] = []

    async def pods_labelled(self, labels: Mapping[str, str]) -> Sequence[Obj]:
        if "dcgm-exporter" not in labels.values():
            return []
        return [
            {
                "metadata": {"name": f"dcgm-{node}", "namespace": "gpu"},
                "spec": {"nodeName": node, "containers": []},
                "status": {"podIP": node},
            }
            for node in self.pages
        ]

    async def node_events(self) -> Sequence[Obj]:
        return self.events

    async def read(self, page: PodPage) -> str:
        if page.address in self.silent:
            raise SourceError("connection refused")
        return self.pages[page.address]


def node(name: str, *, labels: Mapping[str, str] | None = None, gpus: int = 0, **fields: Any) -> Obj:
    """`annotations`, `taints`, `unschedulable` and `conditions` stand where Kubernetes has them."""
    conditions = [{"type": "Ready", "status": "True"}, *fields.pop("conditions", [])]
    metadata = {"name": name, "uid": name, "labels": dict(labels or {}), "annotations": fields.pop("annotations", {})}
    status = {"conditions": conditions, "allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus)}}
    return {"metadata": metadata, "spec": fields, "status": status}


def pod(name: str, on: str, *, ours: bool = True, namespace: str = "serving", gpus: int = 0) -> Obj:
    owner = {"kind": "ReplicaSet", "name": "rs" if ours else f"{name}-rs", "uid": "rs" if ours else "other"}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return {
        "metadata": metadata | {"ownerReferences": [owner | {"controller": True}]},
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
        "status": {"phase": "Running"},
    }


def snapshot(nodes: Sequence[Obj], pods: Sequence[Obj], others: Sequence[Obj] = (), **fields: Any) -> ClusterSnapshot:
    owner = {"kind": "Deployment", "uid": "d", "controller": True}
    return ClusterSnapshot(
        at=NOW,
        workload={"metadata": {"name": "llm", "uid": "d"}, "spec": {}},
        replica_sets=({"metadata": {"name": "rs", "uid": "rs", "ownerReferences": [owner]}},),
        pods=tuple(pods),
        nodes=tuple(nodes),
        all_pods=(*pods, *others),
        **fields,
    )


def asked_of(
    probe: str, seen: ClusterSnapshot, *, at: float = NOW, of: str = "target", picked: str = "", **parameters: Any
) -> ProbeRequest:
    named = {"node": picked} if picked else {}
    return request(probe, seen, at=at, opened_at=OPENED, of=of, picked=named, parameters=parameters)


class Recorded:
    """Points of the XID register by GPU."""

    def __init__(self, *points: tuple[float, float], fails: str = "") -> None:
        self._points, self._fails = points, fails

    async def xids(self, uuids: Sequence[str], start: float, end: float) -> Mapping[str, Sequence[tuple[float, float]]]:
        if self._fails:
            raise SourceError(self._fails)
        return {"GPU-0": self._points} if "GPU-0" in uuids else {}
