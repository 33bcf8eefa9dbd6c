"""Durations as people write them: `90s`, `5m`, `1h30m`. A number without a unit is refused: its unit is unknown."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
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
