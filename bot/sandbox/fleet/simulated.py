"""Starts simulated engines."""

from __future__ import annotations

import asyncio
import time

from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engine import Pace
from bot.sandbox.fleet.engines import Fault
from bot.sandbox.fleet.pod_spec import PodSpec
from bot.sandbox.fleet.server import VllmServer
from bot.sandbox.fleet.startup import Failed, Installed, plan_start


class SimulatedEngines:
    """Engines of this process, which start in `startup_seconds`."""

    def __init__(self, startup_seconds: float, pace: Pace | None = None) -> None:
        self._startup_seconds = startup_seconds
        self._pace = pace or Pace()

    async def start(self, spec: PodSpec, address: str, log: ContainerLog, fault: Fault) -> VllmServer | int:
        process_started_at = time.time()
        installed = Installed(spec.image, spec.env)
        plan = plan_start(list(spec.argv), spec.version, spec.port, installed=installed)
        if isinstance(plan, Failed):
            await asyncio.sleep(plan.share * self._startup_seconds)
            log.write(plan.lines, time.time())
            return plan.exit_code
        log.write(plan.early, time.time())
        await asyncio.sleep(self._startup_seconds)
        server = VllmServer(
            spec.name, plan, log, pace=self._pace, process_started_at=process_started_at, now=time.time()
        )
        await server.listen(address, spec.port)
        log.write(plan.late, time.time())
        return server

    async def close(self) -> None:
        """Nothing outlives a container."""
