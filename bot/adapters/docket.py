"""Timers by docket: it calls back at about the wanted time. It only wakes; deadlines live in the run.

Only ids are stored, since docket unpickles its arguments: access to Redis is code execution (see the threat model in
DECISIONS.md). While Redis is unavailable its worker pauses, and reconcile is the fallback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from docket import Docket, Worker

log = structlog.get_logger()
CHECK_EVERY = timedelta(milliseconds=250)
BEGIN_AGAIN_SECONDS = 5.0


class DocketAlarms:
    """The `Alarms` port. With several replicas of the bot, one of them is called."""

    def __init__(self, redis_url: str, *, tag: str) -> None:
        separator = "&" if "?" in redis_url else "?"
        url = redis_url if "max_connections" in redis_url else f"{redis_url}{separator}max_connections=500"
        self._docket = Docket(name=f"{tag}-alarms", url=url, execution_ttl=timedelta(0))
        self._worker: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self, wake: Callable[[str], None]) -> None:
        await self._docket.__aenter__()

        async def wake_incident(incident_id: str) -> None:
            wake(incident_id)

        self._task = wake_incident
        self._docket.register(wake_incident)
        self._worker = asyncio.create_task(self._work(), name="docket worker")

    async def _work(self) -> None:
        # docket's worker swallows cancellation: only this flag ends it for good.
        while not self._is_stopping:
            try:
                await self._work_on()
            except Exception:
                # The top of this task, which nobody awaits: a failed worker is restarted, and the failure is logged.
                log.exception("alarms.failed")
                await asyncio.sleep(BEGIN_AGAIN_SECONDS)

    async def _work_on(self) -> None:
        async with Worker(
            self._docket, concurrency=8, minimum_check_interval=CHECK_EVERY, scheduling_resolution=CHECK_EVERY
        ) as worker:
            await worker.run_forever()

    async def wake_at(self, incident_id: str, at: float) -> None:
        when = datetime.fromtimestamp(at, UTC)
        await self._docket.add(self._task, when=when, key=f"{incident_id}:{at:.3f}")(incident_id)

    async def stop(self) -> None:
        self._is_stopping = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        await self._docket.__aexit__(None, None, None)
