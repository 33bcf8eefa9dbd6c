"""What a call changes, for people: one line per field, `name before → after`, and the inverted line for its undo."""

from __future__ import annotations

import json
from typing import Any

from bot.domain.changes.plan import Difference
from bot.domain.kernel.redaction import shown_value

NOT_SET = "(not set)"
MAX_LENGTH = 120


def changed(name: str, path: str, before: Any, after: Any) -> Difference:
    """Returns the line for one field. Secrets are masked here, once for all readers; the call's body keeps them."""
    named = name.removesuffix(":")
    before, after = shown_value(named, before), shown_value(named, after)
    return Difference(path=path, before=before, after=after, text=f"{name} {_arrow(before, after)}")


def inverted(difference: Difference) -> Difference:
    """Returns the line of the inverse call; a line without an arrow gets the prefix `put back:`."""
    before, after, text = difference.before, difference.after, difference.text
    tail = _arrow(before, after)
    name = text.removesuffix(tail)
    back = f"put back: {text}" if name == text else name + _arrow(after, before)
    return Difference(path=difference.path, before=after, after=before, text=back)


def _arrow(before: Any, after: Any) -> str:
    return f"{shown(before)} → {shown(after)}"


def shown(value: Any) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
