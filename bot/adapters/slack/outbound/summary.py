"""Batches many new incidents into one message until their cards are posted; its last edit confirms that all are.

Cards never come faster than people can read them. Incidents that need a person go first; only the card of an incident
that has a lead or is looked up waits for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import OF_THE_BOT, OF_THE_CHANNEL, OF_THE_SCOPES, Refusal, ask
from bot.adapters.slack.outbound.lookup import SETTLE_SECONDS, Key, time_left
from bot.adapters.slack.outbound.post_once import find_only, post
from bot.adapters.slack.outbound.shown import Pace, Shown
from bot.adapters.slack.outbound.summary_message import MOVED, NEED_NOBODY, order_of, summary_line, summary_message
from bot.domain.incidents.run import Run
from bot.flow.ports.people import Clock

log = structlog.get_logger(__name__)

EDIT_EVERY_SECONDS, MAX_EDIT_EVERY_SECONDS = 5.0, 20.0
"""In a storm the list changes every second, and all edits share one pace. A long list changes little."""
MOVED_AFTER_SECONDS = 300.0
"""Cards push the summary out of sight: after this time the list goes on in a new message below them."""
SETTLED_KEPT = 10_000
CURED_BY_PEOPLE = OF_THE_BOT | OF_THE_CHANNEL | OF_THE_SCOPES


class SummaryStore(Protocol):
    """One summary a deployment: a line for each incident that had to wait for its card, and a record of the message.

    Raise `StorageUnavailableError` on no answer.
    """

    async def load(self) -> tuple[Mapping[str, str], str]:
        """The lines by incident, and the message's record; empty when there is no message."""
        ...

    async def turn(
        self, incident_id: str, line: str, order: float, *, needs_a_person_below: float
    ) -> tuple[float, int, str, bool]:
        """Take a card of the pace for this incident; without one, keep its line and its place among those that wait.

        The lowest order comes first, and some cards are only for orders below the limit. Returns the seconds to wait, 0
        when the card may be posted now; how many lines there are; the message's record; and whether the incident has to
        `leave` once its card is there.
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
        """Incidents that left, or got their turn, while nothing waited: nothing is left to do about them."""
        self._tried_until = 0.0
        """When another incident comes back to bring the summary up to date."""

    async def hold_back(self, run: Run) -> float:
        """Seconds until the card of this run may be tried again, which is in the summary until then; or 0."""
        if run.lead:
            return 0.0
        wait, listed, message, leaves = await self._store.turn(
            run.incident_id, summary_line(run), order_of(run), needs_a_person_below=NEED_NOBODY
        )
        if wait <= 0:
            if leaves:
                self._settled.discard(run.incident_id)
            else:
                self._settle(run)
            return 0.0
        if self._clock.now() < self._tried_until:
            return wait
        rest = await self._bring_up_to_date(listed, _read(message))
        if rest <= 0:
            return wait
        # This incident comes back for the summary; the others, which may rest for minutes, need not.
        self._tried_until = self._clock.now() + rest
        return min(wait, rest)

    async def want(self, incident_id: str) -> None:
        """A person looks for this incident: its card comes next."""
        await self._store.comes_next(incident_id)

    async def has_card(self, run: Run) -> float:
        """Remove it from the summary. Returns seconds until the next try, when no other incident will update it."""
        if run.incident_id in self._settled:
            return 0.0
        listed, message = await self._store.leave(run.incident_id)
        if not listed and not message:
            self._settle(run)
        if listed and self._clock.now() < self._tried_until:
            return 0.0
        rest = await self._bring_up_to_date(listed, _read(message))
        return 0.0 if listed else rest

    def _settle(self, run: Run) -> None:
        if len(self._settled) >= SETTLED_KEPT:
            self._settled.clear()
        self._settled.add(run.incident_id)

    # --- the message -------------------------------------------------------------------------------------------------

    async def _bring_up_to_date(self, listed: int, message: Shown) -> float:
        """Update the message. Returns seconds until the next try, 0 when it is up to date."""
        if not listed and message == Shown():
            return 0.0
        # Before anything is loaded or claimed: in a storm hundreds come by in the seconds between two edits.
        rest = time_left(_edit_every(listed), message.attempt_at, self._clock.now())
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
        # Without waiting for the pace of posts: the threads of the first cards use it up for half a minute.
        attempt = Shown(attempt_at=now, first_attempt_at=entry.first_attempt_at or now)
        if not await self._keep(attempt, claim):
            return 1.0
        message = summary_message(lines)
        result = await post(self._client, message, self._key(attempt), channel=self._channel)
        if isinstance(result, Refusal):
            if result.happened == "no":
                await self._keep(entry, claim)
            return self._refused(result, "posting the summary")
        ts = str(result["ts"])
        if entry.attempt_at:
            # An earlier attempt may have arrived since the look-up.
            found = await self._found(attempt)
            ts = ts if isinstance(found, Refusal) else found or ts
        await self._keep(replace(attempt, ts=ts, channel=str(result["channel"]), hash=message.hash), claim)
        log.info("slack.summary_posted", waiting=len(lines), ts=ts)
        return 0.0

    async def _found(self, entry: Shown) -> str | Refusal:
        """The first message with the key of these attempts, once it is the only one; empty when there is none."""
        key, since = self._key(entry), entry.first_attempt_at
        return await find_only(self._client, key, channel=self._channel, since=since)

    async def _edit(self, lines: Mapping[str, str], entry: Shown, claim: str) -> float:
        now, message = self._clock.now(), summary_message(lines)
        is_moved = bool(lines) and now - entry.first_attempt_at > MOVED_AFTER_SECONDS
        message = MOVED if is_moved else message
        if entry.hash != message.hash:
            if (rest := time_left(_edit_every(len(lines)), entry.attempt_at, now)) > 0:
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
        if is_moved:
            await self._keep(Shown(), claim)
            return await self._post(lines, Shown(), claim)
        # The storm is over when no incident waits; the next one gets a new message.
        await self._keep(replace(entry, hash=message.hash, attempt_at=now) if lines else Shown(), claim)
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


def _edit_every(listed: int) -> float:
    return min(EDIT_EVERY_SECONDS + listed / 50, MAX_EDIT_EVERY_SECONDS)
