"""Runs one pod from its start to its end, as its node's kubelet would.

A container that exits is restarted with a growing delay; a deleted pod keeps serving through preStop, then gets
SIGTERM, then SIGKILL after its grace period, and only then disappears from the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import structlog

from bot.sandbox.fleet.api import ApiError, KubernetesApi
from bot.sandbox.fleet.bench import run_bench, runs_bench
from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engines import START_AGAIN, Engines, EngineServer, Fault
from bot.sandbox.fleet.pod_spec import PodSpec
from bot.sandbox.fleet.pod_status import PodStatus, stamp

FIRST_BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0
CRASH_COUNTS_FOR_SECONDS = 600.0
RETRY_SECONDS = 0.25

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """`time_scale` shortens plain waiting (preStop, back-off); limits stay, or they would cut streams that fit them."""

    startup_seconds: float = 3.0
    time_scale: float = 1.0


class Servers(Protocol):
    """The registry of running servers: the clock advances them, and the gateway finds them here."""

    def add(self, address: str, server: EngineServer) -> None: ...

    def remove(self, address: str) -> None: ...


class PodWorker:
    """One pod; call `start` once, then `terminate` or `vanish`."""

    def __init__(
        self,
        spec: PodSpec,
        addresses: tuple[str, str],
        api: KubernetesApi,
        timing: Timing,
        engines: Engines,
        servers: Servers,
    ) -> None:
        host_ip, pod_ip = addresses
        self.spec = spec
        self.address = pod_ip
        self.fault = Fault()
        self.server: EngineServer | None = None
        self.status = PodStatus(spec, host_ip, pod_ip, started_at=time.time())
        self._api = api
        self._timing = timing
        self._engines = engines
        self._servers = servers
        self._logs: list[ContainerLog] = []
        self._life: asyncio.Task[None] | None = None
        self._end: asyncio.Task[None] | None = None

    @property
    def is_ending(self) -> bool:
        return self._end is not None

    def start(self) -> None:
        self._life = asyncio.create_task(self._live(), name=f"pod {self.spec.name}")
        self._life.add_done_callback(_report)

    def terminate(self, grace_seconds: float) -> None:
        """The pod was deleted; a second, shorter grace is ignored while the first runs, except 0."""
        if self._end is None:
            self._end = asyncio.create_task(self._terminate(grace_seconds), name=f"end {self.spec.name}")
            self._end.add_done_callback(_report)
        elif grace_seconds == 0 and self.server is not None:
            self.server.kill()

    async def vanish(self) -> None:
        """The pod is gone from the API, or the fleet stops: end at once."""
        for task in (self._end, self._life):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self.server is not None:
            self.server.kill()
            await self._forget_server(self.server)

    async def suffer(self, fault: Fault) -> None:
        """Returns when the engine has the fault, or ends to be started again with it."""
        self.fault = fault
        server = self.server
        if server is not None and not server.suffer(fault):
            await self._forget_server(server)

    async def fail_liveness(self) -> None:
        """The engine answers no probe, nor the SIGTERM that follows: the kubelet ends it by SIGKILL."""
        server = self.server
        await self._event("Warning", "Unhealthy", "Liveness probe failed: context deadline exceeded")
        await self._event(
            "Normal", "Killing", f"Container {self.spec.container} failed liveness probe, will be restarted"
        )
        if server is not None:
            server.kill()

    def log_of(self, *, previous: bool) -> ContainerLog | None:
        """The running (or last) container's log, or the one before it."""
        index = -2 if previous else -1
        return self._logs[index] if len(self._logs) >= -index else None

    # The life of the container

    async def _live(self) -> None:
        if not self.spec.image_exists:
            await self._fail_to_pull()
            return
        back_off = 0.0
        while True:
            started = time.time()
            exit_code = await self._run_once()
            now = time.time()
            container = self.status.container
            container.ended(exit_code, now, self.spec)
            if self.is_ending or not self.spec.is_restarted:
                container.state = "terminated"
                await self._publish()
                return
            if now - started > CRASH_COUNTS_FOR_SECONDS * self._timing.time_scale:
                back_off = 0.0
            await self._back_off(back_off)
            back_off = min(max(FIRST_BACK_OFF_SECONDS, 2 * back_off), MAX_BACK_OFF_SECONDS)
            container.restarts += 1
            container.number += 1

    async def _back_off(self, seconds: float) -> None:
        """The first restart is immediate, as a kubelet's."""
        if seconds == 0:
            return
        container = self.status.container
        container.state, container.reason = "waiting", "CrashLoopBackOff"
        where = f"restarting failed container={self.spec.container} pod={self.spec.name}_{self.spec.namespace}"
        container.message = f"back-off {seconds:.0f}s {where}({self.spec.uid})"
        await self._publish()
        await self._event("Warning", "BackOff", f"Back-off {where}")
        await asyncio.sleep(seconds * self._timing.time_scale)

    async def _fail_to_pull(self) -> None:
        container = self.status.container
        what = f'failed to pull and unpack image "{self.spec.image}": not found'
        container.reason, container.message = "ErrImagePull", what
        await self._publish()
        await self._event("Warning", "Failed", f'Failed to pull image "{self.spec.image}": {what}')
        await asyncio.sleep(self._timing.time_scale)
        container.reason, container.message = "ImagePullBackOff", f'Back-off pulling image "{self.spec.image}"'
        await self._publish()

    async def _run_once(self) -> int:
        """Starts the container and waits until it exits; returns its exit code."""
        container = self.status.container
        now = time.time()
        container.state, container.started_at, container.message = "running", now, ""
        self._logs = [*self._logs[-1:], ContainerLog()]
        if not self.spec.serves_vllm:
            container.ready = True
            for line in self.spec.log.splitlines():
                self._logs[-1].raw(line, now)
            await self._publish()
            return await _never() if self.spec.is_restarted else await self._work()
        await self._publish()
        await self._event("Normal", "Started", f"Started container {self.spec.container}")
        while True:
            started = await self._engines.start(self.spec, self.address, self._logs[-1], self.fault)
            exit_code = started if isinstance(started, int) else await self._serve(started)
            if exit_code != START_AGAIN:
                return exit_code

    async def _work(self) -> int:
        """A Job's pod runs its load test; any other takes its time, has written its log, and is done."""
        await asyncio.sleep(self._timing.startup_seconds)
        return await run_bench(self.spec.argv, self._logs[-1]) if runs_bench(self.spec.argv) else 0

    async def _serve(self, server: EngineServer) -> int:
        """Until the server exits; returns its exit code."""
        if not server.suffer(self.fault):  # the fault came while the engine started
            await server.close()
            return START_AGAIN
        self.server = server
        self._servers.add(self.address, server)
        self.status.container.ready = True
        await self._publish()
        exit_code = await asyncio.shield(server.exited)
        await self._forget_server(server)
        if exit_code == START_AGAIN:
            container = self.status.container
            container.ready = False
            await self._publish()
            # Not ready since before it started: it loads its model, and does not hang.
            container.started_at = time.time()
            await self._publish()
        return exit_code

    async def _forget_server(self, server: EngineServer) -> None:
        if self.server is server:
            self.server = None
            self._servers.remove(self.address)
            await server.close()

    # The end of the pod

    async def _terminate(self, grace_seconds: float) -> None:
        had_server = self.server is not None
        await self._event("Normal", "Killing", f"Stopping container {self.spec.container}")
        try:
            async with asyncio.timeout(grace_seconds):
                await self._stop_gently()
        except TimeoutError:
            log.info("pod.grace_over", pod=self.spec.name)
        if self.server is not None:
            self.server.kill()
        if self._life is not None:
            # A server that exited ends the life by itself; without a server there is nothing left to wait for.
            await asyncio.wait([self._life], timeout=2.0 if had_server else 0.0)
            self._life.cancel()
        await self._delete()

    async def _stop_gently(self) -> None:
        if self.server is None:
            return
        await asyncio.sleep(self.spec.pre_stop_seconds * self._timing.time_scale)
        server = self.server
        if server is not None:
            await server.terminate(time.time())

    async def _delete(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.spec.uid}}
        while True:
            try:
                await self._api.delete(self.spec.path, body)
            except ApiError as error:
                if error.status not in (404, 409):
                    log.warning("pod.delete_failed", pod=self.spec.name, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("pod.delete_failed", pod=self.spec.name, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            return

    # What is reported to the API

    async def _publish(self) -> None:
        """Writes the status, unless the pod is already gone."""
        while True:
            try:
                await self._api.merge(f"{self.spec.path}/status", self.status.body(time.time()))
            except ApiError as error:
                if error.status == 404:
                    return
                log.warning("pod.status_refused", pod=self.spec.name, error=str(error))
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("pod.status_failed", pod=self.spec.name, error=str(error))
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _event(self, kind: str, reason: str, message: str) -> None:
        now = stamp(time.time())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.spec.name}.", "namespace": self.spec.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": self.spec.name,
                "namespace": self.spec.namespace,
                "uid": self.spec.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self.spec.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.create(f"/api/v1/namespaces/{self.spec.namespace}/events", body)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            # Events are best effort on a real node too.
            log.warning("event.lost", pod=self.spec.name, reason=reason, error=str(error))


def _report(task: asyncio.Task[None]) -> None:
    """A worker's task is not awaited until its pod goes, so its errors must be reported here."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("pod.worker_failed", task=task.get_name(), error=repr(error), exc_info=error)


async def _never() -> int:
    await asyncio.Event().wait()
    return 0
