"""Finds cards of earlier incidents in Slack, to tell a first start from a lost storage."""

from __future__ import annotations

import re
from collections.abc import Iterable

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import Refusal, ask
from bot.adapters.slack.outbound.lookup import METADATA_TYPE

log = structlog.get_logger(__name__)
PAGES = 5
PER_PAGE = 200
CARD = re.compile(r"[A-Za-z]+-(\d+)/card")


async def highest_number(client: AsyncWebClient, *, channels: Iterable[str], deployment: str) -> int | None:
    """The highest card number of this deployment in these channels; 0: none; None: Slack did not answer."""
    found = [await _highest_in(client, channel, deployment) for channel in channels]
    return None if None in found else max(number for number in found if number is not None)


async def _highest_in(client: AsyncWebClient, channel: str, deployment: str) -> int | None:
    """As above, among the newest messages of one channel."""
    highest, cursor = 0, ""
    for _ in range(PAGES):
        page = {"channel": channel, "include_all_metadata": True, "limit": PER_PAGE}
        result = await ask(client.conversations_history(**page, **({"cursor": cursor} if cursor else {})))  # type: ignore[arg-type]
        if isinstance(result, Refusal):
            log.warning("slack.old_cards_unread", error=result.error)
            return None
        for message in result.get("messages", ()):
            metadata = message.get("metadata") or {}
            payload = metadata.get("event_payload") or {}
            found = CARD.fullmatch(str(payload.get("slot", "")))
            if found and metadata.get("event_type") == METADATA_TYPE and payload.get("deployment") == deployment:
                highest = max(highest, int(found[1]))
        cursor = str((result.get("response_metadata") or {}).get("next_cursor", ""))
        if highest or not cursor:
            break
    return highest
