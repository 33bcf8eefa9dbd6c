"""What measures a workload: samples, pages of metrics, history, logs, GPUs, and who answers for a signal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.target import Target
from bot.domain.signals.gpu_query import GpuQuery
from bot.domain.signals.load_log import LoadPoint
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import STARTS_AT, ProbeSignal, SignalSpec
from bot.flow.ports.cluster import Replica


class SampleStore(Protocol):
    async def add(self, workload: str, scrapes: Sequence[Scrape]) -> None: ...

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]: ...


class LoadLog(Protocol):
    """Each workload's load in slots of five minutes, for a little more than a day."""

    async def add(self, workload: str, point: LoadPoint) -> None:
        """Stores the point; it replaces another point of the same slot."""
        ...

    async def all(self, workload: str) -> Sequence[LoadPoint]:
        """Every stored point, oldest first."""
        ...


@dataclass(frozen=True)
class ReadContext:
    """What a reading needs to know of a run: the target, its start, and the replicas that were picked."""

    target: Target
    incident_id: str
    opened_at: float
    picked: Mapping[str, str]
    settings: Mapping[str, float | str | bool]
    moments: Mapping[str, float] = field(default_factory=dict)
    """Possible ends of a window besides now: `incident.starts_at`, and `results.<state>.<signal>` once it was read."""
    alerts: Sequence[Alert] = ()
    """The incident's alerts."""
    handed_out: Sequence[Mapping[str, Any]] = ()
    """The flag edits that the owner of the workload was last given to make."""
    entered_at: float = 0.0
    """When the run entered its state."""
    shares_lists: bool = False
    """Whether lists of the cluster may be a second old. Never for a change, nor once the incident changed something."""

    @property
    def began_at(self) -> float:
        """When the trouble began according to the alert; the bot may have received it hours later."""
        return min(self.opened_at, self.moments.get(STARTS_AT, self.opened_at))


MAX_PAGE_BYTES = 4 * 1024 * 1024
"""A page of vLLM 0.32 has 53 kB for each engine rank, a node's exporter less; a larger page is not a metrics page."""


@dataclass(frozen=True)
class PodPage:
    """One page of one pod. Direct clients need the address; requests through the API server need namespace and pod."""

    namespace: str
    pod: str
    address: str
    port: int
    path: str = "/metrics"


class PodPages(Protocol):
    async def read(self, page: PodPage) -> str:
        """The text, at most `MAX_PAGE_BYTES`; the caller sets the deadline. Raises `SourceError` with the reason."""
        ...


class Snapshots(Protocol):
    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """As `Cluster.snapshot`, the only part of the cluster that reading needs."""
        ...


class Replicas(Protocol):
    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        """The running replicas of the workload and the incident's canary. Raises `ClusterError` without an answer."""
        ...


class Scraper(Protocol):
    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        """One scrape for each replica, in order; without an answer in time, `error` is set instead of values."""
        ...


class History(Protocol):
    source: str
    has_whole_pages: bool
    """Whether `between` returns all values of every metric, whatever it is asked for."""

    async def sample(self, context: ReadContext) -> None:
        """Adds the replicas' present values to the history, if the history does not record them by itself."""
        ...

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        """The stored values of these metrics in this time. Raises `SourceError` or `ClusterError` without an answer.

        `step`: how many seconds may lie between two of them, where fewer are faster to read; 0: all there are.
        """
        ...


class Router(Protocol):
    """The router in front of the engines. Each method raises `SourceError` with the reason if it has no value."""

    async def error_share(self, target: Target) -> float:
        """The share of requests that the router answered with an error, its own or the engines'."""
        ...

    async def latency_p99(self, target: Target) -> float:
        """The p99 of whole requests as clients see it, in seconds."""
        ...


MemoryKind = Literal["gpu", "host"]
"""Free memory of GPUs in MiB, or memory of containers on the host in bytes."""


class MemoryHistory(Protocol):
    """Prometheus' history of memory. Each method raises `SourceError` if nothing was recorded."""

    async def least_free_mib(self, namespace: str, pods: Sequence[str]) -> float:
        """The least free memory of any GPU of these pods in a whole day, in MiB."""
        ...

    async def day_before(
        self, what: MemoryKind, namespace: str, pods: Sequence[str], at: float, *, of: str = ""
    ) -> Sequence[Sequence[tuple[float, float]]]:
        """The day before `at`: points of time and value, one series for each GPU or container.

        `gpu`: free memory in MiB; `host`: memory of the container in bytes. `of`: a Deployment whose pods of that day
        are included.
        """
        ...


class RegisterRecord(Protocol):
    """Prometheus' record of GPU registers."""

    async def xids(self, uuids: Sequence[str], start: float, end: float) -> Mapping[str, Sequence[tuple[float, float]]]:
        """Points of time and XID register by GPU, oldest first. Raises `SourceError` without an answer."""
        ...


class PodLogs(Protocol):
    async def read(
        self,
        namespace: str,
        pod: str,
        *,
        previous: bool = False,
        tail_lines: int | None = None,
        since: float | None = None,
    ) -> str | None:
        """The log of the pod's engine container: its first MiB, or all from the second `since` on, or its last lines.

        None if there is none: no such container yet, or no previous one. Raises `CutLogError` if what is asked for is
        larger than a MiB, and `ClusterError` if there is no answer.
        """
        ...


class JobLogs(Protocol):
    async def last_lines(self, namespace: str, pod: str, *, lines: int) -> str | None:
        """The end of the log of the pod's main container, with fewer lines if they are long; None if there is none.

        Raises `CutLogError` if they are too long, and `ClusterError` if there is no answer.
        """
        ...


class Finder(Protocol):
    async def pods_labelled(self, labels: Mapping[str, str]) -> Sequence[Obj]:
        """Pods of any namespace with these labels. Raises `ClusterError` if there is no answer or no permission."""
        ...

    async def node_events(self) -> Sequence[Obj]:
        """Events on Node objects that the cluster still has. Raises `ClusterError` without an answer or permission."""
        ...


class GpuShell(Protocol):
    async def ask(self, namespace: str, pod: str, container: str, query: GpuQuery) -> str:
        """The output of the query's program, even if it failed. Raises `SourceError` if it could not be run.

        Bounded in bytes; the caller sets the deadline.
        """
        ...


class ProbeReader(Protocol):
    async def __call__(self, request: ProbeRequest) -> Reading:
        """Answers within the reader's deadline. Raises `BotError` if the source does not answer."""
        ...


@dataclass(frozen=True)
class ProbeRequest:
    """One probe that a state requests. The cluster is read once for all probes of a reading."""

    name: str
    spec: ProbeSignal
    context: ReadContext
    at: float
    snapshot: Callable[[], Awaitable[ClusterSnapshot]]


class Signals(Protocol):
    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        """One reading for each wanted name, each within its deadline. Never raises: a failed reading is `unknown`."""
        ...

    async def sample(self, context: ReadContext) -> None:
        """Scrapes the replicas once into the history; a replica that fails is recorded as absent, not as zero."""
        ...
