"""What the flow needs from the outside, as Protocols.

The docstrings are the contract that every adapter and every fake keeps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bot.domain.approvals.grant import Approved, Authority, Policy
from bot.domain.changes.plan import Call
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.effect import Effect, Lane
from bot.domain.incidents.event import Commanded, Event, OpenedByHand
from bot.domain.incidents.run import Offer, Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.epoch import Epoch
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
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
    """How many alerts of its webhook Alertmanager left out."""


@dataclass(frozen=True)
class Owed:
    """One effect that a run owes, taken by this process under a lease."""

    incident_id: str
    effect: Effect
    attempts: int
    token: str
    """The value as it was taken: an effect that was owed again meanwhile stays owed."""
    run: Run | None = None
    """As it was when the effect was taken; None when it is not stored any more."""
    taken_at: float = 0.0
    """By the storage's time."""


@dataclass(frozen=True)
class Waiting:
    """One incident at one moment: the run, and the events that no commit has consumed, oldest first."""

    run: Run
    events: Sequence[Event]
    now: float
    """The storage's time."""


RouteKind = Literal["opens", "extends", "reopens", "tells"]
"""`tells`: a straggler of a closed incident is put on its timeline and opens nothing."""


class AlertStore(Protocol):
    async def accept(self, alerts: Sequence[Alert], *, truncated: int) -> int:
        """Store all or none before returning, stamped with the storage's time; return how many were new.

        A repeat (same fingerprint, startsAt and status as its last) within the hour is known and not stored again.
        Raise `StorageUnavailableError` when it cannot be known that they are stored.
        """
        ...

    async def intake(self, limit: int) -> Sequence[Intake]:
        """The oldest accepted alerts that no route has finished, in order. Reading takes nothing away."""
        ...

    async def route(
        self, entry: Intake, run: Run, how: RouteKind, *, bundle: Mapping[str, str], offer: Offer | None = None
    ) -> bool:
        """In one step: create, extend or reopen the incident, append the alert event, end the intake entry.

        The bundle is kept for a run that opens; with an offer, which the event then carries, it is that offer's.

        False, and nothing changed, when the open incident of the target is not what the caller saw. An entry that
        another process has routed meanwhile counts as routed.
        """
        ...

    async def keep_unmatched(self, entry: Intake, reason: str) -> None:
        """End the intake entry and keep the alert in the bounded list of unmatched ones."""
        ...

    async def unmatched(self, limit: int) -> Sequence[tuple[Alert, str]]: ...


@dataclass(frozen=True)
class OpenPage:
    """Some of the open incidents, and how many there are."""

    count: int
    runs: Sequence[Run]
    """The newest first."""


class RunStore(Protocol):
    async def now(self) -> float:
        """The storage's time, epoch seconds: the one clock that every replica of the bot agrees on."""
        ...

    async def next_incident_id(self) -> str: ...

    async def open(self, run: Run, event: OpenedByHand, *, bundle: Mapping[str, str], submission_id: str) -> str | None:
        """In one step: create the incident, keep its bundle, append its first event. The id of what was opened.

        Another incident's id when this submission opened that one before; None, and nothing stored, when the target
        has an open incident.
        """
        ...

    async def reopen(self, run: Run, event: Commanded) -> bool:
        """In one step: give the closed incident its target back and append the event, once by its id.

        False, and nothing stored, when the target has another open incident, or a newer closed one.
        """
        ...

    async def open_incident(self, target_key: str) -> str | None: ...

    async def last_incident(self, target_key: str) -> str | None:
        """The newest closed incident of a target."""
        ...

    async def open_incidents(self) -> Sequence[str]: ...

    async def open_page(self, limit: int) -> OpenPage:
        """The newest open incidents: of thousands no more are read than people can read."""
        ...

    async def recent_incidents(self, limit: int) -> Sequence[str]:
        """The newest incidents, open and closed, newest first."""
        ...

    async def open_targets(self) -> Mapping[str, str]:
        """Target key to the id of its open incident."""
        ...

    async def load(self, incident_id: str) -> Run | None: ...

    async def look(self, incident_id: str) -> Waiting | None:
        """None when the incident is not stored."""
        ...

    async def inbox(self, incident_id: str) -> Sequence[Event]:
        """Events that no commit has consumed, oldest first."""
        ...

    async def append(self, incident_id: str, events: Sequence[Event]) -> bool:
        """Store events in the inbox, stamped with the storage's time, each once by its id.

        Stored when it returns. False when the incident does not exist.
        """
        ...

    async def commit(self, run: Run, *, consumed: int, entries: Sequence[Chained], effects: Sequence[Effect]) -> None:
        """Write the run, its timeline entries and its effects, and drop the oldest `consumed` events: all or nothing.

        Raise `StaleRunError` unless `run.version` is one ahead of what is stored. Effects of earlier visits are void.
        A closed incident gives its target back once no event waits that may open it again.
        """
        ...

    async def timeline(self, incident_id: str) -> Sequence[Chained]: ...

    async def bundle(self, digest: str) -> Mapping[str, str] | None:
        """The resolved playbook source and effective settings that runs of this digest keep."""
        ...

    async def pending(self, limit: int) -> Sequence[str]:
        """Incidents whose inbox has waited longer than a second or whose deadline has passed."""
        ...

    async def count_event_failure(self, incident_id: str, event_id: str) -> int:
        """Count one failed attempt to handle an event; return how many there were."""
        ...


@dataclass(frozen=True)
class StorageSeen:
    """The storage as a process sees it in one look."""

    epoch: Epoch | None
    counter: int | None
    """The number of the newest incident; None when there never was one."""
    server: str = ""
    """Names the running server; another one after a restart or a failover."""
    was_promoted: bool = False
    """It was a replica before, and may lack the last writes."""


class EpochStore(Protocol):
    async def look(self) -> StorageSeen: ...

    async def begin(self, epoch: Epoch) -> Epoch:
        """Begin this epoch and number its incidents; return the one that counts: another process may be first."""
        ...

    async def raise_counter(self, least: int) -> None:
        """The next incident has a higher number than this."""
        ...


class EffectStore(Protocol):
    async def owed_now(self, limit: int) -> Sequence[tuple[str, str, Lane]]:
        """(incident, effect id, lane) of effects that are due and free or whose lease has lapsed, oldest first."""
        ...

    async def keep_time(self) -> None:
        """Look whether the storage's clock went back since anybody last looked, at least once a second.

        What waits then, and what is leased, ends no later than it would have.
        """
        ...

    async def take(self, incident_id: str, effect_id: str) -> Owed | None:
        """Take one effect under a lease of this process, re-entrant for it, together with its run.

        None when somebody else has it or it is void.
        """
        ...

    async def owe_now(self, incident_id: str, effect: Effect, *, again: bool) -> bool:
        """An effect that waits for its time is due at once; `again`: also one that is not owed (any more).

        False, and nothing changed, while somebody performs it, or where there is nothing to do.
        """
        ...

    async def renew(self, owed: Owed) -> bool:
        """Hold the lease on; False when it was lost and the work must stop before its next outside call."""
        ...

    async def settle(self, owed: Owed, outcome: Sequence[Event]) -> bool:
        """The effect is done: append its outcome to the inbox (once by id) and owe it no more.

        True when it was owed again meanwhile and is due again. What was owed again and is another process's by now
        stays with that process.
        """
        ...

    async def put_back(self, owed: Owed, *, after_seconds: float, failed: bool) -> int:
        """Owe the effect again later; return how often it failed so far.

        Nothing changes when the lease was lost and another process performs the effect by now.
        """
        ...


@dataclass(frozen=True)
class WatchSample:
    """One look of a watch: when, and what each named part said (`held`, `not held`, or `unknown: why`)."""

    at: float
    parts: Mapping[str, str]


class WatchLog(Protocol):
    """The looks of one watch, so that a restart neither forgets nor repeats them."""

    async def add(self, incident_id: str, visit: int, sample: WatchSample) -> None: ...

    async def samples(self, incident_id: str, visit: int) -> Sequence[WatchSample]:
        """All looks of this visit, oldest first."""
        ...


class Playbooks(Protocol):
    def match(self, labels: Mapping[str, str]) -> Sequence[CompiledPlaybook]:
        """Playbooks whose matchers want an alert with these labels, highest priority first."""
        ...

    def bundle(self, name: str, target: Target) -> Bundle | None:
        """This playbook and all that it may divert to, with the settings for that target; None when there is none."""
        ...


ClaimVerdict = Literal[
    "claimed", "already_claimed", "halted", "lease_held", "room_held", "breaker_open", "node_breaker_open",
    "too_many_gpus",
]  # fmt: skip


EVERYTHING = "*"
"""In place of an incident: the kill switch of all."""


@dataclass(frozen=True)
class HaltWord:
    by: str = ""
    why: str = ""


class CallClaims(Protocol):
    async def was_claimed(self, incident_id: str, call_id: str) -> bool:
        """Whether this call may have been sent before."""
        ...

    async def claim(
        self,
        incident_id: str,
        call_id: str,
        *,
        workload_key: str,
        lease_keys: Sequence[str],
        counts: bool,
        node: NodeDisruption | None = None,
    ) -> ClaimVerdict:
        """Right before a call, in one step: not halted, leases are this incident's, breakers have room, claim written.

        A lease key that begins with `room/` is held for as long as it takes until new pods are seen.
        `node` is what the call takes from the fleet; what does not count passes both breakers.
        `already_claimed`: this call may have been sent before; look at the snapshot before sending.
        No answer from the storage raises: no call without a claim.
        """
        ...

    async def reset_breakers(self, workload_key: str) -> None:
        """Forget what was counted: changes of the workload, and nodes. What is cordoned in the cluster still weighs."""
        ...

    async def hold(self, incident_id: str, lease_keys: Sequence[str]) -> None:
        """While nothing is sent: keep those of these leases that are this incident's for as long again."""
        ...

    async def release(self, incident_id: str) -> None:
        """Give back every lease of the incident."""
        ...

    async def halted_by(self, incident_id: str) -> str:
        """Who halted (this incident or all), or an empty text."""
        ...

    async def halts(self) -> Mapping[str, str]:
        """Incident, or `EVERYTHING`, to who halted it."""
        ...

    async def set_halt(self, incident_id: str | None, *, by: str) -> None:
        """Halt one incident, or all when it is None; an empty `by` lifts the halt."""
        ...

    async def set_halt_of_all(self, word: HaltWord, *, halts: bool) -> None:
        """Halt everything or lift that, in one write however many incidents are open; the word is kept with it."""
        ...

    async def halt_word(self) -> HaltWord:
        """Who last halted everything or lifted that, and why."""
        ...


# --- readings ---------------------------------------------------------------------------------------------------


class SampleStore(Protocol):
    async def add(self, workload: str, scrapes: Sequence[Scrape]) -> None: ...

    async def between(self, workload: str, start: float, end: float) -> Sequence[Scrape]: ...


class LoadLog(Protocol):
    """Each workload's load in slots of five minutes, for a day and a little more."""

    async def add(self, workload: str, point: LoadPoint) -> None:
        """Keep it, in place of another point of the same slot."""
        ...

    async def all(self, workload: str) -> Sequence[LoadPoint]:
        """Every point that is kept, oldest first."""
        ...


@dataclass(frozen=True)
class ReadContext:
    """What reading needs to know of a run: where, since when, and which replicas were picked."""

    target: Target
    incident_id: str
    opened_at: float
    picked: Mapping[str, str]
    settings: Mapping[str, float | str | bool]
    moments: Mapping[str, float] = field(default_factory=dict)
    """What a window may end at besides now: `incident.starts_at`, and `results.<state>.<signal>` once it was read."""

    @property
    def began_at(self) -> float:
        """When the trouble began by the alert's own word; the bot may have heard of it hours later."""
        return min(self.opened_at, self.moments.get(STARTS_AT, self.opened_at))


@dataclass(frozen=True)
class Replica:
    """One pod that serves the engine, and where its own pages are: never through a Service, which picks any of them."""

    name: str
    uid: str
    address: str
    port: int = 8000
    role: Literal["target", "canary"] = "target"
    in_rotation: bool | None = None
    node: str = ""
    namespace: str = ""


MAX_PAGE_BYTES = 8 * 1024 * 1024
"""A page of vLLM 0.32 has 53 kB, a node's exporter less; what is larger than this is no metrics page."""


@dataclass(frozen=True)
class PodPage:
    """One page of one pod. The address is for who can reach it, namespace and pod for who asks the API server."""

    namespace: str
    pod: str
    address: str
    port: int
    path: str = "/metrics"


class PodPages(Protocol):
    async def read(self, page: PodPage) -> str:
        """The text, at most `MAX_PAGE_BYTES`; the caller has the deadline. Raise `SourceError` with the reason."""
        ...


class Snapshots(Protocol):
    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """As `Cluster.snapshot`, the only part of the cluster that reading needs."""
        ...


class Replicas(Protocol):
    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        """The running replicas of the workload and of the incident's canary. Raise `ClusterError` on no answer."""
        ...


class Scraper(Protocol):
    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        """One scrape for each replica, in order; one that does not answer in time has `error` set instead of values."""
        ...


class History(Protocol):
    source: str

    async def sample(self, context: ReadContext) -> None:
        """Add the replicas' present values to the history, where the history does not grow by itself."""
        ...

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float
    ) -> Sequence[Scrape]:
        """What is known of these metrics in this time. Raise `SourceError` or `ClusterError` when nobody answers."""
        ...


class Router(Protocol):
    """What stands before the engines. Each raises `SourceError` with the reason when it is not known."""

    async def error_share(self, target: Target) -> float:
        """The share of requests that the router answered with an error of its own or of the engines."""
        ...

    async def latency_p99(self, target: Target) -> float:
        """The p99 of whole requests as clients see it, in seconds."""
        ...


class MemoryHistory(Protocol):
    """What Prometheus remembers of memory. Each raises `SourceError` where nothing was recorded."""

    async def least_free_mib(self, namespace: str, pods: Sequence[str]) -> float:
        """The least free memory of any GPU of these pods in a whole day, in MiB."""
        ...

    async def day_before(
        self, what: Literal["gpu", "host"], namespace: str, pods: Sequence[str], at: float, *, of: str = ""
    ) -> Sequence[Sequence[tuple[float, float]]]:
        """The day before `at`: points of time and value, one series for each GPU or container.

        `gpu`: free memory in MiB; `host`: memory of the container in bytes. `of`: a Deployment whose pods of that day
        count too.
        """
        ...


class PodLogs(Protocol):
    async def read(
        self, namespace: str, pod: str, *, previous: bool = False, tail_lines: int | None = None
    ) -> str | None:
        """The log of the pod's engine container: its first MiB, or its last lines.

        None when there is none: no such container yet, or none before this one. Raise `ClusterError` on no answer.
        """
        ...


class JobLogs(Protocol):
    async def last_lines(self, namespace: str, pod: str, *, lines: int) -> str | None:
        """The end of the log of the pod's main container; None when there is none.

        Raise `ClusterError` on no answer.
        """
        ...


class Finder(Protocol):
    async def pods_labelled(self, labels: Mapping[str, str]) -> Sequence[Obj]:
        """Pods of any namespace with these labels. Raise `ClusterError` on no answer or when it is not allowed."""
        ...

    async def node_events(self) -> Sequence[Obj]:
        """Events on Node objects that the cluster still has. Raise `ClusterError` on no answer or no permission."""
        ...


class GpuShell(Protocol):
    async def ask(self, namespace: str, pod: str, container: str, query: GpuQuery) -> str:
        """What the query's program said, also when it failed. Raise `SourceError` when it could not be run.

        Bounded in bytes; the caller has the deadline.
        """
        ...


class ProbeReader(Protocol):
    async def __call__(self, request: ProbeRequest) -> Reading:
        """Answer within the reader's deadline. Raise `BotError` when the source does not answer."""
        ...


@dataclass(frozen=True)
class ProbeRequest:
    """One probe that one state asks. The cluster is read once for all probes of a reading."""

    name: str
    spec: ProbeSignal
    context: ReadContext
    at: float
    snapshot: Callable[[], Awaitable[ClusterSnapshot]]


class Signals(Protocol):
    async def read(self, wanted: Mapping[str, SignalSpec], context: ReadContext) -> Mapping[str, Reading]:
        """One reading for each wanted name, each within its deadline. Never raises: what fails is `unknown`."""
        ...

    async def sample(self, context: ReadContext) -> None:
        """Scrape the replicas once into the history; a failure of one replica is recorded as absent, not as zero."""
        ...


# --- cluster ----------------------------------------------------------------------------------------------------


class Workloads(Protocol):
    async def workload(self, namespace: str, name: str) -> Target | None:
        """The workload of that name, of whichever kind; None when there is none. Raise `ClusterError` on no answer."""
        ...


class Cluster(Protocol):
    async def resolve(self, alert: Alert) -> Target | None:
        """The workload behind an alert's labels; None when the cluster cannot tell. Raise `ClusterError` on no
        answer.
        """
        ...

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        """What planning may look at, read now. Raise `ClusterError` when the workload itself cannot be read."""
        ...

    async def lacking(self, calls: Sequence[Call]) -> str:
        """Which permissions these calls and taking them back need and the bot does not have; empty when none.

        May be a minute old. Raise `ClusterError` on no answer.
        """
        ...

    async def dry_run(self, call: Call) -> str:
        """Send the call as a server-side dry run; an empty text when it would be accepted, else the server's reason."""
        ...


@dataclass(frozen=True)
class Sent:
    result: Literal["done", "failed", "unclear"]
    detail: str = ""
    retry_after_seconds: float | None = None
    """Set when nothing was done and the same call may be tried again later (429, or it could not be sent)."""


class ClusterWriter(Protocol):
    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        """Send one call of the approved plan, stamped with its id. Raise `ApprovalError` unless it is in that plan."""
        ...

    async def look(self, call: Call, *, call_id: str) -> Literal["done", "not_done", "unclear"]:
        """After a possible earlier attempt: stamp or after-value there, before-value intact, or neither."""
        ...


@dataclass(frozen=True)
class Generated:
    """What became of a long generation. `refused`: certainly nothing runs; `broken`: it began and did not come back."""

    result: Literal["ended", "broken", "refused"]
    tokens: int | None = None
    """Of the prompt and the answer, as the engine counted them."""
    detail: str = ""


class Generations(Protocol):
    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        """Send the call's one generation to this replica and wait for its end; cancelling it ends it there too.

        The caller has the deadline. Raise `ApprovalError` unless the call is in the approved plan, about this replica.
        """
        ...


# --- people -----------------------------------------------------------------------------------------------------


class People(Protocol):
    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        """Read once whether this person may decide under the policy; unreadable is not allowed, with the reason."""
        ...

    async def may_steer(self, user: str, *, at: float) -> Authority:
        """Whether this person may answer questions, halt, resume, resolve."""
        ...


class Impatient(Protocol):
    """What a messenger does when somebody looks for what it has not shown yet."""

    async def want_card(self, incident_id: str) -> None:
        """Somebody looks for this incident: its card waits no longer for its turn."""
        ...

    def ask_again(self) -> None:
        """After a refusal, do not wait until it is time to try again."""
        ...


class Messenger(Protocol):
    async def show(self, run: Run) -> Sequence[Event]:
        """Bring the incident's card and thread up to date; return `Posted` for what newly appeared.

        Raise `MessengerError` when Slack refused; what was shown before it stays recorded.
        """
        ...

    async def tell(self, user: str, channel: str, text: str, *, response_url: str) -> None: ...

    async def announce(self, text: str) -> None:
        """Say something in the channel that is about no incident. Raise `MessengerError` when Slack refused."""
        ...

    async def upload(self, run: Run, *, key: str, name: str, content: bytes, comment: str) -> None:
        """Put a file into the incident's thread, once by `key`: made again after a crash, its content may differ."""
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Epoch seconds."""
        ...


class Silences(Protocol):
    """Every method raises `SourceError` when nobody answers."""

    async def create(self, labels: Mapping[str, str], *, starts_at: float, ends_at: float, why: str, key: str) -> str:
        """Silence alerts with all of these labels; the silence's id. With the same `key` it is made once."""
        ...

    async def expire(self, silence: str) -> None: ...


class FiringAlerts(Protocol):
    async def firing(self) -> Sequence[Alert]:
        """What fires now and would be sent; raise `SourceError` when nobody answers."""
        ...


class Alarms(Protocol):
    async def wake_at(self, incident_id: str, at: float) -> None:
        """Call `advance` for the incident at about `at`; only a wake-up, deadlines live in the run."""
        ...
