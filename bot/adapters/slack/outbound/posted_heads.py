"""The heads of a timeline that this bot's messages carry in Slack, where the storage cannot alter them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, pages
from bot.adapters.slack.outbound.lookup import CLOCK_SLACK_SECONDS, slot_of
from bot.domain.kernel.timeline_check import PostedHead

HEAD = re.compile(r"timeline `([0-9a-f]{16})`")
Messages = list[Mapping[str, Any]]


async def posted_heads(
    client: AsyncWebClient, *, deployment: str, incident_id: str, channels: Iterable[str], since: float
) -> tuple[PostedHead, ...]:
    """The heads in these channels and in the thread of the incident's card. Raise `MessengerError` on no answer."""
    found: list[PostedHead] = []
    for channel in dict.fromkeys(channels):
        history = await _all(client.conversations_history, channel=channel, oldest=f"{since - CLOCK_SLACK_SECONDS:.6f}")
        own = [(slot, message) for message in history if (slot := _slot(message, deployment, incident_id))]
        found += _heads(own)
        for card in (message for slot, message in own if slot == "card"):
            replies = await _all(client.conversations_replies, channel=channel, ts=card["ts"])
            found += _heads((_slot(message, deployment, incident_id), message) for message in replies)
    return tuple(dict.fromkeys(found))


async def _all(method: Any, **arguments: Any) -> Messages:
    found: Messages = []
    async for page in pages(method, include_all_metadata=True, **arguments):
        if isinstance(page, Refusal):
            raise page.as_error("reading the heads")
        found += page.get("messages", ())
    return found


def _slot(message: Mapping[str, Any], deployment: str, incident_id: str) -> str:
    """The slot of a message of this incident; empty for any other message."""
    incident, _, slot = slot_of(message, deployment).partition("/")
    return slot if incident == incident_id else ""


def _heads(messages: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[PostedHead]:
    for slot, message in messages:
        foot = [
            each for block in message.get("blocks") or () if block.get("type") == "context" for each in _texts(block)
        ]
        heads = [head for text in foot for head in HEAD.findall(text)]
        payload = (message.get("metadata") or {}).get("event_payload") or {}
        heads += [str(payload["head"])] if payload.get("head") else []
        if slot and heads:
            # Text that people wrote comes before the foot.
            yield PostedHead(slot=slot, head=heads[-1], at=float(message["ts"]))


def _texts(block: Mapping[str, Any]) -> Iterator[str]:
    return (str(element.get("text", "")) for element in block.get("elements") or ())
