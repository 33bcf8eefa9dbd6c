"""Values in words for a report: on one line, without characters that are not seen."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime

from bot.domain.signals.signal import Reading

MAX_LENGTH = 2_000
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Controls, bidirectional overrides and zero-width characters: they can make a text read as another one."""


def one_line(raw: object, limit: int = MAX_LENGTH) -> str:
    spaced = " ".join(str(raw).split())
    shown = " ".join("".join(char for char in spaced if unicodedata.category(char) not in _UNSEEN).split())
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"


def moment(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "(no such time)"  # an altered entry may hold any number


def plain(value: object) -> str:
    """A value as people write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
        case dict():
            return ", ".join(f"{name} {plain(item)}" for name, item in value.items() if item != "")
        case str():
            return value
        case None:
            return "nothing"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def reading(found: Reading | None) -> str:
    if found is None:
        return ""
    if not found.is_known:
        return f"unknown: {found.unknown}"
    if found.unit == "ratio" and isinstance(found.value, float | int) and 0 <= found.value <= 2:
        return f"{found.value * 100:.3g}%"  # as on the chart
    text = plain(found.fields) if found.fields else plain(found.value)
    return f"{text} {found.unit}".strip()


def read_at(found: Reading | None) -> str:
    """The moment that a reading is of; empty where it does not say one."""
    return moment(found.at) if found is not None and found.at > 0 else ""
