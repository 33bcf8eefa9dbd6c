"""The kubelets of all nodes: a worker for each pod that is bound to a node, and each node's own HTTP servers.

A node serves container logs at its kubelet port and its GPUs' metrics at port 9400, on its own loopback address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from aiohttp import web

from bot.domain.kernel.quantity import whole
from bot.sandbox.fleet import nvidia_smi
from bot.sandbox.fleet.addresses import Addresses
from bot.sandbox.fleet.api import ApiError, KubernetesApi, Object
from bot.sandbox.fleet.container_log import LogQuery
from bot.sandbox.fleet.engines import Engines
from bot.sandbox.fleet.gpus import GPUS_PER_NODE, GpuUser, NodeGpus
from bot.sandbox.fleet.pod_spec import read_pod
from bot.sandbox.fleet.pod_worker import PodWorker, Servers, Timing

DCGM_PORT = 9400
DCGM_LABEL = "app.kubernetes.io/name"
DCGM_NAME = "dcgm-exporter"
DCGM_NAMESPACE = "monitoring"
DCGM_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.1-4.8.0-ubuntu22.04"
BUSY_BATCH = 12
"""With this many running sequences a GPU of this world is at its maximum load."""

log = structlog.get_logger(__name__)


class Node:
    """One node's address, GPUs and HTTP servers."""

    def __init__(self, name: str, uid: str, address: str, gpu_count: int) -> None:
        self.name = name
        self.uid = uid
        self.address = address
        self.gpus = NodeGpus(name, gpu_count)
        self.kubelet_port = 0
        self._runners: list[web.AppRunner] = []

    async def listen(self, logs: Any, commands: Any) -> None:
        container = "{namespace}/{pod}/{container}"
        asked = {f"/containerLogs/{container}": logs, f"/exec/{container}": commands}
        self.kubelet_port = await self._serve(asked, 0)
        await self._serve({"/metrics": self._get_metrics}, DCGM_PORT)

    async def close(self) -> None:
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    async def _serve(self, handlers: Mapping[str, Any], port: int) -> int:
        application = web.Application()
        application.add_routes([web.get(path, handler) for path, handler in handlers.items()])
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self.address, port).start()
        return int(runner.addresses[0][1])

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.gpus.metrics_text(), content_type="text/plain")


class Kubelets:
    """All nodes of the cluster: those listed when the fleet starts, and each later one with its first pod."""

    def __init__(
        self, api: KubernetesApi, addresses: Addresses, timing: Timing, engines: Engines, servers: Servers
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.workers: dict[str, PodWorker] = {}
        self._api = api
        self._addresses = addresses
        self._timing = timing
        self._engines = engines
        self._servers = servers
        self._farewells: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Starts every node and its dcgm-exporter pod."""
        for item in (await self._api.get("/api/v1/nodes"))["items"]:
            await self._join(item)

    async def _join(self, item: Object) -> None:
        name = item["metadata"]["name"]
        capacity = item.get("status", {}).get("capacity", {})
        count = whole(capacity.get("nvidia.com/gpu", GPUS_PER_NODE))
        node = Node(name, item["metadata"]["uid"], self._addresses.next_node(), count)
        await node.listen(self._get_logs, self._run_command)
        self.nodes[name] = node
        await self._api.merge(f"/api/v1/nodes/{name}/status", _node_status(node))
        await self._create_exporter(node)

    async def close(self) -> None:
        await asyncio.gather(*(worker.vanish() for worker in self.workers.values()))
        await self._engines.close()
        await asyncio.gather(*(node.close() for node in self.nodes.values()))

    def worker_of(self, pod: str) -> PodWorker | None:
        return next((one for one in self.workers.values() if one.spec.name == pod), None)

    async def run(self) -> None:
        async for change in self._api.watch("/api/v1/pods"):
            uid = change.object["metadata"]["uid"]
            if change.kind == "gone":
                self._forget(uid)
            elif name := change.object["spec"].get("nodeName"):
                if name not in self.nodes:
                    # A node that an autoscaler has added meanwhile.
                    await self._join(await self._api.get(f"/api/v1/nodes/{name}"))
                self._see(uid, change.object)

    def _see(self, uid: str, pod: Object) -> None:
        metadata = pod["metadata"]
        worker = self.workers.get(uid)
        if worker is None:
            worker = self.workers[uid] = self._worker(pod)
            if not metadata.get("deletionTimestamp"):
                worker.start()
        if metadata.get("deletionTimestamp"):
            grace = metadata.get("deletionGracePeriodSeconds", worker.spec.grace_seconds)
            worker.terminate(float(grace))

    def _worker(self, pod: Object) -> PodWorker:
        spec = read_pod(pod)
        node = self.nodes[spec.node]
        is_exporter = pod["metadata"].get("labels", {}).get(DCGM_LABEL) == DCGM_NAME
        address = node.address if is_exporter else self._addresses.next_pod()
        worker = PodWorker(spec, (node.address, address), self._api, self._timing, self._engines, self._servers)
        user = GpuUser(spec.namespace, spec.name, spec.container, lambda: _busy(worker))
        node.gpus.assign(user, spec.gpus)
        log.info("pod.seen", pod=spec.name, node=spec.node, address=address)
        return worker

    def _forget(self, uid: str) -> None:
        worker = self.workers.pop(uid, None)
        if worker is None:
            return
        self.nodes[worker.spec.node].gpus.release(worker.spec.namespace, worker.spec.name)
        self._soon(worker.vanish())

    def _soon(self, farewell: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(farewell)
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _get_logs(self, request: web.Request) -> web.Response:
        pod, container = request.match_info["pod"], request.match_info["container"]
        namespace = request.match_info["namespace"]
        worker = next(
            (one for one in self.workers.values() if (one.spec.namespace, one.spec.name) == (namespace, pod)), None
        )
        if worker is None:
            return web.Response(status=404, text=f'pod "{pod}" not found')
        previous = request.query.get("previous", "") in ("true", "1")
        found = worker.log_of(previous=previous)
        if found is None or container not in dict(worker.spec.all_containers):
            kind = "previous terminated " if previous else ""
            return web.Response(status=400, text=f'{kind}container "{container}" in pod "{pod}" not found')
        if container != worker.spec.container:
            return web.Response(text="")
        return web.Response(text=found.read(_log_query(request.query)))

    async def _run_command(self, request: web.Request) -> web.Response:
        namespace, pod = request.match_info["namespace"], request.match_info["pod"]
        every = (gpu for node in self.nodes.values() for gpu in node.gpus.gpus)
        own = [gpu for gpu in every if gpu.user and (gpu.user.namespace, gpu.user.pod) == (namespace, pod)]
        command = request.query.getall("command", [])
        ran = nvidia_smi.run(command, own)
        if ran is None:
            missing = f'exec: "{next(iter(command), "")}": executable file not found in $PATH'
            return web.Response(status=500, text=missing)
        return web.json_response(asdict(ran))

    async def _create_exporter(self, node: Node) -> None:
        """A static pod: the API simulator has no DaemonSets, and a drain skips a node's own mirror pods too."""
        path = f"/api/v1/namespaces/{DCGM_NAMESPACE}/pods"
        try:
            await self._api.create(path, _exporter_pod(node.name, node.uid))
        except ApiError as error:
            if error.status != 409:  # left by an earlier fleet of this cluster
                raise


def _busy(worker: PodWorker) -> float:
    running = worker.server.running if worker.server else 0
    return 0.0 if not running else 0.4 + 0.6 * min(1.0, running / BUSY_BATCH)


def _node_status(node: Node) -> Object:
    return {
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": node.address},
                {"type": "Hostname", "address": node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.kubelet_port}},
        }
    }


def _exporter_pod(node: str, node_uid: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    container = {
        "name": DCGM_NAME,
        "image": DCGM_IMAGE,
        "ports": [{"name": "metrics", "containerPort": DCGM_PORT}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{DCGM_NAME}-{node}",
            "namespace": DCGM_NAMESPACE,
            "labels": {DCGM_LABEL: DCGM_NAME},
            "annotations": {"kubernetes.io/config.mirror": "sandbox", "kubernetes.io/config.source": "file"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [container]},
    }


def _log_query(query: Any) -> LogQuery:
    since = None
    if "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"]).timestamp()
    if "sinceSeconds" in query:
        since = time.time() - float(query["sinceSeconds"])
    return LogQuery(
        tail_lines=int(query["tailLines"]) if "tailLines" in query else None,
        since=since,
        timestamps=query.get("timestamps", "") in ("true", "1"),
        limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
    )
