"""Too many new incidents at once share one message until their cards come: it is edited, and at last says that all did.

A card waits only while nobody needs it: whoever is asked something, leads it or looks at it gets it at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.blocks import context, header, section
from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.escape import line
from bot.adapters.slack.lookup import SETTLE_SECONDS, Key, find_by_key
from bot.adapters.slack.messages import Message, sign_of
from bot.adapters.slack.shown import Pace, Shown
from bot.domain.run import Run
from bot.flow.ports import Clock

log = structlog.get_logger(__name__)

LINES = 14
"""As many as fit one section whatever they say."""
EDIT_EVERY_SECONDS = 5.0
"""In a storm every second brings news, and each edit takes one from the cards."""
LOOK_AGAIN_SECONDS = 10.0
"""How long it may at most go unnoticed that somebody looks for an incident."""
NEXT = 20
"""So many of those that wait may take the next card: the oldest."""
NEEDS_A_PERSON = frozenset({"question", "request", "note"})


@dataclass(frozen=True)
class Folded:
    """An incident whose card waits."""

    said: str
    """Its line in the digest, as it is sent."""
    comes_next: bool = False
    """Its turn came, or somebody looked for it; only Slack's pace keeps its card back now."""


@dataclass(frozen=True)
class Kept:
    folded: Mapping[str, Folded]
    message: Shown
    """`attempt_at` is the newest post or edit; without `ts`, a post whose answer is not known."""

    @property
    def waiting(self) -> dict[str, str]:
        """The lines of those that the digest stands for."""
        return {incident_id: folded.said for incident_id, folded in self.folded.items() if not folded.comes_next}

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.waiting, sort_keys=True).encode()).hexdigest()

    @property
    def is_nothing(self) -> bool:
        return self.message == Shown() and not self.waiting

    def with_(self, incident_id: str, folded: Folded | None) -> Kept:
        others = {other: kept for other, kept in self.folded.items() if other != incident_id}
        return replace(self, folded=others if folded is None else others | {incident_id: folded})


class DigestStore(Protocol):
    """One digest a deployment. Raise `StorageUnavailableError` on no answer."""

    async def load(self) -> Kept: ...

    async def fold(self, incident_id: str, folded: Folded) -> None: ...

    async def unfold(self, incident_id: str) -> None: ...

    async def keep(self, message: Shown) -> None: ...

    async def claim(self) -> bool:
        """Whether this process alone speaks for the digest now; ends by itself after some seconds."""
        ...

    async def release(self) -> None: ...


class Digest:
    def __init__(
        self, client: AsyncWebClient, store: DigestStore, pace: Pace, clock: Clock, *, channel: str, deployment: str
    ) -> None:
        self._client, self._store, self._pace, self._clock = client, store, pace, clock
        self._channel, self._deployment = channel, deployment

    async def hold_back(self, run: Run) -> float:
        """Seconds after which to ask again for the card of this run, which stands in the digest until then; or 0."""
        if _needs_a_person(run):
            return 0.0
        kept = await self._store.load()
        before = kept.folded.get(run.incident_id, Folded(said=""))
        if before.comes_next:
            return 0.0
        wait = LOOK_AGAIN_SECONDS
        if _older(run.incident_id, kept.waiting) < NEXT:
            wait = await self._pace.take("card", self._channel)
        now = Folded(said=line_in_digest(run), comes_next=wait <= 0)
        if now != before:
            await self._store.fold(run.incident_id, now)
        if now.comes_next:
            return 0.0
        await self._speak(kept.with_(run.incident_id, now))
        return min(wait, LOOK_AGAIN_SECONDS)

    async def want(self, incident_id: str) -> None:
        """Somebody looks for this incident: its card comes next."""
        folded = (await self._store.load()).folded.get(incident_id)
        if folded is not None and not folded.comes_next:
            await self._store.fold(incident_id, replace(folded, comes_next=True))

    async def has_card(self, run: Run) -> float:
        """Take it out of the digest; seconds after which to come again when nobody else will bring that up to date."""
        kept = await self._store.load()
        if run.incident_id in kept.folded:
            await self._store.unfold(run.incident_id)
            kept = kept.with_(run.incident_id, None)
        rest = await self._speak(kept)
        return 0.0 if kept.folded else rest

    # --- the message -------------------------------------------------------------------------------------------------

    async def _speak(self, kept: Kept) -> float:
        """Bring the message up to date; seconds after which to try again, 0 when it says what is so."""
        if kept.is_nothing or (kept.waiting and kept.message.hash == kept.hash):
            return 0.0
        # Before anything is claimed: in a storm hundreds come by in the seconds between two edits.
        rest = kept.message.attempt_at + EDIT_EVERY_SECONDS - self._clock.now()
        if kept.message.ts and rest > 0:
            return rest
        if not await self._store.claim():
            return 1.0
        try:
            # Read again: another replica may have spoken before the claim was ours.
            kept = await self._store.load()
            if kept.is_nothing:
                return 0.0
            if kept.message.ts:
                return await self._edit(kept)
            return await self._post(kept)
        finally:
            await self._store.release()

    async def _post(self, kept: Kept) -> float:
        now, entry = self._clock.now(), kept.message
        if entry.attempt_at:
            if (rest := entry.attempt_at + SETTLE_SECONDS - now) > 0:
                return rest
            key, oldest = self._key(entry), entry.first_attempt_at
            found = await find_by_key(self._client, channel=self._channel, key=key, since=oldest)
            if isinstance(found, Refusal):
                return self._refused(found, "looking for the digest")
            if not found and not kept.waiting:
                await self._store.keep(Shown())
                return 0.0
            if found:
                await self._store.keep(replace(entry, ts=found[0], hash="", channel=self._channel))
                return EDIT_EVERY_SECONDS
        if (wait := await self._pace.take("post", self._channel)) > 0:
            return wait
        attempt = Shown(attempt_at=now, first_attempt_at=entry.first_attempt_at or now)
        await self._store.keep(attempt)
        message = digest_message(kept.waiting)
        result = await ask(
            self._client.chat_postMessage(
                channel=self._channel,
                text=message.text,
                blocks=list(message.blocks),
                metadata=self._key(attempt).metadata,
                unfurl_links=False,
            )
        )
        if isinstance(result, Refusal):
            if result.happened == "no":
                await self._store.keep(entry)
            return self._refused(result, "posting the digest")
        posted = replace(attempt, ts=str(result["ts"]), channel=str(result["channel"]), hash=kept.hash)
        await self._store.keep(posted)
        log.info("slack.digest_posted", waiting=len(kept.waiting), ts=posted.ts)
        return 0.0

    async def _edit(self, kept: Kept) -> float:
        now, entry, wanted = self._clock.now(), kept.message, kept.hash
        if entry.hash != wanted:
            message = digest_message(kept.waiting)
            if (rest := entry.attempt_at + EDIT_EVERY_SECONDS - now) > 0:
                return rest
            if (wait := await self._pace.take("update", "workspace")) > 0:
                return wait
            update: dict[str, Any] = {"channel": entry.channel, "ts": entry.ts, "blocks": list(message.blocks)}
            result = await ask(self._client.chat_update(text=message.text, **update))
            if isinstance(result, Refusal):
                if not result.lasting:
                    return self._refused(result, "editing the digest")
                # Somebody deleted it, say: the next news are a new message.
                log.error("slack.digest_lost", error=result.error)
                await self._store.keep(Shown())
                return 0.0
        # The storm is over when nobody waits any more; the next one gets a message of its own.
        await self._store.keep(replace(entry, hash=wanted, attempt_at=now) if kept.waiting else Shown())
        return 0.0

    def _refused(self, refusal: Refusal, what: str) -> float:
        """The digest is no reason to hold up a card: it is tried again with the next incident that comes by."""
        error = refusal.as_error(what)
        log.warning("slack.digest_refused", reason=error.reason)
        return max(error.retry_after_seconds, EDIT_EVERY_SECONDS)

    def _key(self, entry: Shown) -> Key:
        return Key(self._deployment, f"digest/{entry.first_attempt_at:.3f}")


def _needs_a_person(run: Run) -> bool:
    return bool(run.lead) or any(post.kind in NEEDS_A_PERSON for post in run.posts)


def _older(incident_id: str, waiting: Mapping[str, str]) -> int:
    return sum(1 for other in waiting if _number(other) < _number(incident_id))


def line_in_digest(run: Run) -> str:
    return f"{sign_of(run)} *{line(run.incident_id, 40)}* {line(run.title, 60)} · {line(run.target, 80)}"


def digest_message(waiting: Mapping[str, str]) -> Message:
    if not waiting:
        done = "Many incidents began at once; each of them has its card now."
        return Message(done, tuple(section([done])))
    count = len(waiting)
    title = f"{count} new {'incident waits for its card' if count == 1 else 'incidents wait for their cards'}"
    why = (
        "More began at once than anybody could read. The bot works on each of them already; a card comes at once where "
        "a person is needed, the others one by one."
    )
    shown = [said for _, said in sorted(waiting.items(), key=lambda pair: _number(pair[0]))]
    more = [f"… and {count - LINES} more: `/incident list`"] if count > LINES else []
    foot = context(["`/incident show INC-1` shows an incident now and brings its card"])
    blocks = (header(title), *section([why]), *section([*shown[:LINES], *more]), *foot)
    return Message("\n".join([f"{title}.", *shown[:LINES], *more]), blocks)


def _number(incident_id: str) -> tuple[int, str]:
    number = incident_id.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, incident_id)
