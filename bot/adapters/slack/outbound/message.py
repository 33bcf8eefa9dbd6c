"""One message in Slack."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property

from bot.adapters.slack import limits
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import image


@dataclass(frozen=True)
class Message:
    """`text` is for notifications and screen readers; `blocks` is what people see."""

    text: str
    blocks: tuple[Block, ...]
    is_broadcast: bool = False
    """Whether the channel shows this reply of a thread too."""
    head: str = ""
    """The head of the timeline that it carries in its metadata, where nobody can alter it."""
    lasting: str = ""
    """The hash without what moves by itself, such as progress; empty: the hash of everything."""
    picture: str = ""
    """The id of the file that one of its blocks shows."""

    @cached_property
    def hash(self) -> str:
        return hash_of(self.text, self.blocks)

    def with_picture(self, file_id: str, alt_text: str) -> Message:
        """With the picture below its text and above its buttons; without it, if the message is full."""
        if len(self.blocks) >= limits.BLOCKS:
            return self
        texts = [place for place, block in enumerate(self.blocks) if block["type"] == "section"]
        below = texts[-1] + 1 if texts else 0
        blocks = (*self.blocks[:below], image(file_id, alt_text), *self.blocks[below:])
        return replace(self, blocks=blocks, picture=file_id)

    def without_picture(self) -> Message:
        kept = tuple(block for block in self.blocks if block["type"] != "image")
        return replace(self, blocks=kept, picture="")

    def as_plain_text(self) -> Message:
        """The fallback for blocks that Slack refused, with a note that it has no buttons."""
        note = "\n(Slack refused the layout of this message, so it has no buttons; see `/incident show`.)"
        return Message(self.text[: limits.TEXT - len(note)] + note, ())


def hash_of(text: str, blocks: tuple[Block, ...]) -> str:
    return hashlib.sha256(json.dumps([text, blocks], sort_keys=True).encode()).hexdigest()
