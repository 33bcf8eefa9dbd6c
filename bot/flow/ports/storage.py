"""Where alerts, runs, effects, claims and halts are stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.incidents.effect import Effect, Lane
from bot.domain.incidents.event import Commanded, Event, OpenedByHand
from bot.domain.incidents.run import Offer, Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.epoch import Epoch
from bot.domain.kernel.errors import NewerFormError
from bot.domain.kernel.planned_window import PlannedWindow, WindowKind
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import NO_LABELS


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


RouteKind = Literal["opens", "extends", "reopens", "notifies"]
"""`notifies`: an alert that belongs to a parked incident, or a late one of a closed incident, opens nothing."""


class Joining(NamedTuple):
    """An accepted alert for an incident that is open."""

    entry: Intake
    bundle: Bundle
    """What it would open."""
    offer: Offer | None
    """The same, for the incident to decide on; None if it is the incident's own playbook."""
    may_be_elsewhere: bool = False
    """Whether it joins only if no other incident was given this alert last."""


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
        """The oldest accepted alerts that are not routed yet, in order. Reading removes nothing.

        Right after an `accept` it may list what another process has routed since, without what that one accepted.
        Those that cannot be read are passed over, and stay.
        """
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

    async def held(self) -> Sequence[HeldAlert]:
        """As `intake`, of the held alerts."""
        ...

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
    """Newest first, without those that a newer version of the bot has stored."""

    @property
    def only(self) -> Run | None:
        """The only open incident; None if there is none, or several. Raises `NewerFormError` if it cannot be read."""
        if self.count == 1 and not self.runs:
            raise NewerFormError("the only open incident")
        return self.runs[0] if self.count == 1 else None


class Standing(NamedTuple):
    """The incidents of one target, and of one alert, by their ids."""

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
    given: str | None = None
    """The one that was given the alert last, if that is known: it may have another target."""


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

    async def standing(self, target_key: str, fingerprint: str) -> Standing:
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

    async def take_sampling(self, cluster: str, every_seconds: float) -> bool:
        """Whether this process samples the cluster's workloads now; of several, one does while it keeps its pace."""
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
    async def owed_now(self, limit: int, begun: Collection[tuple[str, str]] = ()) -> Sequence[tuple[str, str, Lane]]:
        """(incident, effect id, lane) of effects that are due and free, or whose lease has expired, oldest first.

        `begun`: the caller has these already.
        """
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
    broke: Sequence[int] = ()
    """Which `broke` clauses were true, by place."""


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

    async def release(self, incident_id: str, request_id: str = "") -> None:
        """Releases the leases of one request, or every lease of the incident."""
        ...

    async def halted_by(self, incident_id: str) -> str:
        """Who halted (this incident or all), or an empty text."""
        ...

    async def halts(self) -> Mapping[str, str]:
        """Incident, or `EVERYTHING`, to who halted it."""
        ...

    async def set_halt(self, incident_id: str, *, by: str) -> None:
        """Halts one incident; an empty `by` lifts the halt."""
        ...

    async def set_halt_of_all(self, word: HaltWord, *, halts: bool) -> None:
        """Halts everything or lifts that halt, in one write however many incidents are open; stores who and why."""
        ...

    async def halt_word(self) -> HaltWord:
        """Who last halted everything or lifted that halt, and why."""
        ...
