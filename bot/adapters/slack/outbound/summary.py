"""Batches many new incidents into one message until their cards are posted; its last edit confirms that all are.

A card waits only while no person needs it: it is posted at once when the incident asks something, has a lead, or is
looked up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import OF_THE_BOT, OF_THE_CHANNEL, OF_THE_SCOPES, Refusal, ask
from bot.adapters.slack.escape import line
from bot.adapters.slack.outbound.blocks import context, header, section
from bot.adapters.slack.outbound.lookup import SETTLE_SECONDS, Key, time_left
from bot.adapters.slack.outbound.messages import Message, sign_of
from bot.adapters.slack.outbound.post_once import find_only, post
from bot.adapters.slack.outbound.shown import Pace, Shown
from bot.domain.incidents.run import Run
from bot.flow.ports import Clock

log = structlog.get_logger(__name__)

LINES = 12
"""As many as always fit one section."""
EDIT_EVERY_SECONDS = 5.0
"""In a storm the list changes every second, and each edit costs one card."""
LOOK_AGAIN_SECONDS = 10.0
"""The longest delay before a look-up of an incident is noticed."""
NEXT = 20
"""How many of the oldest waiting incidents compete for the next card."""
CURED_BY_PEOPLE = OF_THE_BOT | OF_THE_CHANNEL | OF_THE_SCOPES
NEEDS_A_PERSON = frozenset({"question", "request", "note"})


@dataclass(frozen=True)
class Folded:
    """An incident that has no card yet."""

    said: str
    """Its line in the summary, as it is sent."""
    comes_next: bool = False
    """Its turn came, or a person looked for it; only Slack's pace delays its card now."""
    is_listed: bool = False
    """It had to wait: it is in the summary until its card is posted."""


@dataclass(frozen=True)
class Kept:
    folded: Mapping[str, Folded]
    message: Shown
    """`attempt_at` is the newest post or edit; without `ts`, a post whose answer is not known."""

    @property
    def listed(self) -> dict[str, str]:
        """The lines of the incidents in the summary."""
        return {incident_id: folded.said for incident_id, folded in self.folded.items() if folded.is_listed}

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.listed, sort_keys=True).encode()).hexdigest()

    @property
    def is_nothing(self) -> bool:
        return self.message == Shown() and not self.listed

    def with_(self, incident_id: str, folded: Folded | None) -> Kept:
        others = {other: kept for other, kept in self.folded.items() if other != incident_id}
        return replace(self, folded=others if folded is None else others | {incident_id: folded})

    def older_than(self, incident_id: str) -> int:
        """How many wait for their turn before it."""
        waits = (other for other, folded in self.folded.items() if not folded.comes_next)
        return sum(1 for other in waits if _number(other) < _number(incident_id))


class SummaryStore(Protocol):
    """One summary a deployment. Raise `StorageUnavailableError` on no answer."""

    async def load(self) -> Kept: ...

    async def fold(self, incident_id: str, before: Folded | None, now: Folded) -> bool:
        """Whether it was stored; False when something other than `before` is stored by now."""
        ...

    async def unfold(self, incident_id: str) -> None: ...

    async def claim(self) -> str:
        """A claim by which only this process may post the summary, or empty; it expires after some seconds."""
        ...

    async def keep(self, message: Shown, claim: str) -> bool:
        """Whether it was stored; False when the claim has expired."""
        ...

    async def release(self, claim: str) -> None: ...


class Summary:
    def __init__(
        self, client: AsyncWebClient, store: SummaryStore, pace: Pace, clock: Clock, *, channel: str, deployment: str
    ) -> None:
        self._client, self._store, self._pace, self._clock = client, store, pace, clock
        self._channel, self._deployment = channel, deployment

    async def hold_back(self, run: Run) -> float:
        """Seconds until the card of this run may be tried again, which is in the summary until then; or 0."""
        if _needs_a_person(run):
            return 0.0
        kept = await self._store.load()
        before = kept.folded.get(run.incident_id)
        if before is not None and before.comes_next:
            return 0.0
        wait = LOOK_AGAIN_SECONDS
        if kept.older_than(run.incident_id) < NEXT:
            wait = await self._pace.take("card", self._channel)
        is_listed = wait > 0 or (before is not None and before.is_listed)
        now = Folded(said=summary_line(run), comes_next=wait <= 0, is_listed=is_listed)
        if now != before and not await self._store.fold(run.incident_id, before, now):
            # A person has looked for it in the meantime.
            return 1.0
        if now.comes_next:
            return 0.0
        await self._bring_up_to_date(kept.with_(run.incident_id, now))
        return min(wait, LOOK_AGAIN_SECONDS)

    async def want(self, incident_id: str) -> None:
        """A person looks for this incident: its card comes next."""
        while True:
            folded = (await self._store.load()).folded.get(incident_id)
            if folded is None or folded.comes_next:
                return
            if await self._store.fold(incident_id, folded, replace(folded, comes_next=True)):
                return

    async def has_card(self, run: Run) -> float:
        """Remove it from the summary. Returns seconds until the next try, when no other incident will update it."""
        kept = await self._store.load()
        if run.incident_id in kept.folded:
            await self._store.unfold(run.incident_id)
            kept = kept.with_(run.incident_id, None)
        rest = await self._bring_up_to_date(kept)
        return 0.0 if kept.listed else rest

    # --- the message -------------------------------------------------------------------------------------------------

    async def _bring_up_to_date(self, kept: Kept) -> float:
        """Update the message. Returns seconds until the next try, 0 when it is up to date."""
        if kept.is_nothing or (kept.listed and kept.message.hash == kept.hash):
            return 0.0
        # Before anything is claimed: in a storm hundreds come by in the seconds between two edits.
        rest = time_left(EDIT_EVERY_SECONDS, kept.message.attempt_at, self._clock.now())
        if kept.message.ts and rest > 0:
            return rest
        if not (claim := await self._store.claim()):
            return 1.0
        try:
            # Read again: another replica may have posted before the claim was ours.
            kept = await self._store.load()
            if kept.is_nothing:
                return 0.0
            if kept.message.ts:
                return await self._edit(kept, claim)
            return await self._post(kept, claim)
        finally:
            await self._store.release(claim)

    async def _post(self, kept: Kept, claim: str) -> float:
        now, entry = self._clock.now(), kept.message
        if entry.attempt_at:
            if (rest := time_left(SETTLE_SECONDS, entry.attempt_at, now)) > 0:
                return rest
            found = await self._found(entry)
            if isinstance(found, Refusal):
                return self._refused(found, "looking for the summary")
            if found:
                await self._store.keep(replace(entry, ts=found, hash="", channel=self._channel), claim)
                return EDIT_EVERY_SECONDS
            if not kept.listed:
                await self._store.keep(Shown(), claim)
                return 0.0
        if (wait := await self._pace.take("post", self._channel)) > 0:
            return wait
        attempt = Shown(attempt_at=now, first_attempt_at=entry.first_attempt_at or now)
        if not await self._store.keep(attempt, claim):
            return 1.0
        result = await post(self._client, summary_message(kept.listed), self._key(attempt), channel=self._channel)
        if isinstance(result, Refusal):
            if result.happened == "no":
                await self._store.keep(entry, claim)
            return self._refused(result, "posting the summary")
        ts = str(result["ts"])
        if entry.attempt_at:
            # An earlier attempt may have arrived since the look-up.
            found = await self._found(attempt)
            ts = ts if isinstance(found, Refusal) else found or ts
        await self._store.keep(replace(attempt, ts=ts, channel=str(result["channel"]), hash=kept.hash), claim)
        log.info("slack.summary_posted", waiting=len(kept.listed), ts=ts)
        return 0.0

    async def _found(self, entry: Shown) -> str | Refusal:
        """The first message with the key of these attempts, once it is the only one; empty when there is none."""
        key, since = self._key(entry), entry.first_attempt_at
        return await find_only(self._client, key, channel=self._channel, since=since)

    async def _edit(self, kept: Kept, claim: str) -> float:
        now, entry, wanted = self._clock.now(), kept.message, kept.hash
        if entry.hash != wanted:
            message = summary_message(kept.listed)
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
                await self._store.keep(Shown(), claim)
                return 0.0
        # The storm is over when no incident waits; the next one gets a new message.
        await self._store.keep(replace(entry, hash=wanted, attempt_at=now) if kept.listed else Shown(), claim)
        return 0.0

    def _refused(self, refusal: Refusal, what: str) -> float:
        """Log the refusal. The summary never blocks a card: the next incident tries it again."""
        error = refusal.as_error(what)
        log.warning("slack.summary_refused", reason=error.reason)
        return max(error.retry_after_seconds, EDIT_EVERY_SECONDS)

    def _key(self, entry: Shown) -> Key:
        return Key(self._deployment, f"digest/{entry.first_attempt_at:.3f}")


def _needs_a_person(run: Run) -> bool:
    return bool(run.lead) or any(post.kind in NEEDS_A_PERSON for post in run.posts)


def summary_line(run: Run) -> str:
    closed = "" if run.is_open else f" · closed as {line(run.ending.replace('_', ' '), 24)}"
    return f"{sign_of(run)} *{line(run.incident_id, 40)}* {line(run.title, 60)} · {line(run.target, 80)}{closed}"


def summary_message(waiting: Mapping[str, str]) -> Message:
    if not waiting:
        done = "Many incidents began at once; each has its card now."
        return Message(done, tuple(section([done])))
    count = len(waiting)
    title = f"{count} new {'incident waits for its card' if count == 1 else 'incidents wait for their cards'}"
    why = (
        "Too many began at once to post every card. The bot is already working on all of them; incidents that need a "
        "person get their card at once, the others one by one."
    )
    names = sorted(waiting, key=_number)
    shown = [waiting[name] for name in names]
    more = [f"… and {count - LINES} more: `/incident list`"] if count > LINES else []
    foot = context([f"`/incident show {line(names[0], 40)}` shows that one and posts its card"])
    blocks = (header(title), *section([why]), *section([*shown[:LINES], *more]), *foot)
    return Message("\n".join([f"{title}.", *shown[:LINES], *more]), blocks)


def _number(incident_id: str) -> tuple[int, str]:
    number = incident_id.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, incident_id)
