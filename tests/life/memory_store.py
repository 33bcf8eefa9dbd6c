"""The storage in memory: what the Lua scripts promise, for one process and without their serialisation.

A simulated month commits some ten thousand decisions. `tests/life/test_memory_store.py` holds it against the real one.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bot.domain.incidents.effect import Effect
from bot.domain.incidents.event import AlertChanged, Event
from bot.domain.incidents.run import Offer, Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import StaleRunError
from bot.domain.kernel.timeline import Chained
from bot.domain.playbooks.bundle import Bundle
from bot.flow.ports.storage import Committed, Intake, Joining, Routed, RouteKind, Standing, Waiting

SEEN_SECONDS = 3600.0


class MemoryStore:
    """`AlertStore` and `RunStore`, as far as routing and deciding need them; owed effects are in `owed`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.runs: dict[str, Run] = {}
        self.next_deadlines: dict[str, float] = {}
        """Of the runs that have one: a month has hundreds of runs, of which few are open."""
        self._open_runs: set[str] = set()
        self.inboxes: defaultdict[str, list[Event]] = defaultdict(list)
        self.entries: defaultdict[str, list[Chained]] = defaultdict(list)
        self.owed: dict[tuple[str, str], tuple[float, Effect]] = {}
        self.left_out: list[tuple[Alert, str]] = []
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self._intake: list[Intake] = []
        self._seen: dict[str, float] = {}
        self._open: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._given: dict[str, str] = {}
        self._bundles: dict[str, Bundle] = {}
        self._failures: Counter[str] = Counter()
        self._numbers, self._alerts = itertools.count(1), itertools.count(1)

    # --- alerts ------------------------------------------------------------------------------------------------------

    async def accept(self, alerts: Sequence[Alert], *, truncated: int) -> int:
        now, stored = self._now(), 0
        self._seen = {key: at for key, at in self._seen.items() if now - at < SEEN_SECONDS}
        for alert in alerts:
            if alert.dedupe_key in self._seen:
                continue
            other = "resolved" if alert.status == "firing" else "firing"
            self._seen.pop(f"{alert.dedupe_key.rpartition('/')[0]}/{other}", None)
            self._seen[alert.dedupe_key] = now
            await self.route_again(alert, truncated=truncated)
            stored += 1
        return stored

    async def route_again(self, alert: Alert, *, truncated: int) -> None:
        received = alert.model_copy(update={"received_at": self._now()})
        self._intake.append(Intake(f"{next(self._alerts)}|", received, truncated))

    async def intake(self, limit: int) -> Sequence[Intake]:
        return self._intake[:limit]

    async def keep_unmatched(self, entry: Intake, reason: str) -> None:
        self._intake.remove(entry)
        self.left_out.append((entry.alert, reason))

    async def let_go(self, *fingerprints: str) -> None:
        """No alert is held back: nothing here has a maintenance window."""

    async def held(self) -> Sequence[Any]:
        return ()

    async def unmatched(self, limit: int) -> Sequence[tuple[Alert, str]]:
        return self.left_out[-limit:]

    async def route(
        self, entry: Intake, run: Run, how: RouteKind, *, bundle: Bundle, offer: Offer | None = None
    ) -> Routed | None:
        name, key = run.incident_id, run.target.key
        current = self._open.get(key)
        if how == "extends":
            if current != name:
                return None
        elif current and not (how == "reopens" and current == name):
            return None
        known = self.runs.get(name)
        is_parked = how == "notifies" and known is not None and known.parked is not None
        if how in ("reopens", "notifies") and not is_parked and self._last.get(key) != name:
            return None
        self._intake.remove(entry)
        if how == "opens":
            self._keep_run(run)
        if how == "opens" or offer:
            self._bundles.setdefault(offer.digest if offer else run.digest, bundle)
        event_id = f"alert/{entry.entry_id}/{entry.alert.dedupe_key}"
        event = AlertChanged(event_id=event_id, alert=entry.alert, truncated=entry.truncated, offer=offer)
        self._given[entry.alert.fingerprint] = name
        if event_id not in self._known[name] and how in ("opens", "reopens"):
            self._open[key] = name
        await self.append(name, [event])
        return Routed()

    async def join(self, alerts: Sequence[Joining], run: Run) -> Routed | None:
        if self.runs[run.incident_id].version != run.version:
            return None
        given = [self._given.get(each.entry.alert.fingerprint) for each in alerts if each.may_be_elsewhere]
        if any(incident not in (None, run.incident_id) for incident in given):
            return None
        for each in alerts:
            if await self.route(each.entry, run, "extends", bundle=each.bundle, offer=each.offer) is None:
                return None
        return Routed()

    # --- runs --------------------------------------------------------------------------------------------------------

    async def now(self) -> float:
        return self._now()

    async def next_incident_id(self) -> str:
        return f"INC-{next(self._numbers)}"

    def known(self, target_key: str) -> Run | None:
        return self.runs.get(self._open.get(target_key, ""))

    async def standing(self, target_key: str, fingerprint: str) -> Standing:
        parked = await self.parked_incidents(target_key)
        given, last = self._given.get(fingerprint), self._last.get(target_key)
        return Standing(self._open.get(target_key), last, parked, await self.now(), given=given)

    async def open_incident(self, target_key: str) -> str | None:
        return self._open.get(target_key)

    async def parked_incidents(self, target_key: str) -> Sequence[str]:
        return [name for name, run in self.runs.items() if run.parked is not None and run.target.key == target_key]

    async def last_incident(self, target_key: str) -> str | None:
        return self._last.get(target_key)

    async def load(self, incident_id: str) -> Run | None:
        return self.runs.get(incident_id)

    async def load_all(self, incident_ids: Sequence[str], *, mentioning: str = "") -> Sequence[Run]:
        return [self.runs[name] for name in incident_ids if name in self.runs]

    async def look(self, incident_id: str) -> Waiting | None:
        run = self.runs.get(incident_id)
        return None if run is None else Waiting(run, self._inbox(incident_id), self._now())

    async def append(self, incident_id: str, events: Sequence[Event]) -> bool:
        if incident_id not in self.runs:
            return False
        for event in events:
            if event.event_id not in self._known[incident_id]:
                self._known[incident_id].add(event.event_id)
                self.inboxes[incident_id].append(event.model_copy(update={"at": self._now()}))
        return True

    async def commit(
        self, run: Run, *, consumed: int, entries: Sequence[Chained], effects: Sequence[Effect]
    ) -> Committed:
        name, key, before = run.incident_id, run.target.key, self.runs[run.incident_id]
        held = self._open.get(key)
        was_in_slot = before.is_open and before.parked is None
        if before.version + 1 != run.version:
            raise StaleRunError(f"{name} is another version")
        if run.is_open and run.parked is None and held not in (None, name) and not was_in_slot:
            raise StaleRunError(f"{held} has the target")
        self._keep_run(run)
        self.inboxes[name] = self.inboxes[name][consumed:]
        if not self.inboxes[name]:
            del self.inboxes[name]
        self.entries[name] += entries
        void = [
            at
            for at, (_, effect) in self.owed.items()
            if at[0] == name and effect.visit not in (None, run.visit.number)
        ]
        for at in void:
            del self.owed[at]
        for effect in effects:
            self.owed[name, effect.effect_id] = (self._now(), effect)
        self._keep_index(run, held)
        return Committed(Waiting(run, self._inbox(name), self._now()))

    @property
    def open_runs(self) -> list[Run]:
        """In the order in which they were opened first."""
        return [self.runs[name] for name in sorted(self._open_runs, key=_number)]

    def _inbox(self, name: str) -> tuple[Event, ...]:
        return tuple(self.inboxes.get(name, ()))

    def _keep_run(self, run: Run) -> None:
        name = run.incident_id
        self.runs[name] = run
        if run.deadlines:
            self.next_deadlines[name] = min(run.deadlines.values())
        else:
            self.next_deadlines.pop(name, None)
        if run.is_open:
            self._open_runs.add(name)
        else:
            self._open_runs.discard(name)

    def _keep_index(self, run: Run, held: str | None) -> None:
        name, key = run.incident_id, run.target.key
        if not run.is_open:
            self._last[key] = max(self._last.get(key, name), name, key=_number)
            if held == name and name not in self.inboxes:
                del self._open[key]
        elif run.parked is not None:
            if held == name:
                del self._open[key]
        elif held is None:
            self._open[key] = name

    async def bundle(self, digest: str) -> Mapping[str, str] | None:
        found = self._bundles.get(digest)
        return found.stored() if found is not None else None

    async def count_event_failure(self, incident_id: str, event_id: str) -> int:
        self._failures[f"{incident_id}/{event_id}"] += 1
        return self._failures[f"{incident_id}/{event_id}"]


def _number(incident_id: str) -> int:
    return int(incident_id.removeprefix("INC-"))
