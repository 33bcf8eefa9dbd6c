"""Durations as people write them, `90s`, `5m` or `1h30m`, and as they read them, `90 s`, `5 min` or `1 h 30 min`.

A number without a unit is refused: its unit is unknown.
"""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_SECONDS = 1e9
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)


def seconds(text: str) -> float:
    """Returns the seconds; raise `ValueError` if the text is not a duration."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"'{text}' is not a duration; write 90s, 5m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def is_duration(text: str) -> bool:
    try:
        seconds(text)
    except ValueError:
        return False
    return True


def lasting(seconds: float | None) -> str:
    """Returns a duration for people: `65 s`, `4 min 13 s`, `64 min`, `2 h 5 min`; `–` for None."""
    if seconds is None:
        return "–"
    # An altered timeline may hold any number.
    whole = round(max(seconds, 0.0)) if abs(seconds) < MAX_SECONDS else 0
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")
