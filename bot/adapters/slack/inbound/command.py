"""One slash command as it arrived, and its answer: a message for one person, or a form."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.adapters.slack import limits
from bot.adapters.slack.escape import line
from bot.adapters.slack.inbound.command_table import NOTHING, SLASH_COMMANDS
from bot.adapters.slack.inbound.forms import Modal
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.outbound.message import Message
from bot.domain.incidents.run import Run

Answer = Message | Modal
_PERSON = re.compile(r"<@([UW][A-Z0-9]+)\|[^>]*>")
_LINK = re.compile(r"<((?:https?|mailto):[^|>]+)(?:\|[^>]*)?>")
_CHANNEL = re.compile(r"<#[CG][A-Z0-9]+\|([^>]*)>")
INCIDENT_ID = re.compile(r"[A-Za-z]+-\d+")
WORKLOAD_NAME = re.compile(r"(?:(\S{1,100})/)?([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})")
"""Namespace and name; with several clusters, the cluster before them."""


@dataclass(frozen=True)
class Command:
    """One slash command as it arrived; `command_id` is the same when the same one arrives again."""

    command_id: str
    user: str
    user_name: str
    name: str
    rest: str
    channel: str = ""
    response_url: str = ""

    @classmethod
    def read(
        cls, text: str, *, user: str, user_name: str, trigger_id: str, channel: str = "", response_url: str = ""
    ) -> Command:
        # Slack puts people, channels and links in brackets and escapes &, < and > in typed text. The text is escaped
        # again wherever it is shown.
        plainly = _CHANNEL.sub(r"#\1", _LINK.sub(r"\1", _PERSON.sub(r"<@\1>", text)))
        word, _, rest = html.unescape(plainly).strip().partition(" ")
        digest = hashlib.sha256(f"{trigger_id}/{user}/{text}".encode()).hexdigest()[:24]
        name = word.lower() or NOTHING
        return cls(f"command:{digest}", user, user_name, name, _with_id(name, rest.strip()), channel, response_url)

    @classmethod
    def received(cls, body: Mapping[str, Any]) -> Command:
        """Reads the command from Slack's request."""
        return cls.read(
            str(body.get("text", "")),
            user=body["user_id"],
            user_name=str(body.get("user_name", "")),
            trigger_id=str(body.get("trigger_id", "")),
            channel=str(body.get("channel_id", "")),
            response_url=str(body.get("response_url", "")),
        )

    @property
    def place(self) -> dict[str, str]:
        """Where to answer later, as a form stores it."""
        return {"channel": self.channel, "response_url": self.response_url}


def _with_id(word: str, rest: str) -> str:
    """The text with `7` as `INC-7`, where a number can only be an incident."""
    first, space, more = rest.partition(" ")
    is_number = first.isascii() and first.isdigit()
    number = SLASH_COMMANDS[word].number if word in SLASH_COMMANDS else "incident"
    # Before a person it is no beginning of a text either: `/incident handover 7 @ben`.
    is_id = is_number and number != "text" and (number == "incident" or not more or more.startswith("<@"))
    return f"{id_of(first)}{space}{more}" if is_id else rest


def id_of(number: str) -> str:
    """The incident that is meant by a number. Its digits stay text: Python reads no number of thousands of them."""
    return f"INC-{number.lstrip('0') or '0'}"


def reply(*lines: str) -> Message:
    head, *rest = lines
    return Message(head[: limits.TEXT], limits.fitted([*section([head]), *(section(rest) if rest else context([]))]))


def closed(run: Run, word: str) -> str:
    """The reply to a command that has no effect on a closed incident."""
    name = line(run.incident_id, 40)
    how = f" ({line(run.ending_in_words, 40)})" if run.ending else ""
    return (
        f"Not done: {name} is closed{how}, and `/incident {word}` has no effect on a closed incident. "
        f"`/incident reopen {name} WHY` reopens it; notes and exports work without reopening."
    )
