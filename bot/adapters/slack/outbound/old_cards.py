"""Finds cards of earlier incidents in Slack, to tell a first start from a lost storage."""

from __future__ import annotations

import re
from collections.abc import Iterable

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import LARGEST_PAGE, Refusal, ask
from bot.adapters.slack.outbound.lookup import slot_of

log = structlog.get_logger(__name__)
CARD = re.compile(r"[A-Za-z]+-(\d+)/card")


async def highest_number(client: AsyncWebClient, *, channels: Iterable[str], deployment: str) -> int | None:
    """The highest card number of this deployment in these channels; 0: none; None: Slack did not answer."""
    found = [await _highest_in(client, channel, deployment) for channel in channels]
    return None if None in found else max(number for number in found if number is not None)


async def _highest_in(client: AsyncWebClient, channel: str, deployment: str) -> int | None:
    """As above, among the newest messages of one channel."""
    page = await ask(client.conversations_history(channel=channel, include_all_metadata=True, limit=LARGEST_PAGE))
    if isinstance(page, Refusal):
        log.warning("slack.old_cards_unread", error=page.error)
        return None
    cards = (CARD.fullmatch(slot_of(message, deployment)) for message in page.get("messages", ()))
    return max((int(found[1]) for found in cards if found), default=0)
