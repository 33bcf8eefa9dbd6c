"""Builds Block Kit blocks within Slack's limits.

Texts must already be escaped, except those of `header` and `button`, which Slack shows unparsed. `verbatim` stops Slack
from detecting links and mentions in a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bot.adapters.slack import limits
from bot.adapters.slack.escape import cut_at_a_word, plain
from bot.adapters.slack.limits import Block
from bot.adapters.slack.press_value import ButtonValue


def mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def plain_text(text: str, limit: int) -> Block:
    return {"type": "plain_text", "text": plain(text, limit), "emoji": True}


def header(text: str) -> Block:
    return {"type": "header", "text": plain_text(text, limits.HEADER)}


def section(lines: Iterable[str]) -> list[Block]:
    """The lines in as few sections as possible; no line is split, and one that alone is too long is cut."""
    return [{"type": "section", "text": mrkdwn(text)} for text in _packed(lines, limits.SECTION)]


def fields(texts: Sequence[str]) -> list[Block]:
    kept = [text for text in texts if text][: limits.FIELDS]
    return [{"type": "section", "fields": [mrkdwn(text) for text in kept]}] if kept else []


def context(lines: Iterable[str]) -> list[Block]:
    packed = _packed(lines, limits.SECTION)
    return [{"type": "context", "elements": [mrkdwn(text)]} for text in packed]


def image(file_id: str, alt_text: str) -> Block:
    """A picture that this bot has uploaded."""
    return {"type": "image", "slack_file": {"id": file_id}, "alt_text": plain(alt_text, limits.ALT_TEXT)}


def divider() -> Block:
    return {"type": "divider"}


def button(text: str, action_id: str, value: str, *, style: str = "", confirm: Block | None = None) -> Block:
    made: Block = {
        "type": "button",
        "text": plain_text(text, limits.BUTTON_TEXT),
        "action_id": action_id,
        "value": value,
    }
    if style:
        made["style"] = style
    if confirm:
        made["confirm"] = confirm
    return made


def link_button(text: str, action_id: str, url: str) -> Block:
    return {"type": "button", "text": plain_text(text, limits.BUTTON_TEXT), "action_id": action_id, "url": url}


def select(placeholder: str, action_id: str, options: Sequence[tuple[str, str, ButtonValue]]) -> Block | None:
    """A menu of label, note and value; None if there is nothing to choose."""
    made = [
        {"text": plain_text(label, limits.OPTION_TEXT), "value": packed}
        | ({"description": plain_text(cut_at_a_word(note, limits.OPTION_TEXT), limits.OPTION_TEXT)} if note else {})
        for label, note, value in options[: limits.OPTIONS]
        if (packed := value.packed_for_a_menu()) is not None
    ]
    if not made:
        return None
    shown = plain_text(placeholder, limits.PLACEHOLDER)
    return {"type": "static_select", "action_id": action_id, "placeholder": shown, "options": made}


def menu(options: Sequence[tuple[str, ButtonValue]], action_id: str) -> Block | None:
    """The `⋯` of a message; None if there is nothing in it."""
    made = [
        {"text": plain_text(label, limits.OPTION_TEXT), "value": packed}
        for label, value in options[: limits.OVERFLOW]
        if (packed := value.packed_for_a_menu()) is not None
    ]
    return {"type": "overflow", "action_id": action_id, "options": made} if made else None


def confirm(title: str, text: str, *, yes: str, no: str, style: str = "danger") -> Block:
    return {
        "title": plain_text(title, limits.CONFIRM_TITLE),
        "text": plain_text(text, limits.CONFIRM_TEXT),
        "confirm": plain_text(yes, limits.CONFIRM_BUTTON),
        "deny": plain_text(no, limits.CONFIRM_BUTTON),
        "style": style,
    }


def actions(buttons: Sequence[Block]) -> list[Block]:
    """Rows of buttons."""
    rows = [buttons[start : start + limits.ACTIONS] for start in range(0, len(buttons), limits.ACTIONS)]
    return [{"type": "actions", "elements": list(row)} for row in rows]


def _packed(lines: Iterable[str], limit: int) -> list[str]:
    texts: list[str] = []
    for each in (_within(line, limit) for line in lines if line):
        if texts and len(texts[-1]) + 1 + len(each) <= limit:
            texts[-1] += "\n" + each
        else:
            texts.append(each)
    return texts


def _within(line: str, limit: int) -> str:
    """Slack refuses the whole message for one text that is too long. No escape, mention or link is cut in two."""
    return line if len(line) <= limit else f"{_HALF.sub('', line[: limit - 1])}…"


_HALF = re.compile(r"(?:<[^>]*|&\w{0,4})\Z")
