"""The buttons of a card: each says its word of `/incident`, by the same way and with the same permissions.

Stored first, acknowledged second; the answer is told to whoever pressed, and to nobody else.
"""

from __future__ import annotations

import asyncio
import html
from typing import Any

import structlog
from slack_bolt.async_app import AsyncAck

from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.commands import Commands
from bot.adapters.slack.outbound.messages import Message
from bot.adapters.slack.press_value import ButtonValue
from bot.adapters.slack.services import Services
from bot.domain.kernel.errors import MessengerError, StorageUnavailableError

log = structlog.get_logger(__name__)
Json = dict[str, Any]
WORDS = ("lead", "halt", "resume")
ANSWER_SECONDS = 2.0
OLD = "This button is from an older card of the bot; say `/incident help`."
NOT_STORED = (
    "The bot's storage did not answer in time, so it is not known whether this was done. Please press again; pressing "
    "twice is harmless."
)


class CardButtons:
    def __init__(self, services: Services, commands: Commands) -> None:
        self._messenger, self._commands = services.messenger, commands

    async def pressed(self, ack: AsyncAck, body: Json, action: Json) -> None:
        command = _command(body, action)
        told = await self._follow(command) if command is not None else OLD
        await ack()
        user, channel = str(body["user"]["id"]), str(body.get("channel", {}).get("id", ""))
        try:
            await self._messenger.tell(user, channel, told, response_url=str(body.get("response_url", "")))
        except MessengerError as refused:
            log.warning("slack.tell_failed", user=user, reason=refused.reason)

    async def _follow(self, command: Command) -> str:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._commands.answer(command)
        except (StorageUnavailableError, TimeoutError):
            log.error("command.not_stored", word=command.word, user=command.user)
            return NOT_STORED
        log.info("command.answered", word=command.word, user=command.user)
        # It was escaped for blocks, and whoever tells it escapes it again.
        return html.unescape(answer.text) if isinstance(answer, Message) else OLD


def _command(body: Json, action: Json) -> Command | None:
    """What the button says; None for one that this code does not know."""
    value = ButtonValue.unpacked(str(action.get("value", "")))
    if value is None or value.about not in WORDS:
        return None
    ts = body.get("container", {}).get("message_ts", "")
    return Command.read(
        f"{value.about} {value.incident_id}",
        user=str(body["user"]["id"]),
        user_name=str(body["user"].get("username", "")),
        # The same click delivered twice is the same command.
        trigger_id=f"{ts}/{action.get('action_ts', '')}",
        channel=str(body.get("channel", {}).get("id", "")),
        response_url=str(body.get("response_url", "")),
    )
