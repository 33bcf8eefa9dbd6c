"""The engines of a fleet in memory: idle, until one gets a long generation, which takes blocks while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.kernel.errors import ApprovalError
from bot.domain.signals.scrape import Scrape
from bot.flow.ports.cluster import Generated, Replica

POOL, BLOCK = 1025.0, 16.0
SCRAPES = 2
"""A generation lasts for this many scrapes."""


class MemoryEngines:
    """`Scraper`, and what `Generations` sends to."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.sent: list[str] = []
        """Names of the replicas that were given a generation."""
        self.answer = Generated("ended", tokens=4112)
        self.usage = 0.125
        """Of the pool, while it generates."""
        self.lasts_for_ever = False
        self.company = 0.0
        """Requests of others, on every replica."""
        self.queue: Callable[[], float] = lambda: 0.0
        """Requests that wait on every replica."""
        self.begun = asyncio.Event()
        self._generates_on = ""
        self._scrapes = 0
        self._ended = asyncio.Event()

    def begin(self, approved: Approved, call: Call, replica: Replica) -> None:
        if call not in approved.plan.calls or replica.uid != call.target.uid:
            raise ApprovalError(f"not a call of the approved plan: {call.title}")
        self.sent.append(replica.name)
        self.begun.set()
        self._generates_on, self._scrapes, self._ended = replica.name, 0, asyncio.Event()

    async def end(self) -> Generated:
        try:
            await self._ended.wait()
        finally:
            self._generates_on = ""
        return self.answer

    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        return [self._scrape(replica) for replica in replicas]

    def _scrape(self, replica: Replica) -> Scrape:
        is_busy = replica.name == self._generates_on
        if is_busy:
            self._scrapes += 1
            if self._scrapes >= SCRAPES and not self.lasts_for_ever:
                self._ended.set()
        values = dict.fromkeys(("num_requests_running", "num_requests_waiting", "request_success"), 0.0)
        values |= {"num_gpu_blocks": POOL, "block_size": BLOCK, "kv_cache_usage_perc": self.usage if is_busy else 0.0}
        values["num_requests_running"] = float(is_busy) + self.company
        values["num_requests_waiting"] = self.queue()
        return Scrape(replica=replica.name, uid=replica.uid, at=self._now(), role=replica.role, ranks={"0": values})
