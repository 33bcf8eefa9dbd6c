"""Finds messages that this bot posted: each carries a key, since Slack has no idempotency keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, pages

METADATA_TYPE = "incident_bot"
HEAD_DIGITS = 16
SETTLE_SECONDS = 3.0
"""How long after an attempt a look-up reliably finds a post that happened."""
CLOCK_SLACK_SECONDS = 60.0
"""How far our clock and Slack's may be apart."""

CLOCK_STEP_SECONDS = 5.0
"""How far the clocks of two replicas of the bot may be apart."""


def time_left(seconds: float, since: float, now: float) -> float:
    """The seconds left of a wait; 0 when it began in the future, because our clock went back by an unknown amount."""
    passed = now - since
    return seconds - passed if passed >= -CLOCK_STEP_SECONDS else 0.0


@dataclass(frozen=True)
class Key:
    """`deployment` keeps two bots in one channel apart."""

    deployment: str
    slot: str

    def metadata(self, head: str = "") -> dict[str, Any]:
        """`head`: of the timeline, which nobody can alter in a message that is posted."""
        payload = {"deployment": self.deployment, "slot": self.slot} | ({"head": head[:HEAD_DIGITS]} if head else {})
        return {"event_type": METADATA_TYPE, "event_payload": payload}

    def is_of(self, message: Mapping[str, Any]) -> bool:
        return slot_of(message, self.deployment) == self.slot


def slot_of(message: Mapping[str, Any], deployment: str) -> str:
    """The slot that a message of this deployment carries, as `INC-7/card`; empty for any other message."""
    metadata = message.get("metadata") or {}
    payload = metadata.get("event_payload") or {}
    is_ours = metadata.get("event_type") == METADATA_TYPE and payload.get("deployment") == deployment
    return str(payload.get("slot", "")) if is_ours else ""


async def find_by_key(
    client: AsyncWebClient, *, channel: str, key: Key, since: float, thread: str = ""
) -> list[str] | Refusal:
    """The ts of every message with this key, oldest first; in the channel, or in one thread of it."""
    oldest = f"{since - CLOCK_SLACK_SECONDS:.6f}"
    bounds: dict[str, Any] = {"channel": channel, "oldest": oldest, "include_all_metadata": True}
    listed = pages(client.conversations_replies, ts=thread, **bounds) if thread else None
    found: list[str] = []
    async for page in listed or pages(client.conversations_history, **bounds):
        if isinstance(page, Refusal):
            return page
        found += [str(message["ts"]) for message in page.get("messages", ()) if key.is_of(message)]
    return sorted(found, key=float)
