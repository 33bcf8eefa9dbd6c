"""What people see of an incident in Slack, measured over everything that the bot has sent: words, buttons, edits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.sandbox.plain_http import http

Json = Mapping[str, Any]
SENT = ("chat.postMessage", "chat.update")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
TOKEN = re.compile(r"<[^>]*>")
"""Dates, mentions and links: what Slack shows in their place is read by `_plain`."""
SNAKE = re.compile(r"(?<![\w/.:@-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/-])")
MAX_BUTTONS = 3


@dataclass(frozen=True)
class Measured:
    replies: int
    words: int
    """Of the thread as it is at the end."""
    card_edits: int
    max_buttons: int
    """On one message, menus left out."""
    snake_case: frozenset[str]
    """Names of variables in text for people, outside code."""
    pictures: tuple[str, ...] = ()
    """The kinds of the replies that show a picture, in order of the thread."""
    files: tuple[str, ...] = ()
    """The names of files that are replies of their own."""


def measured(slack_url: str, channel: str) -> Measured:
    sandbox = f"{slack_url}/__sandbox__"
    calls = [call for method in SENT for call in http().get(f"{sandbox}/calls", params={"method": method}).json()]
    messages = http().get(f"{sandbox}/messages", params={"channel": channel}).json()
    sent = [blocks_of(call["args"]) for call in calls]
    texts = [text for blocks in sent for text in texts_of(blocks)]
    thread = [message for message in messages if message.get("thread_ts", message["ts"]) != message["ts"]]
    (card,) = {message["thread_ts"] for message in thread}
    return Measured(
        replies=len(thread),
        words=sum(len(_plain(text).split()) for message in thread for text in _shown(message)),
        card_edits=sum(call["method"] == "chat.update" and call["args"]["ts"] == card for call in calls),
        max_buttons=max(sum(element["type"] == "button" for element in elements_of(blocks)) for blocks in sent),
        pictures=tuple(_kind_of(message) for message in thread if _has_picture(message)),
        files=tuple(file["name"] for message in thread for file in message.get("files", ())),
        snake_case=frozenset(word for text in texts for word in SNAKE.findall(TOKEN.sub("", CODE.sub("", text)))),
    )


def blocks_of(args: Json) -> Sequence[Json]:
    blocks = args.get("blocks") or []
    return json.loads(blocks) if isinstance(blocks, str) else blocks


def elements_of(blocks: Sequence[Json]) -> list[Json]:
    return [element for block in blocks if block["type"] == "actions" for element in block["elements"]]


def texts_of(blocks: Sequence[Json]) -> Iterator[str]:
    for block in blocks:
        match block["type"]:
            case "section" | "header":
                yield str(block["text"]["text"])
            case "context":
                yield from (str(element["text"]) for element in block["elements"])
            case "actions":
                yield from (str(each["text"]["text"]) for each in block["elements"] if "text" in each)


def _has_picture(message: Json) -> bool:
    return any(block["type"] == "image" for block in message.get("blocks") or ())


def _kind_of(message: Json) -> str:
    """From its key: `INC-1/diagnosis:4`."""
    slot: str = message["metadata"]["event_payload"]["slot"]
    return slot.partition("/")[2].partition(":")[0]


def _shown(message: Json) -> Iterator[str]:
    yield from texts_of(message["blocks"]) if message.get("blocks") else [str(message.get("text", ""))]


def _plain(text: str) -> str:
    return re.sub(r"<[^|>]*\|([^>]*)>", r"\1", text)
