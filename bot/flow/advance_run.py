"""Drains an incident's inbox in order, decides, commits. Never waits for external systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from bot.domain.incidents.effect import Effect
from bot.domain.incidents.event import AlertChanged, Commanded, Due, Event
from bot.domain.incidents.machine import Decision, Rules, advance, set_aside, without_playbook
from bot.domain.incidents.run import Run, TimelineHead
from bot.domain.kernel.errors import BotError, Fault, PlaybookError, StaleRunError
from bot.domain.kernel.last_kept import keep_last
from bot.domain.kernel.timeline import Entry, chain
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.flow.ports.storage import Committed, Owed, RunStore, Waiting

log = structlog.get_logger()
FAILURES_BEFORE_SET_ASIDE = 3
STALE_ATTEMPTS = 20
BUNDLES_KEPT = 64
"""A bundle takes 0.6 MB of memory. Each edit of a playbook makes one, and each SLO that a workload sets."""

FromBundle = Callable[[Mapping[str, str]], Bundle]
"""The playbooks exactly as they were when the run started. Using one that no longer compiles raises `PlaybookError`."""


@dataclass(frozen=True)
class Advanced:
    """The effects that became owed, and in how many seconds the run's next deadline passes."""

    effects: tuple[Effect, ...] = ()
    taken: Mapping[str, Owed] = field(default_factory=dict)
    """Those of them, by id, that this process has under a lease since then, with the run as it is now."""
    version: int = 0
    """Of the run. All that was appended before this version was stored has been decided."""
    wake_after: float | None = None
    is_first: bool = False
    """Whether it made the run's first decision."""


class AdvanceRun:
    def __init__(self, store: RunStore, from_bundle: FromBundle, rules: Rules) -> None:
        self._store, self._from_bundle, self._rules = store, from_bundle, rules
        self._bundles: dict[str, Bundle] = {}

    async def __call__(self, incident_id: str, waiting: Waiting | None = None) -> Advanced:
        """`waiting`: the incident as it was a moment ago, to save a look; a commit on an older version is refused."""
        owed: dict[str, Effect] = {}
        taken: dict[str, Owed] = {}
        wake_after: float | None = None
        is_first, has_decided, version = False, False, 0
        for _ in range(STALE_ATTEMPTS):
            waiting = waiting or await self._store.look(incident_id)
            if waiting is None:
                return Advanced()
            run = waiting.run
            is_first |= run.version == 0
            # After a decision, what nothing is decided about is left for the next one.
            if not waiting.events or (has_decided and all(event.may_wait for event in waiting.events)):
                if not await self._append_overdue(run, waiting.now):
                    if run.deadlines:
                        wake_after = min(run.deadlines.values()) - waiting.now
                    version = run.version
                    break
                waiting = None
                continue
            events, waiting = waiting.events, None
            try:
                effects, committed = await self._commit(run, events, await self._other(run, events))
            except StaleRunError as error:
                log.info("run.stale", incident=incident_id, reason=str(error))
                continue
            if committed is not None:
                waiting, has_decided = committed.waiting, True
                owed |= {effect.effect_id: effect for effect in effects}
                taken = _still_taken(taken, committed)
        return Advanced(tuple(owed.values()), taken, version, wake_after, is_first)

    async def _other(self, run: Run, events: Sequence[Event]) -> str:
        """The incident that has the target of a parked or closed run; empty if it is free. The commit checks it."""
        if run.is_open and run.parked is None:
            return ""
        if not run.is_open and not any(isinstance(event, AlertChanged | Commanded) for event in events):
            return ""
        found = await self._store.open_incident(run.target.key)
        return found if found is not None and found != run.incident_id else ""

    async def _append_overdue(self, run: Run, now: float) -> bool:
        """Turns deadlines that have passed into events; the id makes each count once."""
        due = [
            Due(event_id=f"due/{run.visit.number}/{name}/{at}", deadline=name, due_at=at)
            for name, at in sorted(run.deadlines.items(), key=lambda item: item[1])
            if at <= now
        ]
        return bool(due) and await self._store.append(run.incident_id, due)

    async def playbook_of(self, run: Run) -> CompiledPlaybook:
        """The playbook that the run is in, as it was when the run started, regardless of later edits."""
        return (await self.bundle_of(run)).playbooks[run.playbook]

    async def bundle_of(self, run: Run, event: Event | None = None) -> Bundle:
        """All playbooks that the run may enter, including those that it was offered, or that this event offers."""
        bundle = await self._bundle(run, run.digest)
        new = event.offer if isinstance(event, AlertChanged) else None
        offers = ({new.playbook: new} if new else {}) | run.offers
        offered = {name: await self._bundle(run, offer.digest) for name, offer in offers.items()}
        return replace(bundle, offered=offered) if offered else bundle

    async def _bundle(self, run: Run, digest: str) -> Bundle:
        bundle = self._bundles.get(digest)
        if bundle is None:
            stored = await self._store.bundle(digest)
            if stored is None:
                fault = Fault(run.incident_id, f"its playbook '{run.playbook}' ({digest[:12]}) is not stored any more")
                raise PlaybookError((fault,))
            bundle = self._from_bundle(stored)
        keep_last(self._bundles, digest, bundle, at_most=BUNDLES_KEPT)
        return bundle

    async def _commit(
        self, run: Run, events: Sequence[Event], other: str
    ) -> tuple[tuple[Effect, ...], Committed | None]:
        """Returns the effects that are owed now, and what the storage answered; None if nothing was decided."""
        entries: list[Entry] = []
        effects: dict[str, Effect] = {}
        moved, consumed = run, 0
        for event in events:
            decision = await self._decide(moved, event, other)
            if decision is None:
                break
            moved, consumed = decision.run, consumed + 1
            entries += decision.entries
            effects |= {effect.effect_id: effect for effect in decision.effects}
        if not consumed:
            return (), None
        chained = chain(entries, head=run.timeline.hash, length=run.timeline.length)
        if chained:
            moved = moved.with_(timeline=TimelineHead(hash=chained[-1].hash, length=run.timeline.length + len(chained)))
        moved = moved.with_(version=run.version + 1)
        live = tuple(e for e in effects.values() if e.visit is None or e.visit == moved.visit.number)
        return live, await self._store.commit(moved, consumed=consumed, entries=chained, effects=live)

    async def _decide(self, run: Run, event: Event, other: str) -> Decision | None:
        """The decision, or None to stop before this event and retry it later. A third failure sets the event aside."""
        try:
            bundle = await self.bundle_of(run, event)
            bundle.playbooks.get(run.playbook)  # it is compiled now, or never in this version of the bot
        except PlaybookError as error:
            log.error("run.stranded", incident=run.incident_id, reason=str(error))
            return without_playbook(run, event, str(error), self._rules)
        try:
            return advance(run, event, bundle, self._rules, other=other)
        except Exception as error:
            # A bug of ours in one event must not block the incident silently: after its third failure the event is set
            # aside.
            if isinstance(error, BotError):
                log.warning("event.failed", incident=run.incident_id, event_kind=event.kind, reason=str(error))
            else:
                log.exception("event.failed", incident=run.incident_id, event_kind=event.kind)
            failures = await self._store.count_event_failure(run.incident_id, event.event_id)
            if failures < FAILURES_BEFORE_SET_ASIDE:
                return None
            reason = f"{type(error).__name__}: {error}"
            log.error("event.set_aside", incident=run.incident_id, event_kind=event.kind, reason=reason)
            return set_aside(run, event, reason, bundle, self._rules)


def _still_taken(before: Mapping[str, Owed], committed: Committed) -> dict[str, Owed]:
    """What is under a lease after one more decision, with its run: effects of earlier visits are void."""
    run, now = committed.waiting.run, committed.waiting.now
    kept = {
        effect_id: replace(owed, run=run, taken_at=now)
        for effect_id, owed in before.items()
        if owed.effect.visit in (None, run.visit.number)
    }
    return kept | {owed.effect.effect_id: owed for owed in committed.taken}
