"""What the flow needs from the outside, as Protocols.

The docstrings are the contract that every adapter and every fake implements.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from bot.domain.approvals.grant import Approved, Authority, Policy
from bot.domain.changes.plan import Call
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.effect import Effect, Lane
from bot.domain.incidents.event import Commanded, Event, OpenedByHand
from bot.domain.incidents.run import Offer, PageAction, Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.epoch import Epoch
from bot.domain.kernel.errors import MessengerError
from bot.domain.kernel.planned_window import PlannedWindow, WindowKind
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import NO_LABELS
from bot.domain.signals.gpu_query import GpuQuery
from bot.domain.signals.load_log import LoadPoint
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import STARTS_AT, ProbeSignal, SignalSpec

# --- storage ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intake:
    """One accepted alert that is not routed yet; `entry_id` names it in the storage."""

    entry_id: str
    alert: Alert
    truncated: int = 0
    """How many alerts of this webhook Alertmanager left out."""


@dataclass(frozen=True)
class HeldAlert:
    """A firing alert that opens no incident while its target is in maintenance."""

    entry_id: str
    """What is stored: a newer alert with the same fingerprint replaces it."""
    alert: Alert
    target: Target
    truncated: int = 0


@dataclass(frozen=True)
class Owed:
    """One effect that a run owes, taken by this process under a lease."""

    incident_id: str
    effect: Effect
    attempts: int
    token: str
    """The value at the time it was taken: an effect that was owed again since then stays owed."""
    run: Run | None = None
    """The run when the effect was taken; None if it is not stored any more."""
    taken_at: float = 0.0
    """The storage's time."""
    version: int = 0
    """The version of the run that owed it last."""
    shown: Mapping[str, str] | None = None
    """With an effect that shows the incident: the messenger's record of it, as stored."""


@dataclass(frozen=True)
class Waiting:
    """One incident at one moment: the run, and the uncommitted events of its inbox, oldest first."""

    run: Run
    events: Sequence[Event]
    now: float
    """The storage's time."""


@dataclass(frozen=True)
class Routed:
    """An alert that was given to an incident."""

    waiting: Waiting | None = None
    """The incident with the alert in its inbox; None if another process has routed it."""


@dataclass(frozen=True)
class Committed:
    """What a decision has left to do."""

    waiting: Waiting
    """The incident after it, with the events that came meanwhile."""
    taken: Sequence[Owed] = ()
    """Its effects that this process now has under a lease; another process performs the others."""


@dataclass(frozen=True)
class Settled:
    """What the end of an effect has left to do."""

    again: Owed | None
    """The effect was owed again meanwhile, and this process has taken it again."""
    waiting: Waiting | None = None
    """The incident with the outcome in its inbox; None if nothing of it is to be read now, or it is not stored."""


RouteKind = Literal["opens", "extends", "reopens", "tells"]
"""`tells`: an alert that belongs to a parked incident, or a late one of a closed incident, opens nothing."""


class Joining(NamedTuple):
    """An accepted alert for an incident that is open."""

    entry: Intake
    bundle: Bundle
    """What it would open."""
    offer: Offer | None
    """The same, for the incident to decide on; None if it is the incident's own playbook."""


class AlertStore(Protocol):
    async def accept(self, alerts: Sequence[Alert], *, truncated: int) -> int:
        """Stores all or none before it returns, stamped with the storage's time; returns how many were new.

        A repeat (same fingerprint, startsAt and status as its last) within the hour is not stored again. Raises
        `StorageUnavailableError` if it is not certain that they are stored.
        """
        ...

    async def route_again(self, alert: Alert, *, truncated: int) -> None:
        """Returns an alert to the intake that was accepted before."""
        ...

    async def intake(self, limit: int) -> Sequence[Intake]:
        """The oldest accepted alerts that are not routed yet, in order. Reading removes nothing."""
        ...

    async def route(
        self, entry: Intake, run: Run, how: RouteKind, *, bundle: Bundle, offer: Offer | None = None
    ) -> Routed | None:
        """In one step: creates, extends or reopens the incident, appends the alert event, ends the intake entry.

        The bundle is kept for a run that opens; with an offer, which the event then carries, it is that offer's.

        Returns None, and changes nothing, if the open incident of the target is not what the caller saw. An entry that
        another process has routed since then counts as routed.
        """
        ...

    async def join(self, alerts: Sequence[Joining], run: Run) -> Routed | None:
        """As `route` with "extends", for alerts of the same target in order, if the stored run is this one too."""
        ...

    async def hold(self, entry: Intake, target: Target) -> None:
        """Ends the intake entry and keeps the alert until it is released; it replaces one with its fingerprint."""
        ...

    async def held(self) -> Sequence[HeldAlert]: ...

    async def release(self, held: HeldAlert) -> None:
        """Returns a held alert to the intake, once. Does nothing if a newer one has replaced it."""
        ...

    async def let_go(self, *fingerprints: str) -> None:
        """Forgets held alerts, because they are resolved."""
        ...

    async def keep_unmatched(self, entry: Intake, reason: str) -> None:
        """Ends the intake entry and keeps the alert in the bounded list of unmatched ones."""
        ...

    async def unmatched(self, limit: int) -> Sequence[tuple[Alert, str]]: ...


@dataclass(frozen=True)
class OpenPage:
    """A page of open incidents, and how many are open in total."""

    count: int
    runs: Sequence[Run]
    """Newest first."""


class Standing(NamedTuple):
    """The incidents of one target, by their ids."""

    open: str | None
    """The one that has the target's slot."""
    last: str | None
    """The newest closed one."""
    parked: Sequence[str]
    """Oldest first."""
    at: float
    """The storage's time."""
    windows: Sequence[PlannedWindow] = ()
    """Those that people planned, including any that have ended."""


class RunStore(Protocol):
    async def now(self) -> float:
        """The storage's time, epoch seconds: the one clock that all replicas of the bot share."""
        ...

    async def next_incident_id(self) -> str: ...

    async def open(self, run: Run, event: OpenedByHand, *, bundle: Bundle, submission_id: str) -> str | None:
        """In one step: creates the incident, keeps its bundle, appends its first event. Returns the id of the incident.

        Another incident's id if this submission opened that one before; None, and nothing stored, if the target has an
        open incident.
        """
        ...

    async def reopen(self, run: Run, event: Commanded) -> bool:
        """In one step: makes the closed incident its target's open one again and appends the event, once by its id.

        Returns False, and stores nothing, if the target has another open incident, or a newer closed one.
        """
        ...

    def known(self, target_key: str) -> Run | None:
        """The open incident of this target as this process saw it last, without asking; it may have changed since."""
        ...

    async def standing(self, target_key: str) -> Standing:
        """What an alert about this target meets, read at one moment."""
        ...

    async def open_incident(self, target_key: str) -> str | None:
        """The incident that has the target's slot."""
        ...

    async def parked_incidents(self, target_key: str) -> Sequence[str]:
        """The parked incidents of a target, oldest first."""
        ...

    async def last_incident(self, target_key: str) -> str | None:
        """The newest closed incident of a target."""
        ...

    async def open_incidents(self) -> Sequence[str]:
        """Including the parked ones."""
        ...

    async def open_page(self, limit: int) -> OpenPage:
        """The newest open incidents: of thousands only as many are read as people can read."""
        ...

    async def recent_incidents(self, limit: int) -> Sequence[str]:
        """The newest incidents, open and closed, newest first."""
        ...

    async def incidents_about(self, subject: str, limit: int) -> Sequence[str]:
        """The newest incidents of a subject (see `subjects`), open and closed, newest first."""
        ...

    async def open_targets(self) -> Mapping[str, str]:
        """Target key to the id of its open incident, or of a parked one."""
        ...

    async def incidents_reading(self) -> frozenset[str]:
        """The incidents that wait for a reading or for what they watch."""
        ...

    async def load(self, incident_id: str) -> Run | None: ...

    async def load_all(self, incident_ids: Sequence[str], *, mentioning: str = "") -> Sequence[Run]:
        """Those that are stored, in this order, in a few round trips.

        May leave out incidents without the text `mentioning` anywhere: parsing a run takes longer than finding a text.
        Leaves out those that a newer version of the bot has stored, and logs it.
        """
        ...

    async def look(self, incident_id: str) -> Waiting | None:
        """None if the incident is not stored."""
        ...

    async def inbox(self, incident_id: str) -> Sequence[Event]:
        """Events that are not committed yet, oldest first."""
        ...

    async def append(self, incident_id: str, events: Sequence[Event]) -> bool:
        """Stores events in the inbox, stamped with the storage's time, each once by its id.

        They are stored when it returns. False if the incident does not exist.
        """
        ...

    async def commit(
        self, run: Run, *, consumed: int, entries: Sequence[Chained], effects: Sequence[Effect]
    ) -> Committed:
        """Writes the run, its timeline entries and its effects, and drops the oldest `consumed` events: all or nothing.

        Its effects are leased to this process, as if it had taken each, unless another process performs one.

        Raises `StaleRunError` unless `run.version` is one ahead of the stored version, and if a parked or closed
        incident would continue while another one has its target. Effects of earlier visits are void. A parked incident
        releases its target at once, a closed one once no waiting event can reopen it.
        """
        ...

    async def timeline(self, incident_id: str) -> Sequence[Chained]: ...

    async def whole_timeline(self, incident_id: str) -> tuple[Sequence[Chained], StoredHead | None]:
        """A timeline and its head as the run has stored it, both of one moment; no head if the run is gone."""
        ...

    async def bundle(self, digest: str) -> Mapping[str, str] | None:
        """The resolved playbook source and effective settings that runs with this digest keep."""
        ...

    async def pending(self, limit: int) -> Sequence[str]:
        """Incidents whose inbox has waited longer than a second or whose deadline has passed."""
        ...

    async def count_event_failure(self, incident_id: str, event_id: str) -> int:
        """Counts a failed attempt to handle an event; returns how many there were."""
        ...


@dataclass(frozen=True)
class StorageSeen:
    """The state of the storage as one process sees it in one check."""

    epoch: Epoch | None
    counter: int | None
    """The number of the newest incident; None if there never was one."""
    server: str = ""
    """Identifies the running server; it changes with a restart or a failover."""
    was_promoted: bool = False
    """Whether it was a replica before, and may lack the last writes."""


class EpochStore(Protocol):
    async def look(self) -> StorageSeen: ...

    async def begin(self, epoch: Epoch) -> Epoch:
        """Begins this epoch and its incident numbers; returns the epoch that counts: another process may be first."""
        ...

    async def raise_counter(self, least: int) -> None:
        """Makes the next incident's number higher than this."""
        ...


class EffectStore(Protocol):
    async def owed_now(self, limit: int) -> Sequence[tuple[str, str, Lane]]:
        """(incident, effect id, lane) of effects that are due and free, or whose lease has expired, oldest first."""
        ...

    async def keep_time(self) -> None:
        """Checks whether the storage's clock went back since the last check, at least once a second.

        Waiting effects and leases then end no later than they would have.
        """
        ...

    async def take(self, incident_id: str, effect_id: str) -> Owed | None:
        """Takes one effect, with its run, under a lease of this process; this process may take it again.

        None if another process has it or it is void.
        """
        ...

    async def owe_now(self, incident_id: str, effect: Effect, *, again: bool) -> bool:
        """Makes a waiting effect due at once; `again`: also one that is not owed (any more).

        Returns False, and changes nothing, if a process is performing it or there is nothing to do.
        """
        ...

    async def renew(self, owed: Owed) -> bool:
        """Extends the lease; False if it was lost and the work must stop before its next outside call."""
        ...

    async def settle(
        self, owed: Owed, outcome: Sequence[Event], shown: Mapping[str, str] = MappingProxyType({})
    ) -> Settled:
        """Ends the effect: appends its outcome to the inbox (once by id) and no longer owes it.

        `shown`: what the messenger has to remember about the incident's messages. It is stored with the rest, unless
        another process has taken the effect.

        An effect that was owed again is taken again, as `take` does. One that another process has taken stays with
        that process.
        """
        ...

    async def put_back(self, owed: Owed, *, after_seconds: float, failed: bool) -> int:
        """Owes the effect again later; returns how often it has failed.

        Changes nothing if the lease was lost and another process now performs the effect.
        """
        ...


@dataclass(frozen=True)
class WatchSample:
    """One sample of a watch: its time, and the result of each named part (`held`, `not held`, or `unknown: why`)."""

    at: float
    parts: Mapping[str, str]


class WatchLog(Protocol):
    """The samples of one watch, so that a restart neither forgets nor repeats them."""

    async def add(self, incident_id: str, visit: int, sample: WatchSample) -> Sequence[WatchSample]:
        """Returns all samples of this visit with this one, oldest first."""
        ...


class Playbooks(Protocol):
    def match(self, labels: Mapping[str, str]) -> Sequence[CompiledPlaybook]:
        """Playbooks whose matchers match an alert with these labels, highest priority first."""
        ...

    def bundle(self, name: str, target: Target, labels: Mapping[str, str] = NO_LABELS) -> Bundle | None:
        """This playbook and all that it may divert to, with the settings for that target; None if it does not exist.

        The alert's labels may name the target's SLO.
        """
        ...


class PlannedWindows(Protocol):
    async def plan(self, window: PlannedWindow) -> None:
        """Stores the window. It replaces one of the same kind for the same targets."""
        ...

    async def end(self, kind: WindowKind, targets: Sequence[str]) -> bool:
        """Ends the window of this kind for these targets; False if there is none."""
        ...

    async def planned(self, *, at: float) -> Sequence[PlannedWindow]:
        """The windows that have not ended at this time."""
        ...


ClaimVerdict = Literal[
    "claimed", "already_claimed", "halted", "lease_held", "room_held", "breaker_open", "node_breaker_open",
    "too_many_gpus", "observe_only", "lost",
]  # fmt: skip


EVERYTHING = "*"
"""In place of an incident id: the kill switch for all incidents."""


@dataclass(frozen=True)
class HaltWord:
    by: str = ""
    why: str = ""


class CallClaims(Protocol):
    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        """Whether this call may already have been sent."""
        ...

    async def claim(  # noqa: PLR0913 - everything that may forbid a call
        self,
        incident_id: str,
        call_id: str,
        *,
        workload_key: str,
        lease_keys: Sequence[str],
        disruption: str,
        node: NodeDisruption | None = None,
        playbook: str = "",
        effect_id: str = "",
    ) -> ClaimVerdict:
        """Right before a call, in one step: not halted, leases are this incident's, breakers have room, claim written.

        A lease key that begins with `room/` is held until the new pods are seen. `disruption`: what the workload's
        breaker counts, once within its time; empty: nothing. `node`: what the node's breaker counts. `effect_id`: the
        effect that sends the call; empty if none does. `already_claimed`: this call may already have been sent; read
        the cluster before sending. `observe_only`: the settings say so for this playbook or workload, whatever was
        granted. `lost`: this process does not perform the effect any more. Raises if the storage does not answer: no
        call without a claim.
        """
        ...

    async def breaker_open_until(self, workload_key: str, disruption: str, *, at: float) -> float:
        """Until when the workload's breaker refuses this change; 0 if it has room for it now."""
        ...

    async def reset_breakers(self, workload_key: str, *, cluster: str) -> None:
        """Resets both counts: changes of the workload, and nodes. Nodes that are cordoned now still count."""
        ...

    async def hold(self, incident_id: str, lease_keys: Sequence[str]) -> None:
        """While nothing is sent: extends those of these leases that are this incident's."""
        ...

    async def release(self, incident_id: str) -> None:
        """Releases every lease of the incident."""
        ...

    async def halted_by(self, incident_id: str) -> str:
        """Who halted (this incident or all), or an empty text."""
        ...

    async def halts(self) -> Mapping[str, str]:
        """Incident, or `EVERYTHING`, to who halted it."""
        ...

    async def set_halt(self, incident_id: str | None, *, by: str) -> None:
        """Halts one incident, or all if it is None; an empty `by` lifts the halt."""
        ...

    async def set_halt_of_all(self, word: HaltWord, *, halts: bool) -> None:
        """Halts everything or lifts that halt, in one write however many incidents are open; stores who and why."""
        ...

    async def halt_word(self) -> HaltWord:
        """Who last halted everything or lifted that halt, and why."""
        ...


# --- readings ---------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Replica:
    """One pod that serves the engine, and the address of its pages: never a Service, which picks any pod."""

    name: str
    uid: str
    address: str
    port: int = 8000
    role: Literal["target", "canary"] = "target"
    in_rotation: bool | None = None
    node: str = ""
    namespace: str = ""


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


class MemoryHistory(Protocol):
    """Prometheus' history of memory. Each method raises `SourceError` if nothing was recorded."""

    async def least_free_mib(self, namespace: str, pods: Sequence[str]) -> float:
        """The least free memory of any GPU of these pods in a whole day, in MiB."""
        ...

    async def day_before(
        self, what: Literal["gpu", "host"], namespace: str, pods: Sequence[str], at: float, *, of: str = ""
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


# --- cluster ----------------------------------------------------------------------------------------------------


class Workloads(Protocol):
    async def workload(self, namespace: str, name: str) -> Target | None:
        """The workload of that name, of any kind; None if there is none. Raises `ClusterError` without an answer."""
        ...


class Cluster(Protocol):
    async def resolve(self, alert: Alert) -> Target | None:
        """The workload behind an alert's labels; None if there is none. Raises `ClusterError` without an answer."""
        ...

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """The cluster state for planning, read now. Raises `ClusterError` if the workload itself cannot be read."""
        ...

    async def lacking(self, calls: Sequence[Call]) -> str:
        """The permissions that these calls and their undo need and the bot lacks; empty if none.

        May be a minute old. Raises `ClusterError` if there is no answer.
        """
        ...

    async def dry_run(self, call: Call) -> str:
        """Sends the call as a server-side dry run; an empty text if it would be accepted, else the server's reason."""
        ...


@dataclass(frozen=True)
class Sent:
    result: Literal["done", "failed", "unclear"]
    detail: str = ""
    retry_after_seconds: float | None = None
    """Set if nothing was done and the same call may be tried again later (429, or it could not be sent)."""


class ClusterWriter(Protocol):
    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        """Sends one call of the approved plan, stamped with its id. Raises `ApprovalError` if the plan lacks it."""
        ...

    async def look(self, call: Call, *, call_id: str) -> Literal["done", "not_done", "unclear"]:
        """After a possible earlier attempt: stamp or after-value present, before-value intact, or neither."""
        ...


@dataclass(frozen=True)
class Generated:
    """The result of a long generation. `refused`: certainly nothing runs; `broken`: it began and did not return."""

    result: Literal["ended", "broken", "refused"]
    tokens: int | None = None
    """Prompt and answer tokens, as the engine counted them."""
    detail: str = ""


class Generations(Protocol):
    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        """Sends the call's one generation to this replica and waits for its end; cancelling it also ends it there.

        The caller sets the deadline. Raises `ApprovalError` unless the call is in the approved plan and about this
        replica.
        """
        ...


# --- people -----------------------------------------------------------------------------------------------------


class People(Protocol):
    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        """Reads once whether this person may decide under the policy; unreadable means not allowed, with the reason."""
        ...

    async def may_operate(self, user: str, *, at: float) -> Authority:
        """Whether this person may answer questions, halt, resume, resolve."""
        ...


class Impatient(Protocol):
    """Skips a messenger's waits for what somebody wants to see now."""

    async def want_card(self, incident_id: str) -> None:
        """Somebody views this incident: its card no longer waits for its turn."""
        ...

    def ask_again(self) -> None:
        """Retries at once after a refusal, not when the retry is due."""
        ...


Draw = Callable[[], Awaitable[bytes]]


class PartlyShownError(MessengerError):
    """Some messages are there, as `events` report; the rest is shown later."""

    def __init__(self, reason: str, events: Sequence[Event], *, retry_after_seconds: float) -> None:
        super().__init__(reason, lasting=False, retry_after_seconds=retry_after_seconds)
        self.events = tuple(events)


class Displayed(NamedTuple):
    """What was shown."""

    events: Sequence[Event] = ()
    """`Posted` for each new message."""
    changed: Mapping[str, str] = MappingProxyType({})
    """What the messenger has to remember about the messages, and has not stored itself."""


class Messenger(Protocol):
    async def show(self, run: Run, shown: Mapping[str, str] | None = None) -> Displayed:
        """Brings the incident's card and thread up to date.

        `shown`: what is stored about its messages, if it has just been read; then the caller stores what has changed.

        Raises `PartlyShownError` if something is left to show later, and `MessengerError` if Slack refused; what was
        shown before that stays recorded.
        """
        ...

    async def notify(self, user: str, channel: str, text: str, *, response_url: str) -> None: ...

    async def announce(self, text: str, *, mentions: Collection[str] = ()) -> None:
        """Posts a message that belongs to no incident in the channel. Raises `MessengerError` if Slack refused.

        A person whom the text mentions, as `<@U0ANA>`, is notified only if `mentions` names them.
        """
        ...

    async def upload(self, run: Run, *, key: str, name: str, content: Draw, comment: str) -> None:
        """Uploads a file to the incident's thread, once by `key`: made again after a crash, its content may differ.

        `content` is called only when the file has to be uploaded.
        """
        ...

    async def illustrate(self, run: Run, slot: str, *, name: str, draw: Draw, caption: str) -> None:
        """Shows a picture in the message at `slot`, or as an upload in the thread if Slack refuses that.

        `draw` is called only when the picture has to be uploaded. Raises `MessengerError` to be called again.
        """
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Epoch seconds."""
        ...


class Silences(Protocol):
    """Every method raises `SourceError` if there is no answer."""

    async def create(self, labels: Mapping[str, str], *, starts_at: float, ends_at: float, why: str, key: str) -> str:
        """Creates a silence for alerts with all of these labels and returns its id. The same `key` creates it once."""
        ...

    async def expire(self, silence: str) -> None: ...


@dataclass(frozen=True)
class PageCall:
    """One call to a team's pager: the trigger of a page, its acknowledgement, or its end."""

    key: str
    """The pager deduplicates by it: one page for each team and incident."""
    team: str
    action: PageAction
    at: float
    text: str
    incident: str
    title: str
    target: str
    link: str = ""
    """The incident's card in Slack."""


class ReportSink(Protocol):
    """A place outside where reports of closed incidents are kept."""

    name: str

    async def put(self, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
        """Keep these files, by name; those of an earlier close are replaced. Raises `SourceError`."""
        ...

    async def check(self) -> None:
        """Try whether reports can be kept there. Raises `SourceError`."""
        ...


class Pager(Protocol):
    async def send(self, team: str, call: PageCall) -> str:
        """Returns the name of the pager that accepted it. Raises `PagerError`."""
        ...


class FiringAlerts(Protocol):
    async def firing(self) -> Sequence[Alert]:
        """The alerts that fire now and would be sent; raises `SourceError` if there is no answer."""
        ...
