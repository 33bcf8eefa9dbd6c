"""Posts a message once: it carries a key that finds an attempt whose answer was lost."""

from __future__ import annotations

from typing import Any

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.client import LAYOUT_REFUSED, Refusal, ask
from bot.adapters.slack.outbound.lookup import Key, find_by_key
from bot.adapters.slack.outbound.message import Message

log = structlog.get_logger(__name__)


async def post(
    client: AsyncWebClient, message: Message, key: Key, *, channel: str, thread: str = ""
) -> dict[str, Any] | Refusal:
    """Post the message. If Slack refuses the layout, post it again as plain text with a note."""
    place: dict[str, Any] = {"channel": channel, "metadata": key.metadata(message.head)}
    place |= {"unfurl_links": False, "unfurl_media": False} | ({"thread_ts": thread} if thread else {})
    place |= {"reply_broadcast": True} if thread and message.is_broadcast else {}
    result = await ask(client.chat_postMessage(**place, **_content(message)))
    if isinstance(result, Refusal) and result.error in LAYOUT_REFUSED:
        log.error("slack.layout_refused", slot=key.slot, error=result.error)
        result = await ask(client.chat_postMessage(**place, **_content(message.as_plain_text())))
    return result


def _content(message: Message) -> dict[str, Any]:
    return {"text": message.text} | ({"blocks": list(message.blocks)} if message.blocks else {})


async def find_only(client: AsyncWebClient, key: Key, *, channel: str, since: float, thread: str = "") -> str | Refusal:
    """The ts of the first message with this key, once the others are deleted; empty when there is none."""
    found = await find_by_key(client, channel=channel, key=key, since=since, thread=thread)
    if isinstance(found, Refusal):
        return found
    for duplicate in found[1:]:
        result = await ask(client.chat_delete(channel=channel, ts=duplicate))
        if isinstance(result, Refusal) and result.error != "message_not_found":
            return result
        log.warning("slack.duplicate_deleted", slot=key.slot, ts=duplicate)
    return found[0] if found else ""
