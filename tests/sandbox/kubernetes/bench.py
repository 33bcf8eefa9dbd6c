"""A workload of three replicas in its own namespace, and the bot's access to it: on the simulator or a real cluster.

A replica is a pause container whose arguments read like an engine's. Its accelerator is an extended resource of the
test's own, added to the status of at most two nodes and taken away again, so no GPU is needed and nobody else's pods
are counted; nodes that a test cordoned take pods again at its end.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.cluster.capacity import why_not
from bot.domain.cluster.objects import INCIDENT_ANNOTATION
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.quantity import parse_quantity
from bot.domain.kernel.target import Target
from tests.adapters.kubernetes.lab import Hands
from tests.sandbox.kubernetes.cluster import MERGE_PATCH, Cluster, Obj

NAME = "llm"
REPLICAS = 3
GPUS_PER_NODE = 6
ARGS = ("tiny-llama", "--max-num-seqs=64", "--shutdown-timeout=5")
REAL_CLUSTER_SECONDS = 180.0
SELECTOR = {"app": NAME, "serving": "active"}
"""`serving` is not in the Deployment's selector: changing it takes a pod out of rotation alone."""


@dataclass(frozen=True, kw_only=True)
class Bench(Hands):
    somebody: Cluster
    """Another client of the same API, for what somebody else does."""
    resource: str
    """What a replica asks for."""
    nodes: tuple[str, ...]
    """Where replicas may run."""

    @property
    def knows_room(self) -> bool:
        return "/" in self.resource

    def require_room(self) -> None:
        if not self.knows_room:
            pytest.skip(f"--gpu-resource {self.resource} is no accelerator, so that room is not known")

    def template(self, labels: dict[str, str], *args: str) -> Obj:
        container: Obj = {
            "name": "vllm",
            "image": self.somebody.image,
            "args": list(args or ARGS),
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"limits": {self.resource: "1" if self.knows_room else "10m"}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 10}}},
        }
        spec = {"containers": [container], "terminationGracePeriodSeconds": 30}
        return {"metadata": {"labels": labels}, "spec": spec}

    async def create_workload(self) -> None:
        """Serving behind a Service, with a budget that allows one disruption."""
        await self.create_service(NAME, **SELECTOR)
        await self.somebody.create_deployment(self.deployment(NAME, REPLICAS, SELECTOR), settled=False)
        await self.somebody.create_budget(NAME, NAME, minAvailable=REPLICAS - 1)
        await self.until_seen("all replicas are in rotation", self.is_whole)

    def deployment(self, name: str, replicas: int, labels: dict[str, str]) -> Obj:
        rolling = {"maxSurge": 1, "maxUnavailable": 0}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": self.template(labels),
        }
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}

    async def create_service(self, name: str, **selector: str) -> None:
        spec = {"selector": selector, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        await self.somebody.raw("POST", self.path("services"), body)

    def path(self, plural: str, group: str = "") -> str:
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.target.namespace}/{plural}"

    def of(self, kind: str, name: str) -> Bench:
        """The same hands on another workload of this namespace."""
        return replace(self, target=self.target.model_copy(update={"kind": kind, "name": name}))

    async def somebody_patches(self, patch: Obj) -> None:
        await self.somebody.patch_deployment(patch, MERGE_PATCH, NAME)

    async def somebody_edits_flags(self, *args: str) -> None:
        deployment = await self.somebody.deployment(NAME)
        containers = deployment["spec"]["template"]["spec"]["containers"]
        containers[0]["args"] = list(args)
        await self.somebody_patches({"spec": {"template": {"spec": {"containers": containers}}}})

    def is_whole(self, world: ClusterSnapshot) -> bool:
        """Nothing of an earlier template is left, and every replica is in rotation."""
        if world.workload is None or not rollout_state(world.workload).is_complete:
            return False
        return len(self.serving(world)) == len(world.pods) == REPLICAS


@contextlib.asynccontextmanager
async def bench_on(cluster: Cluster, *, kubeconfig: str | None, wanted: str) -> AsyncIterator[Bench]:
    """`wanted`: the resource that a replica asks for; empty for one of its own."""
    connection = Connection(url=cluster.url) if cluster.is_stand_in else Connection(kubeconfig=str(kubeconfig))
    resource = wanted or f"incident-bot.test/gpu-{secrets.token_hex(4)}"
    async with KubernetesClient(connection) as client, _nodes(cluster, resource, is_own=not wanted) as nodes:
        reader = KubernetesReader(client, cluster_wide_seconds=0.0)
        made = Bench(
            client=client,
            reader=reader,
            cluster=KubernetesCluster(client, name="contract", reader=reader),
            writer=KubernetesWriter(client, reader),
            target=Target(cluster="contract", namespace=cluster.namespace, name=NAME),
            max_seconds=60.0 if cluster.is_stand_in else REAL_CLUSTER_SECONDS,
            somebody=cluster,
            resource=resource,
            nodes=nodes,
        )
        await made.create_workload()
        yield made


@contextlib.asynccontextmanager
async def _nodes(cluster: Cluster, resource: str, *, is_own: bool) -> AsyncIterator[tuple[str, ...]]:
    """At most two nodes that take pods; with a resource of our own they offer it until the end."""
    found = [cluster.plain(node) for node in (await cluster.core.list_node()).items]
    usable = [node for node in found if not why_not(node, {})]
    if not is_own and "/" in resource:
        usable = [node for node in usable if parse_quantity(node["status"]["allocatable"].get(resource, 0))]
    names = tuple(node["metadata"]["name"] for node in usable)
    if not names:
        pytest.skip("no node takes pods" if is_own else f"no node that takes pods has {resource}")
    offering = names[:2] if is_own else ()
    try:
        for name in offering:
            await _offer(cluster, name, {resource: str(GPUS_PER_NODE)})
        yield offering or names
    finally:
        for name in offering:
            await _offer(cluster, name, {resource: None})
        for name in names:
            # A test may have cordoned it; those that somebody else had cordoned are not among them.
            metadata = {"annotations": {INCIDENT_ANNOTATION: None}}
            await _patch(cluster, f"/api/v1/nodes/{name}", {"metadata": metadata, "spec": {"unschedulable": None}})


async def _offer(cluster: Cluster, node: str, amounts: dict[str, Any]) -> None:
    # A real kubelet works allocatable out of capacity; the stand-in has no kubelet that does.
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    await _patch(cluster, f"/api/v1/nodes/{node}/status", body)


async def _patch(cluster: Cluster, path: str, body: Obj) -> None:
    await cluster.raw("PATCH", path, body, kind=MERGE_PATCH)
