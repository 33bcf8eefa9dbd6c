"""Slack's sizes (facts: over a limit it answers `invalid_blocks` or `msg_too_long`), and fitting blocks into them.

The body is cut from its end; the foot, which holds buttons and the decision, is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from bot.domain.playbooks.text_sizes import LABEL

Block = dict[str, Any]

BLOCKS = 50
HEADER = 150
SECTION = 3_000
FIELD = 2_000
FIELDS = 10
ACTIONS = 25
BUTTON_TEXT = LABEL
BUTTON_VALUE = 2_000
MODAL_TITLE = 24
INPUT_LABEL = 2_000
"""The limit of an input's label and of its hint."""
ONE_LINE = 400
"""A field for longer text has several lines. This is our choice, not Slack's limit."""
BLOCK_ID = 255
OPTIONS = 100
OVERFLOW = 5
PLACEHOLDER = 150
OPTION_TEXT = 75
OPTION_VALUE = 150
CONFIRM_TITLE = 100
CONFIRM_TEXT = 300
CONFIRM_BUTTON = 30
PRIVATE_METADATA = 3_000
ALT_TEXT = 2_000
TEXT = 3_000
"""The limit of the `text` beside the blocks: `chat.update` refuses more than 4,000."""
MESSAGE_CHARACTERS = 9_500
"""The limit of all texts of a message together: beyond it Slack answers `msg_blocks_too_long`.

Slack does not say how it counts. One block of 13,000 is taken, 45 blocks with 11,341 are not, 50 with 9,597 are.
"""

LEFT_OUT: Block = {
    "type": "context",
    "elements": [{"type": "plain_text", "text": "… more was left out: it is in the timeline", "emoji": True}],
}


def fitted(body: Sequence[Block], foot: Sequence[Block] = ()) -> tuple[Block, ...]:
    """Body and foot within the limits of one message."""
    kept = list(body)
    if _fits([*kept, *foot]):
        return (*kept, *foot)
    while kept and not _fits([*kept, LEFT_OUT, *foot]):
        kept.pop()
    return (*kept, LEFT_OUT, *foot)


def _fits(blocks: Sequence[Block]) -> bool:
    if len(blocks) > BLOCKS:
        return False
    # Most messages are short, and no text is longer than the JSON that holds it.
    return len(to_json(blocks)) <= MESSAGE_CHARACTERS or sum(map(characters, blocks)) <= MESSAGE_CHARACTERS


def characters(part: Any) -> int:
    """How many characters of text a block holds."""
    count, parts = 0, [part]
    while parts:
        each = parts.pop()
        if isinstance(each, dict):
            text = each.get("text")
            count += len(text) if isinstance(text, str) else 0
            parts += each.values()
        elif isinstance(each, list):
            parts += each
    return count
