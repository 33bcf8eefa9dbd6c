"""Advances the time: ticks the engines, and sends clients' requests to the replicas that the router chooses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from bot.sandbox.fleet.api import KubernetesApi, Object
from bot.sandbox.fleet.engines import EngineServer
from bot.sandbox.fleet.server import VllmServer
from bot.sandbox.fleet.workload import Load, Workload

TICK_SECONDS = 0.05
MAX_BEHIND_SECONDS = 60.0
AT_ONCE_SECONDS = 1.0
"""Caught up in one go; beyond that a loop that is far behind still answers."""


class Traffic:
    """The running servers by address, the rotation, and the workload between them."""

    def __init__(self, seed: int) -> None:
        self.servers: dict[str, EngineServer] = {}
        self.rotation: frozenset[str] = frozenset()
        self._workload = Workload(seed)
        self._ticked_until: float | None = None

    def add(self, address: str, server: EngineServer) -> None:
        self.servers[address] = server
        if isinstance(server, VllmServer):
            # Scrapes show the state of that moment, however late the loop comes.
            server.before_a_scrape = lambda: self.catch_up(time.time())

    def remove(self, address: str) -> None:
        server = self.servers.pop(address)
        self._collect(server, time.time())

    def change(self, load: Load, now: float) -> None:
        self._workload.change(load, now)

    async def state(self) -> dict[str, Any]:
        """The load, the clients' statistics since the start, and each replica as it is now."""
        now = time.time()
        load, seen = self._workload.load, self._workload.seen
        return {
            "workers": load.workers,
            "workers_now": self._workload.workers,
            "workers_wanted_now": self._workload.wanted_workers(now),
            "arrivals_per_second": load.arrivals_per_second,
            "prompt_tokens": list(load.prompt_tokens),
            "output_tokens": list(load.output_tokens),
            "ramp_seconds": load.ramp_seconds,
            "burst": load.burst,
            "pause_seconds": load.pause_seconds,
            "sent": seen.sent,
            "finished": seen.finished,
            "failed": seen.failed,
            "cut": seen.cut,
            "empty": seen.empty,
            "refused": seen.refused,
            "shed": seen.shed,
            "in_flight": {name: count for name, count in sorted(seen.in_flight.items()) if count},
            "replicas": [await self._replica(address, server) for address, server in sorted(self.servers.items())],
        }

    async def follow_service(self, api: KubernetesApi, namespace: str, service: str) -> None:
        """Keeps the rotation equal to the ready pods of all EndpointSlices of the Service."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        slices: dict[str, frozenset[str]] = {}
        async for change in api.watch(path, query):
            name = change.object["metadata"]["name"]
            if change.kind == "gone":
                slices.pop(name, None)
            else:
                slices[name] = frozenset(_ready_pods(change.object))
            self.rotation = frozenset().union(*slices.values())

    async def follow_pods(self, api: KubernetesApi, namespace: str, selector: str) -> None:
        """Keeps the rotation equal to the Ready pods with these labels, as a router that watches pods does."""
        async for change in api.watch(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector}):
            name = change.object["metadata"]["name"]
            takes = change.kind != "gone" and _is_ready(change.object)
            self.rotation = self.rotation | {name} if takes else self.rotation - {name}

    async def run(self) -> None:
        self.catch_up(time.time())
        while True:
            is_on_time = self.catch_up(time.time(), at_most=AT_ONCE_SECONDS)
            await asyncio.sleep(TICK_SECONDS if is_on_time else 0)

    def catch_up(self, now: float, *, at_most: float = MAX_BEHIND_SECONDS) -> bool:
        """Ticks through the time since the last call, and returns whether that was all of it.

        A late loop must not look like fewer clients. Only the time beyond `MAX_BEHIND_SECONDS` is skipped, as after a
        machine's sleep.
        """
        begin = max(now if self._ticked_until is None else self._ticked_until, now - MAX_BEHIND_SECONDS)
        until = min(now, begin + at_most)
        while begin <= until:
            self.tick(begin)
            begin += TICK_SECONDS
        self._ticked_until = begin
        return until == now

    def tick(self, now: float) -> None:
        """Sends what is due, then lets each engine run through the tick that begins now."""
        in_rotation = [server for server in self.servers.values() if server.name in self.rotation]
        self._workload.tick(now, in_rotation)
        for server in self.servers.values():
            server.advance(now + TICK_SECONDS)
            self._collect(server, now)

    def _collect(self, server: EngineServer, now: float) -> None:
        for sequence in server.take_ended():
            self._workload.ended(sequence, now)

    async def _replica(self, address: str, server: EngineServer) -> dict[str, Any]:
        rotation = {"pod": server.name, "address": address, "in_rotation": server.name in self.rotation}
        return rotation | await server.state()


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


def _ready_pods(endpoint_slice: Object) -> Iterable[str]:
    """By name: an EndpointSlice may not contain the loopback addresses at which the pods of the fleet listen."""
    for endpoint in endpoint_slice.get("endpoints") or []:
        if endpoint.get("conditions", {}).get("ready"):
            yield endpoint["targetRef"]["name"]
