"""Batches many new incidents into one message until their cards are posted; its last edit confirms that all are.

A card waits only while no person needs it: it is posted at once when the incident asks something, has a lead, or is
looked up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import OF_THE_BOT, OF_THE_CHANNEL, OF_THE_SCOPES, Refusal, ask
from bot.adapters.slack.escape import line
from bot.adapters.slack.outbound.blocks import context, header, section
from bot.adapters.slack.outbound.card import sign_of
from bot.adapters.slack.outbound.lookup import SETTLE_SECONDS, Key, time_left
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.post_once import find_only, post
from bot.adapters.slack.outbound.shown import Pace, Shown
from bot.domain.incidents.endings import ending_in_words
from bot.domain.incidents.run import Run
from bot.flow.ports import Clock

log = structlog.get_logger(__name__)

LINES = 12
"""As many as always fit one section."""
EDIT_EVERY_SECONDS = 5.0
"""In a storm the list changes every second, and each edit costs one card."""
LOOK_AGAIN_SECONDS = 10.0
"""How long the next ones wait between two tries."""
MAX_REST_SECONDS = 60.0
NEXT = 20
SETTLED_KEPT = 10_000
"""How many of the oldest waiting incidents compete for the next card."""
CURED_BY_PEOPLE = OF_THE_BOT | OF_THE_CHANNEL | OF_THE_SCOPES
NEEDS_A_PERSON = frozenset({"question", "request", "note"})


class SummaryStore(Protocol):
    """One summary a deployment: a line for each incident that had to wait for its card, and a record of the message.

    Raise `StorageUnavailableError` on no answer.
    """

    async def load(self) -> tuple[Mapping[str, str], str]:
        """The lines by incident, and the message's record; empty when there is no message."""
        ...

    async def turn(
        self, incident_id: str, line: str, channel: str, *, compete: int, look_again_seconds: float
    ) -> tuple[float, int, int, str]:
        """Take a card of the pace for this incident; without one, keep its line and its place among those that wait.

        Only the `compete` oldest that wait take one. Returns the seconds to wait, 0 when the card may be posted now;
        how many wait before it; how many lines there are; and the message's record.
        """
        ...

    async def comes_next(self, incident_id: str) -> None:
        """An incident that waits need not wait for its turn any more."""
        ...

    async def leave(self, incident_id: str) -> tuple[int, str]:
        """Remove the line of an incident that has its card. Returns how many are left, and the message's record."""
        ...

    async def claim(self) -> str:
        """A claim by which only this process may post the summary, or empty; it expires after some seconds."""
        ...

    async def keep(self, message: str, claim: str) -> bool:
        """Whether it was stored; False when the claim has expired."""
        ...

    async def release(self, claim: str) -> None: ...


class Summary:
    def __init__(
        self, client: AsyncWebClient, store: SummaryStore, pace: Pace, clock: Clock, *, channel: str, deployment: str
    ) -> None:
        self._client, self._store, self._pace, self._clock = client, store, pace, clock
        self._channel, self._deployment = channel, deployment
        self._settled: set[str] = set()
        """Incidents that left while nothing waited: nothing is left to do about them."""

    async def hold_back(self, run: Run) -> float:
        """Seconds until the card of this run may be tried again, which is in the summary until then; or 0."""
        if _needs_a_person(run):
            return 0.0
        wait, older, listed, message = await self._store.turn(
            run.incident_id, summary_line(run), self._channel, compete=NEXT, look_again_seconds=LOOK_AGAIN_SECONDS
        )
        if wait <= 0:
            return 0.0
        await self._bring_up_to_date(listed, _read(message))
        # Of thousands that wait for hours, each looks the less often the longer its turn is away.
        return min(max(wait, LOOK_AGAIN_SECONDS * older / NEXT), MAX_REST_SECONDS)

    async def want(self, incident_id: str) -> None:
        """A person looks for this incident: its card comes next."""
        await self._store.comes_next(incident_id)

    async def has_card(self, run: Run) -> float:
        """Remove it from the summary. Returns seconds until the next try, when no other incident will update it."""
        if run.incident_id in self._settled:
            return 0.0
        listed, message = await self._store.leave(run.incident_id)
        if not listed and not message:
            if len(self._settled) >= SETTLED_KEPT:
                self._settled.clear()
            self._settled.add(run.incident_id)
        rest = await self._bring_up_to_date(listed, _read(message))
        return 0.0 if listed else rest

    # --- the message -------------------------------------------------------------------------------------------------

    async def _bring_up_to_date(self, listed: int, message: Shown) -> float:
        """Update the message. Returns seconds until the next try, 0 when it is up to date."""
        if not listed and message == Shown():
            return 0.0
        # Before anything is loaded or claimed: in a storm hundreds come by in the seconds between two edits.
        rest = time_left(EDIT_EVERY_SECONDS, message.attempt_at, self._clock.now())
        if message.ts and rest > 0:
            return rest
        if not (claim := await self._store.claim()):
            return 1.0
        try:
            # Another replica may have posted before the claim was ours.
            lines, record = await self._store.load()
            message = _read(record)
            if message.ts:
                return await self._edit(lines, message, claim)
            if lines or message != Shown():
                return await self._post(lines, message, claim)
            return 0.0
        finally:
            await self._store.release(claim)

    async def _post(self, lines: Mapping[str, str], entry: Shown, claim: str) -> float:
        now = self._clock.now()
        if entry.attempt_at:
            if (rest := time_left(SETTLE_SECONDS, entry.attempt_at, now)) > 0:
                return rest
            found = await self._found(entry)
            if isinstance(found, Refusal):
                return self._refused(found, "looking for the summary")
            if found:
                await self._keep(replace(entry, ts=found, hash="", channel=self._channel), claim)
                return EDIT_EVERY_SECONDS
            if not lines:
                await self._keep(Shown(), claim)
                return 0.0
        if (wait := await self._pace.take("post", self._channel)) > 0:
            return wait
        attempt = Shown(attempt_at=now, first_attempt_at=entry.first_attempt_at or now)
        if not await self._keep(attempt, claim):
            return 1.0
        result = await post(self._client, summary_message(lines), self._key(attempt), channel=self._channel)
        if isinstance(result, Refusal):
            if result.happened == "no":
                await self._keep(entry, claim)
            return self._refused(result, "posting the summary")
        ts = str(result["ts"])
        if entry.attempt_at:
            # An earlier attempt may have arrived since the look-up.
            found = await self._found(attempt)
            ts = ts if isinstance(found, Refusal) else found or ts
        await self._keep(replace(attempt, ts=ts, channel=str(result["channel"]), hash=_hash(lines)), claim)
        log.info("slack.summary_posted", waiting=len(lines), ts=ts)
        return 0.0

    async def _found(self, entry: Shown) -> str | Refusal:
        """The first message with the key of these attempts, once it is the only one; empty when there is none."""
        key, since = self._key(entry), entry.first_attempt_at
        return await find_only(self._client, key, channel=self._channel, since=since)

    async def _edit(self, lines: Mapping[str, str], entry: Shown, claim: str) -> float:
        now, wanted = self._clock.now(), _hash(lines)
        if entry.hash != wanted:
            message = summary_message(lines)
            if (rest := time_left(EDIT_EVERY_SECONDS, entry.attempt_at, now)) > 0:
                return rest
            if (wait := await self._pace.take("update", "workspace")) > 0:
                return wait
            update: dict[str, Any] = {"channel": entry.channel, "ts": entry.ts, "blocks": list(message.blocks)}
            result = await ask(self._client.chat_update(text=message.text, **update))
            if isinstance(result, Refusal):
                if not result.lasting or result.error in CURED_BY_PEOPLE:
                    return self._refused(result, "editing the summary")
                # For example, it was deleted: the next change gets a new message.
                log.error("slack.summary_lost", error=result.error)
                await self._keep(Shown(), claim)
                return 0.0
        # The storm is over when no incident waits; the next one gets a new message.
        await self._keep(replace(entry, hash=wanted, attempt_at=now) if lines else Shown(), claim)
        return 0.0

    async def _keep(self, message: Shown, claim: str) -> bool:
        return await self._store.keep(json.dumps(asdict(message)), claim)

    def _refused(self, refusal: Refusal, what: str) -> float:
        """Log the refusal. The summary never blocks a card: the next incident tries it again."""
        error = refusal.as_error(what)
        log.warning("slack.summary_refused", reason=error.reason)
        return max(error.retry_after_seconds, EDIT_EVERY_SECONDS)

    def _key(self, entry: Shown) -> Key:
        return Key(self._deployment, f"digest/{entry.first_attempt_at:.3f}")


def _read(message: str) -> Shown:
    return Shown(**json.loads(message)) if message else Shown()


def _hash(lines: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(lines), sort_keys=True).encode()).hexdigest()


def _needs_a_person(run: Run) -> bool:
    return bool(run.lead) or any(post.kind in NEEDS_A_PERSON for post in run.posts)


def summary_line(run: Run) -> str:
    closed = "" if run.is_open else f" · {line(ending_in_words(run.ending), 40)}"
    return f"{sign_of(run)} *{line(run.incident_id, 40)}* {line(run.called, 60)} · {line(run.target, 80)}{closed}"


def summary_message(waiting: Mapping[str, str]) -> Message:
    if not waiting:
        done = "Many incidents began at once; each has its card now."
        return Message(done, tuple(section([done])))
    count = len(waiting)
    title = f"{count} new {'incident has' if count == 1 else 'incidents have'} no card yet"
    why = (
        "Too many incidents began at once to post a card for each. The bot is working on all of them. Those that need "
        "a person get their card at once; the others follow one by one."
    )
    names = sorted(waiting, key=_number)
    shown = [waiting[name] for name in names]
    more = [f"… and {count - LINES} more: `/incident list`"] if count > LINES else []
    foot = context([f"`/incident show {line(names[0], 40)}` posts its card now"])
    blocks = (header(title), *section([why]), *section([*shown[:LINES], *more]), *foot)
    return Message("\n".join([f"{title}.", *shown[:LINES], *more]), blocks)


def _number(incident_id: str) -> tuple[int, str]:
    number = incident_id.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, incident_id)
