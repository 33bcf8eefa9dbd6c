"""Alerts, runs, timelines and owed effects in Redis. Related changes are written in one script."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar, overload

import structlog

from bot.adapters.redis.connection import Connection
from bot.domain.incidents.effect import Effect, Lane, ShowInSlack, is_a_reading
from bot.domain.incidents.event import AlertChanged, Commanded, Event, OpenedByHand
from bot.domain.incidents.run import Offer, Run
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.incidents.subjects import subjects
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.errors import NewerFormError, StaleRunError
from bot.domain.kernel.last_kept import keep_last
from bot.domain.kernel.listing import first_of
from bot.domain.kernel.planned_window import PlannedWindow
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.playbooks.bundle import Bundle
from bot.flow.ports.storage import (
    Committed,
    HeldAlert,
    Intake,
    Joining,
    OpenPage,
    Owed,
    Routed,
    RouteKind,
    Settled,
    Standing,
    Waiting,
)

T = TypeVar("T")

log = structlog.get_logger()
FIRSTS_KEPT_SECONDS = 7 * 24 * 3600
GIVEN_KEPT_SECONDS = 7 * 24 * 3600
"""How long it is known which incident an alert was given to. Alertmanager repeats what goes on firing."""
RUNS_KEPT = 16
RUNS_PER_READ = 50
"""A run has tens of kilobytes: reading hundreds at once would keep Redis from all other work."""

BEGINNING = 20
"""So much of a stored text has the number of its form."""
NAMED = 3


@dataclass(frozen=True)
class StoreLimits:
    remember_alerts_seconds: int = 3600
    """How long an alert with the same fingerprint, startsAt and status counts as a repeat."""
    unmatched_kept: int = 500
    lease_seconds: int = 15
    retention_seconds: int = 90 * 24 * 3600
    """How long a closed incident is kept."""


class _WhenRead(Sequence[Event]):
    """Events that are parsed when they are first read."""

    def __init__(self, parse: Callable[[str], Event], stored: Sequence[str]) -> None:
        self._parse, self._stored = parse, stored

    @cached_property
    def _events(self) -> list[Event]:
        return [self._parse(item) for item in self._stored]

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        return self._events[index]

    def __len__(self) -> int:
        return len(self._stored)


class RedisStore:
    """Implements `AlertStore` and `RunStore`. `owner` names this process in leases."""

    def __init__(
        self,
        connection: Connection,
        *,
        owner: str,
        limits: StoreLimits | None = None,
        next_number: Callable[[], Awaitable[int]] | None = None,
        form: StoredForm | None = None,
    ) -> None:
        """`next_number` numbers incidents; None: by the counter alone, for callers that open none.

        `form`: in which incidents are stored; None: that of this version of the bot.
        """
        self._redis, self._owner, self._limits = connection, owner, limits or StoreLimits()
        self._form = form or StoredForm()
        self._next_number = next_number or self._count
        self._bundles_stored: set[str] = set()
        self._unreadable: dict[str, Collection[str]] = {"intake": (), "held": ()}
        """By key: the stored alerts that were not readable when they were looked at last."""
        self._newer: Sequence[str] = ()
        """The open incidents that a newer version of the bot had stored when they were looked at last."""
        self._kept: dict[str, tuple[str, Run]] = {}
        """The runs that were read or stored last, with their texts: what comes in a row finds its run as it was."""
        self._accepting = self._accepts = 0
        self._accepted: Sequence[str] = ()
        """The whole intake as the last `accept` left it, until it is read; empty if that is not known."""

    def _keys(self, *names: str) -> list[str]:
        return [self._redis.key(name) for name in names]

    def _of(self, incident_id: str, *names: str) -> list[str]:
        return [self._redis.key(name, incident_id) for name in names]

    # --- alerts -----------------------------------------------------------------------------------------------------

    async def accept(self, alerts: Sequence[Alert], *, truncated: int) -> int:
        pairs = [part for alert in alerts for part in (alert.dedupe_key, alert.model_dump_json())]
        keys = self._keys("intake", "seen", "intake-number")
        arguments = [self._limits.remember_alerts_seconds, truncated, *pairs]
        self._accepting, self._accepts = self._accepting + 1, self._accepts + 1
        is_alone, number = self._accepting == 1, self._accepts
        try:
            new, intake = await self._redis.script("accept", keys, arguments)
        finally:
            self._accepting, self._accepted = self._accepting - 1, ()
        # The answers of two calls at once may come in another order than their entries.
        if is_alone and number == self._accepts:
            self._accepted = intake
        return int(new)

    async def route_again(self, alert: Alert, *, truncated: int) -> None:
        keys = self._keys("intake", "intake-number")
        await self._redis.script("route_again", keys, [truncated, alert.model_dump_json()])

    async def intake(self, limit: int) -> Sequence[Intake]:
        accepted, self._accepted = self._accepted, ()
        if accepted and len(accepted) < limit and not self._unreadable["intake"]:
            return self._readable("intake", accepted, self._intake)
        wanted = limit + len(self._unreadable["intake"])
        while True:
            # Always from the first one: another process may be removing some.
            raw = await self._redis.ask(self._redis.client.lrange(self._redis.key("intake"), 0, wanted - 1))
            entries = self._readable("intake", raw, self._intake)
            if len(entries) >= limit or len(raw) < wanted:
                return entries[:limit]
            wanted = limit + len(raw) - len(entries)

    def _readable(self, place: str, stored: Sequence[str], parse: Callable[[str], T]) -> list[T]:
        """What can be parsed. The rest stays where it is, perhaps for a newer version of the bot, and is reported."""
        parsed, unreadable = [], set()
        for item in stored:
            try:
                parsed.append(parse(item))
            except (ValueError, LookupError, TypeError) as error:
                unreadable.add(item)
                if item not in self._unreadable[place]:
                    number = item.partition("|")[0]
                    reason = type(error).__name__
                    log.error(
                        "alert.unreadable", place=place, entry=number if number.isdecimal() else "?", reason=reason
                    )
        self._unreadable[place] = unreadable
        return parsed

    def notices(self) -> Mapping[str, str]:
        """What this version of the bot cannot go on with, for the people who watch it."""
        found: dict[str, str] = {}
        if where := [self._redis.key(place) for place, items in self._unreadable.items() if items]:
            count = sum(map(len, self._unreadable.values()))
            what = f"this version of the bot cannot read {count} of the accepted alerts, so they open no incident"
            found["intake"] = f"{what}; Redis keeps them in {' and '.join(where)}"
        if self._newer:
            what = f"a newer version of the bot has stored {first_of(self._newer, NAMED)}"
            found["incidents"] = f"{what}; without a replica of that version they stand still"
        return found

    async def look_for_newer(self) -> None:
        """Notices the open incidents that a newer version of the bot has stored."""
        names = await self.open_incidents()
        beginnings = self._redis.client.pipeline(transaction=False)
        for name in names:
            beginnings.getrange(self._redis.key("run", name), 0, BEGINNING)
        found = zip(names, await self._redis.ask(beginnings.execute()), strict=True)
        before, self._newer = self._newer, [name for name, text in found if self._form.is_newer(text)]
        if self._newer and self._newer != before:
            log.warning("incidents.left", incidents=len(self._newer), reason=self.notices()["incidents"])

    async def levels(self) -> Mapping[str, int]:
        """The sizes of what should not pile up. Raises if Redis does not answer, so that it is not taken for 0."""
        client, key = self._redis.client, self._redis.key
        return {
            "intake_alerts": int(await self._redis.ask(client.llen(key("intake")))),
            "open_incidents": int(await self._redis.ask(client.hlen(key("open")))),
            "parked_incidents": int(await self._redis.ask(client.hlen(key("parked")))),
        }

    @staticmethod
    def _intake(raw: str) -> Intake:
        _number, at, truncated, body = raw.split("|", 3)
        alert = copy_with(Alert.model_validate_json(body), received_at=float(at))
        return Intake(entry_id=raw, alert=alert, truncated=int(truncated))

    async def route(
        self, entry: Intake, run: Run, how: RouteKind, *, bundle: Bundle, offer: Offer | None = None
    ) -> Routed | None:
        incident, event = run.incident_id, _alert_changed(entry, offer)
        keys = [
            *self._keys("intake", "open", "last"),
            *self._of(incident, "run", "inbox", "known"),
            *self._keys("incidents", "pending"),
            self._redis.key("bundle", bundle.digest),
            self._redis.key("parked"),
            self._redis.key("given", entry.alert.fingerprint),
        ]
        arguments = [
            entry.entry_id,
            run.target.key,
            incident,
            how,
            self._form.text(run) if how == "opens" else "",
            event.event_id,
            self._form.text(event),
        ]
        wanted = bundle if how == "opens" or offer else None
        answer, *found = await self._route(keys, arguments, wanted, run.version, GIVEN_KEPT_SECONDS)
        if answer == "changed":
            return None
        if not found or self._form.is_newer(found[0]):
            return Routed()
        text, now, events = found
        known = self._parsed(incident, text) if text else run
        # Of alerts that come in a row, only the events of the last one are read.
        return Routed(Waiting(known, _WhenRead(self._event, events), float(now)))

    async def join(self, alerts: Sequence[Joining], run: Run) -> Routed | None:
        events = [_alert_changed(each.entry, each.offer) for each in alerts]
        bundles = {each.bundle.digest: each.bundle for each in alerts if each.offer}
        keys = [
            *self._keys("intake", "open"),
            *self._of(run.incident_id, "run", "inbox", "known"),
            *self._keys("pending"),
            *(self._redis.key("bundle", digest) for digest in bundles),
            *(self._redis.key("given", each.entry.alert.fingerprint) for each in alerts),
        ]
        known = [run.target.key, run.incident_id, run.version, GIVEN_KEPT_SECONDS, len(bundles)]
        entries = [
            part
            for each, event in zip(alerts, events, strict=True)
            for part in (each.entry.entry_id, event.event_id, self._form.text(event), int(each.may_be_elsewhere))
        ]
        answer, found = "no bundle", []
        for stored in (self._bundles_stored, ()):
            texts = ["stored" if digest in stored else json.dumps(each.stored()) for digest, each in bundles.items()]
            answer, *found = await self._redis.script("join", keys, [*known, *texts, *entries])
            if answer != "no bundle":
                break
        if answer != "routed":
            return None
        self._bundles_stored.update(bundles)
        now, waiting = found
        # Of alerts that come in a row, only the events of the last one are read.
        return Routed(Waiting(run, _WhenRead(self._event, waiting), float(now)))

    async def _route(
        self, keys: Sequence[str], arguments: Sequence[Any], bundle: Bundle | None, version: int, *remember_seconds: int
    ) -> Sequence[Any]:
        """Sends a bundle that this process has stored before only if Redis lost it: it is hundreds of kilobytes."""

        async def sent(text: str) -> Sequence[Any]:
            answer = await self._redis.script("route", keys, [*arguments, text, version, *remember_seconds])
            return [answer] if isinstance(answer, str) else list(answer)

        if bundle is None:
            return await sent("")
        if bundle.digest in self._bundles_stored and (answer := await sent("stored")) != ["no bundle"]:
            return answer
        answer = await sent(json.dumps(bundle.stored()))
        self._bundles_stored.add(bundle.digest)
        return answer

    async def open(self, run: Run, event: OpenedByHand, *, bundle: Bundle, submission_id: str) -> str | None:
        keys = [
            *self._keys("intake", "open", "last"),
            *self._of(run.incident_id, "run", "inbox", "known"),
            *self._keys("incidents", "pending"),
            self._redis.key("bundle", bundle.digest),
            self._redis.key("parked"),
            self._redis.key("submission", submission_id),
        ]
        arguments = [
            "",
            run.target.key,
            run.incident_id,
            "opens",
            self._form.text(run),
            event.event_id,
            self._form.text(event),
        ]
        answer, *_ = await self._route(keys, arguments, bundle, run.version, self._limits.remember_alerts_seconds)
        return {"changed": None, "routed": run.incident_id}.get(answer, answer)

    async def reopen(self, run: Run, event: Commanded) -> bool:
        keys = [
            *self._keys("intake", "open", "last"),
            *self._of(run.incident_id, "run", "inbox", "known"),
            *self._keys("incidents", "pending"),
            self._redis.key("bundle", run.digest),
            self._redis.key("parked"),
        ]
        arguments = ["", run.target.key, run.incident_id, "reopens", "", event.event_id, self._form.text(event)]
        answer, *_ = await self._route(keys, arguments, None, run.version)
        return bool(answer == "routed")

    async def hold(self, entry: Intake, target: Target) -> None:
        kept = json.dumps(
            {"alert": entry.alert.model_dump(mode="json"), "target": target.key, "truncated": entry.truncated}
        )
        await self._redis.script(
            "hold_alert", self._keys("intake", "held"), [entry.entry_id, entry.alert.fingerprint, kept]
        )

    async def held(self) -> Sequence[HeldAlert]:
        found = await self._redis.ask(self._redis.client.hgetall(self._redis.key("held")))
        return self._readable("held", [str(raw) for _, raw in sorted(found.items())], self._held)

    @staticmethod
    def _held(raw: str) -> HeldAlert:
        kept = json.loads(raw)
        target, alert = Target.of_key(kept["target"]), Alert.model_validate(kept["alert"])
        return HeldAlert(entry_id=raw, alert=alert, target=target, truncated=kept["truncated"])

    async def release(self, held: HeldAlert) -> None:
        alert = held.alert
        arguments = [alert.fingerprint, held.entry_id, held.truncated, alert.model_dump_json()]
        try:
            await self._redis.script("release_alert", self._keys("held", "intake", "intake-number"), arguments)
        finally:
            # It goes before what was accepted: that must be read again.
            self._accepted = ()

    async def let_go(self, *fingerprints: str) -> None:
        await self._redis.ask(self._redis.client.hdel(self._redis.key("held"), *fingerprints))

    async def keep_unmatched(self, entry: Intake, reason: str) -> None:
        kept = json.dumps({"alert": entry.alert.model_dump(mode="json"), "reason": reason})
        keys = self._keys("intake", "unmatched")
        await self._redis.script("unmatched", keys, [entry.entry_id, kept, self._limits.unmatched_kept])

    async def unmatched(self, limit: int) -> Sequence[tuple[Alert, str]]:
        raw = await self._redis.ask(self._redis.client.lrange(self._redis.key("unmatched"), 0, limit - 1))
        kept = [json.loads(item) for item in raw]
        return [(Alert.model_validate(item["alert"]), item["reason"]) for item in kept]

    # --- runs -------------------------------------------------------------------------------------------------------

    async def next_incident_id(self) -> str:
        return f"INC-{await self._next_number()}"

    async def _count(self) -> int:
        return int(await self._redis.ask(self._redis.client.incr(self._redis.key("counter"))))

    def known(self, target_key: str) -> Run | None:
        runs = (run for _, run in reversed(self._kept.values()) if run.is_open and run.parked is None)
        return next((run for run in runs if run.target.key == target_key), None)

    async def standing(self, target_key: str, fingerprint: str) -> Standing:
        keys = [*self._keys("open", "last", "parked", "planned-windows"), self._redis.key("given", fingerprint)]
        current, last, at, parked, windows, given = await self._redis.script("standing", keys, [target_key])
        planned = [PlannedWindow.model_validate_json(raw) for raw in windows]
        in_order = sorted(map(str, parked), key=_number)
        return Standing(current or None, last or None, in_order, float(at), planned, given or None)

    async def open_incident(self, target_key: str) -> str | None:
        found = await self._redis.ask(self._redis.client.hget(self._redis.key("open"), target_key))
        return None if found is None else str(found)

    async def last_incident(self, target_key: str) -> str | None:
        found = await self._redis.ask(self._redis.client.hget(self._redis.key("last"), target_key))
        return None if found is None else str(found)

    async def open_targets(self) -> Mapping[str, str]:
        found = await self._redis.ask(self._redis.client.hgetall(self._redis.key("open")))
        parked = {target: incident for incident, target in (await self._parked()).items()}
        return parked | {str(target): str(incident) for target, incident in found.items()}

    async def incidents_reading(self) -> frozenset[str]:
        members = await self._redis.ask(self._redis.client.zrange(self._redis.key("owed"), 0, -1))
        owed = (str(member).partition("|") for member in members)
        return frozenset(incident for incident, _, effect_id in owed if is_a_reading(effect_id))

    async def take_sampling(self, cluster: str, every_seconds: float) -> bool:
        arguments = [self._owner, round(every_seconds * 1000)]
        return bool(await self._redis.script("take_sampling", [self._redis.key("sampler", cluster)], arguments))

    async def parked_incidents(self, target_key: str) -> Sequence[str]:
        return [incident for incident, target in (await self._parked()).items() if target == target_key]

    async def _parked(self) -> Mapping[str, str]:
        """Parked incident to the key of its target, oldest first."""
        found = await self._redis.ask(self._redis.client.hgetall(self._redis.key("parked")))
        return {name: str(found[name]) for name in sorted(map(str, found), key=_number)}

    async def open_incidents(self) -> Sequence[str]:
        found = await self._redis.ask(self._redis.client.hvals(self._redis.key("open")))
        return sorted({*map(str, found), *await self._parked()}, key=_number)

    async def open_page(self, limit: int) -> OpenPage:
        every = await self.open_incidents()
        return OpenPage(len(every), await self.load_all(every[::-1][:limit]))

    async def recent_incidents(self, limit: int) -> Sequence[str]:
        found = await self._redis.ask(self._redis.client.zrevrange(self._redis.key("incidents"), 0, limit - 1))
        return [str(item) for item in found]

    async def incidents_about(self, subject: str, limit: int) -> Sequence[str]:
        found = await self._redis.ask(self._redis.client.zrevrange(self._redis.key("about", subject), 0, limit - 1))
        return [str(item) for item in found]

    async def load(self, incident_id: str) -> Run | None:
        raw = await self._redis.ask(self._redis.client.get(self._redis.key("run", incident_id)))
        return None if raw is None else self._parsed(incident_id, raw)

    def _parsed(self, incident_id: str, raw: str) -> Run:
        text, run = self._kept.get(incident_id, ("", None))
        if run is None or text != raw:
            run = self._form.run(raw)
        self._keep(incident_id, raw, run)
        return run

    def _keep(self, incident_id: str, text: str, run: Run) -> None:
        keep_last(self._kept, incident_id, (text, run), at_most=RUNS_KEPT)

    async def load_all(self, incident_ids: Sequence[str], *, mentioning: str = "") -> Sequence[Run]:
        found: list[Run] = []
        # The text as it is inside a JSON string.
        wanted = json.dumps(mentioning, ensure_ascii=False)[1:-1]
        for start in range(0, len(incident_ids), RUNS_PER_READ):
            keys = [self._redis.key("run", incident_id) for incident_id in incident_ids[start : start + RUNS_PER_READ]]
            for raw in await self._redis.ask(self._redis.client.mget(keys)):
                if raw is None or wanted not in raw:
                    continue
                try:
                    found.append(self._form.run(raw))
                except NewerFormError as error:
                    log.info("run.left_out", reason=str(error))
                # Each takes milliseconds, and presses wait for them.
                await asyncio.sleep(0)
        return found

    async def look(self, incident_id: str) -> Waiting | None:
        found = await self._redis.script("look", self._of(incident_id, "run", "inbox"), [])
        return None if found is None else self._waiting(incident_id, *found)

    def _waiting(self, incident_id: str, run: str, now: str, events: Sequence[str]) -> Waiting:
        return Waiting(self._parsed(incident_id, run), [self._event(item) for item in events], float(now))

    async def inbox(self, incident_id: str) -> Sequence[Event]:
        raw = await self._redis.ask(self._redis.client.lrange(self._redis.key("inbox", incident_id), 0, -1))
        return [self._event(item) for item in raw]

    def _event(self, raw: str) -> Event:
        at, _event_id, body = raw.split("|", 2)
        return copy_with(self._form.event(body), at=float(at))

    async def append(self, incident_id: str, events: Sequence[Event]) -> bool:
        keys = [*self._of(incident_id, "run", "inbox", "known"), self._redis.key("pending")]
        return int(await self._redis.script("append", keys, [incident_id, *self._pairs(events)])) >= 0

    async def commit(
        self,
        run: Run,
        *,
        consumed: int,
        entries: Sequence[Chained],
        effects: Sequence[Effect],
    ) -> Committed:
        incident, text = run.incident_id, self._form.text(run)
        keys = [
            *self._of(incident, "run", "inbox", "timeline", "effects"),
            *self._keys("owed", "owners", "pending", "due", "open", "last", "incidents"),
            *self._of(incident, "known", "shown", "claims"),
            self._redis.key("parked"),
            *(self._redis.key("about", subject) for subject in subjects(run)),
        ]
        due = min(run.deadlines.values(), default=None)
        arguments: list[Any] = [
            incident,
            run.version - 1,
            text,
            consumed,
            "" if due is None else due,
            "closed" if not run.is_open else "open" if run.parked is None else "parked",
            run.target.key,
            run.visit.number,
            self._owner,
            self._limits.lease_seconds,
            self._limits.retention_seconds,
            len(entries),
            *(entry.model_dump_json() for entry in entries),
        ]
        bodies = {effect.effect_id: self._form.text(effect) for effect in effects}
        arguments += [part for pair in bodies.items() for part in pair]
        answer, *after = await self._redis.script("commit", keys, arguments)
        if answer != "committed":
            raise StaleRunError(f"{incident} version {run.version}: {answer}")
        self._keep(incident, text, run)
        now, events, ids, shown = after
        taken = [
            Owed(
                incident, effect, 0, f"0|{run.version}|{bodies[effect.effect_id]}", run, float(now), run.version,
                _paired(shown) if isinstance(effect, ShowInSlack) else None,
            )
            for effect in effects
            if effect.effect_id in ids
        ]  # fmt: skip
        return Committed(Waiting(run, [self._event(item) for item in events], float(now)), taken)

    async def timeline(self, incident_id: str) -> Sequence[Chained]:
        raw = await self._redis.ask(self._redis.client.lrange(self._redis.key("timeline", incident_id), 0, -1))
        return [Chained.model_validate_json(item) for item in raw]

    async def whole_timeline(self, incident_id: str) -> tuple[Sequence[Chained], StoredHead | None]:
        text, raw = await self._redis.script("whole_timeline", self._of(incident_id, "run", "timeline"), [])
        entries = [Chained.model_validate_json(item) for item in raw]
        run = self._form.run(text) if text else None
        return entries, None if run is None else StoredHead(head=run.timeline.hash, length=run.timeline.length)

    async def bundle(self, digest: str) -> Mapping[str, str] | None:
        raw = await self._redis.ask(self._redis.client.get(self._redis.key("bundle", digest)))
        return None if raw is None else dict(json.loads(raw))

    async def pending(self, limit: int) -> Sequence[str]:
        waiting, due = await self._redis.script("pending", self._keys("pending", "due"), [limit])
        return list(dict.fromkeys([*map(str, waiting), *map(str, due)]))

    async def now(self) -> float:
        return await self._redis.now()

    def _first(self, what: str) -> str:
        return self._redis.key("first", hashlib.sha256(what.encode()).hexdigest())

    async def is_first(self, what: str, *, seconds: float = FIRSTS_KEPT_SECONDS) -> bool:
        """True for the first caller of all replicas of the bot; remembered for so long, by default for a week."""
        return bool(await self._redis.ask(self._redis.client.set(self._first(what), "1", nx=True, ex=int(seconds))))

    async def is_claimed(self, what: str) -> bool:
        """Whether somebody was first."""
        return bool(await self._redis.ask(self._redis.client.exists(self._first(what))))

    async def unclaim(self, what: str) -> None:
        """The first caller did not succeed: the next caller is first."""
        await self._redis.ask(self._redis.client.delete(self._first(what)))

    # --- effects ----------------------------------------------------------------------------------------------------

    async def owed_now(self, limit: int, begun: Collection[tuple[str, str]] = ()) -> Sequence[tuple[str, str, Lane]]:
        """(incident, effect id, lane) of effects that are due, oldest first; taking them is another step."""
        client = self._redis.client
        members = await self._redis.script("owed_now", self._keys("owed"), [limit + len(begun)])
        every = ((incident, effect_id) for incident, _, effect_id in (str(member).partition("|") for member in members))
        due = [each for each in every if each not in begun][:limit]
        if not due:
            return []
        reading = client.pipeline(transaction=False)
        for incident, effect_id in due:
            reading.hget(self._redis.key("effects", incident), effect_id)
        values = await self._redis.ask(reading.execute())
        return [(*each, self._lane_of(value)) for each, value in zip(due, values, strict=True)]

    async def keep_time(self) -> None:
        keys = self._keys("clock", "owed", "pending", "leases")
        back = float(await self._redis.script("keep_time", keys, []))
        if back >= 1:
            log.warning("storage.clock_went_back", seconds=back)

    async def take(self, incident_id: str, effect_id: str) -> Owed | None:
        keys = [
            self._redis.key("effects", incident_id),
            *self._keys("owed", "owners"),
            *self._of(incident_id, "run", "shown"),
        ]
        member = f"{incident_id}|{effect_id}"
        arguments = [member, effect_id, self._owner, self._limits.lease_seconds, self._form.number]
        taken = await self._redis.script("take", keys, arguments)
        if taken is None:
            return None
        return self._owed(incident_id, *taken)

    def _owed(self, incident_id: str, value: str, at: str, text: str, shown: Sequence[str]) -> Owed:
        attempts, version, body = value.split("|", 2)
        run, effect = self._parsed(incident_id, text) if text else None, self._form.effect(body)
        found = Owed(incident_id, effect, int(attempts), value, run, float(at), int(version))
        return replace(found, shown=_paired(shown)) if isinstance(effect, ShowInSlack) else found

    async def owe_now(self, incident_id: str, effect: Effect, *, again: bool) -> bool:
        keys = [*self._of(incident_id, "run", "effects"), *self._keys("owed", "owners")]
        body = self._form.text(effect) if again else ""
        return bool(
            int(
                await self._redis.script("owe_now", keys, [f"{incident_id}|{effect.effect_id}", effect.effect_id, body])
            )
        )

    async def renew(self, owed: Owed) -> bool:
        arguments = [f"{owed.incident_id}|{owed.effect.effect_id}", self._owner, self._limits.lease_seconds]
        return bool(int(await self._redis.script("renew", self._keys("owed", "owners"), arguments)))

    async def settle(
        self, owed: Owed, outcome: Sequence[Event], shown: Mapping[str, str] = MappingProxyType({})
    ) -> Settled:
        incident, effect_id = owed.incident_id, owed.effect.effect_id
        keys = [
            *self._of(incident, "run", "inbox", "known"),
            self._redis.key("pending"),
            self._redis.key("effects", incident),
            *self._keys("owed", "owners"),
            self._redis.key("shown", incident),
        ]
        arguments = [
            incident, f"{incident}|{effect_id}", effect_id, owed.token, self._owner, self._limits.lease_seconds,
            self._form.number, 2 * len(shown), *chain.from_iterable(shown.items()), *self._pairs(outcome),
        ]  # fmt: skip
        value, at, text, events, now_shown = await self._redis.script("settle", keys, arguments)
        is_news = any(not event.may_wait for event in outcome) and text and not self._form.is_newer(text)
        return Settled(
            again=self._owed(incident, value, at, text, now_shown) if value else None,
            waiting=self._waiting(incident, text, at, events) if is_news else None,
        )

    async def put_back(self, owed: Owed, *, after_seconds: float, failed: bool) -> int:
        attempts = owed.attempts + (1 if failed else 0)
        rest = owed.token.split("|", 1)[1]
        keys = [self._redis.key("effects", owed.incident_id), *self._keys("owed", "owners")]
        member = f"{owed.incident_id}|{owed.effect.effect_id}"
        arguments = [member, owed.effect.effect_id, owed.token, f"{attempts}|{rest}", after_seconds, self._owner]
        await self._redis.script("put_back", keys, arguments)
        return attempts

    def _lane_of(self, value: str | None) -> Lane:
        """The lane of a stored effect. One that is void, or that is left to another version, needs no room."""
        body = value.split("|", 2)[2] if value else ""
        return "people" if not body or self._form.is_newer(body) else self._form.effect(body).lane

    def _pairs(self, events: Sequence[Event]) -> list[str]:
        return [part for event in events for part in (event.event_id, self._form.text(event))]

    async def count_event_failure(self, incident_id: str, event_id: str) -> int:
        key = self._redis.key("failures", incident_id)
        failures = int(await self._redis.ask(self._redis.client.hincrby(key, event_id, 1)))
        await self._redis.ask(self._redis.client.expire(key, self._limits.retention_seconds))
        return failures


def _alert_changed(entry: Intake, offer: Offer | None) -> AlertChanged:
    return AlertChanged(
        # By its number in the intake: an incident may receive one alert many times, with or without a close between.
        event_id=f"alert/{entry.entry_id.partition('|')[0]}/{entry.alert.dedupe_key}",
        alert=entry.alert,
        truncated=entry.truncated,
        offer=offer,
    )


def _paired(flat: Sequence[str]) -> dict[str, str]:
    """A hash as scripts return it: each field before its value."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _number(incident_id: str) -> int:
    return int(incident_id.rsplit("-", 1)[-1])
