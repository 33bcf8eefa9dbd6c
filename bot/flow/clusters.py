"""The ports of each cluster. An incident works with the ports of its own cluster, chosen once for each effect.

A cluster that is no longer in the settings is like one that does not answer: nothing is known of it, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import ClusterError, UnknownClusterError
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import SignalSpec
from bot.flow.ports.cluster import Cluster, ClusterWriter, EarlierAttempt, Generated, Generations, Replica, Sent
from bot.flow.ports.readings import History, JobLogs, ReadContext, Scraper, Signals
from bot.flow.sample_replicas import LeftOut


@dataclass(frozen=True)
class ClusterPorts:
    """Everything that reads or changes one cluster."""

    cluster: Cluster
    writer: ClusterWriter
    job_logs: JobLogs
    signals: Signals
    history: History
    """The history for charts."""
    samples: History
    """The bot's own samples: the load of single replicas."""
    scraper: Scraper
    generations: Generations
    left_out: LeftOut = field(default_factory=LeftOut)


def absent(error: UnknownClusterError, now: Callable[[], Awaitable[float]]) -> ClusterPorts:
    """The ports of a cluster that is not in the settings. `now` returns epoch seconds, the time of its readings."""
    nothing = AbsentCluster(str(error), now)
    return ClusterPorts(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)


class AbsentCluster:
    """Every port of a cluster that is not in the settings."""

    source = "the settings"
    has_whole_pages = True

    def __init__(self, why: str, now: Callable[[], Awaitable[float]]) -> None:
        self._why, self._now = why, now

    def _no_answer(self) -> NoReturn:
        raise ClusterError(self._why)

    async def resolve(self, alert: Alert) -> Target | None:
        self._no_answer()

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        self._no_answer()

    async def lacking(self, calls: Sequence[Call]) -> str:
        self._no_answer()

    async def dry_run(self, call: Call) -> str:
        self._no_answer()

    async def last_lines(self, namespace: str, pod: str, *, lines: int) -> str | None:
        self._no_answer()

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        self._no_answer()

    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        self._no_answer()

    async def sample(self, context: ReadContext) -> None:
        """There is nothing to sample."""

    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        now = await self._now()
        return {name: unknown(name, self._why, at=now, source=self.source) for name in wanted}

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        return Sent("failed", f"nothing was sent: {self._why}")

    async def look(self, call: Call, *, call_id: str) -> EarlierAttempt:
        return "unclear"

    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        return Generated("refused", detail=self._why)


class ProxiedGenerations:
    """The `Generations` port of a cluster whose pods are not reached at their addresses: it sends nothing."""

    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        return Generated("refused", detail="pods of this cluster are read through its API server (sampling.through)")
