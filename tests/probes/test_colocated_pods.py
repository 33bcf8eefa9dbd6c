"""Other pods with GPUs where a replica crashed: what Kubernetes knows, and nothing that it cannot know."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.signal import Reading
from tests.kit import probes
from tests.kit.probes import request

pytestmark = pytest.mark.fast

AT = 1_790_000_000.0


def pod(name: str, *, node: str = "n1", gpus: int = 1, is_ready: bool = False, **metadata: Any) -> Obj:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "namespace": "serving", "uid": name, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(is_ready)}]},
    }


def ours(name: str, **more: Any) -> Obj:
    return pod(name, ownerReferences=[{"kind": "ReplicaSet", "uid": "rs", "controller": True}], **more)


async def ask(pods: tuple[Obj, ...], *others: Obj, unreadable: dict[str, str] | None = None) -> Reading:
    replica_set: Obj = {"metadata": {"uid": "rs", "ownerReferences": [{"uid": "d", "controller": True}]}}
    snapshot = ClusterSnapshot(
        at=AT, workload={"metadata": {"name": "llm", "uid": "d"}, "spec": {}}, replica_sets=(replica_set,), pods=pods,
        all_pods=(*pods, *others), unreadable=unreadable or {},
    )  # fmt: skip
    return await probes.ask(request("colocated_pods", snapshot, at=AT))


async def test_a_pod_that_is_leaving_the_crashed_replicas_node_still_holds_its_gpu() -> None:
    leaving = pod("old", deletionTimestamp="2026-11-20T10:00:00Z")
    reading = await ask((ours("a"),), leaving, pod("tenant"))
    assert (reading.fields["leaving"], reading.fields["others"]) == (1.0, 2.0)
    assert reading.fields["who"] == "serving/old, serving/tenant"


async def test_pods_of_other_nodes_without_gpus_or_ended_are_no_neighbours() -> None:
    ended = pod("job")
    ended["status"]["phase"] = "Succeeded"
    reading = await ask((ours("a"),), pod("far", node="n2"), pod("logs", gpus=0), ended)
    assert (reading.fields["leaving"], reading.fields["others"], reading.fields["who"]) == (0.0, 0.0, "")


async def test_where_every_replica_is_ready_nobody_is_in_the_way() -> None:
    reading = await ask((ours("a", is_ready=True),), pod("tenant"))
    assert reading.fields["others"] == 0.0
    assert "no node" in reading.detail


async def test_pods_that_cannot_be_listed_are_not_nobody() -> None:
    reading = await ask((ours("a"),), unreadable={"all_pods": "forbidden"})
    assert "forbidden" in reading.unknown
