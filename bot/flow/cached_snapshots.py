"""Cluster snapshots for reading: at most a second old, shared by all callers for the same workload.

Only for reading. Planning and applying read the cluster themselves: in a snapshot from before a call, the call would
look done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.target import Target
from bot.flow.ports.readings import Snapshots

VALID_SECONDS = 1.0
KEPT = 256


class CachedSnapshots:
    """The `Snapshots` port over another one."""

    def __init__(self, snapshots: Snapshots, now: Callable[[], float], *, valid_seconds: float = VALID_SECONDS) -> None:
        self._snapshots, self._now, self._valid = snapshots, now, valid_seconds
        self._asked: dict[tuple[str, str], tuple[float, asyncio.Future[ClusterSnapshot]]] = {}

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        key = (target.key, incident_id)
        asked = self._asked.get(key)
        if asked is None or self._is_old(*asked):
            asking = asyncio.ensure_future(self._snapshots.snapshot(target, incident_id=incident_id))
            # The first caller may be gone when it fails; the error belongs to the callers that still wait.
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._forget()
            asked = self._asked[key] = (self._now(), asking)
        # A caller that gives up does not cancel the read for the others.
        return await asyncio.shield(asked[1])

    def _is_old(self, asked_at: float, answer: asyncio.Future[ClusterSnapshot]) -> bool:
        failed = answer.done() and (answer.cancelled() or answer.exception() is not None)
        return failed or self._now() - asked_at >= self._valid

    def _forget(self) -> None:
        if len(self._asked) >= KEPT:
            self._asked = {key: asked for key, asked in self._asked.items() if not self._is_old(*asked)}
