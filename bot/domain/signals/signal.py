"""A signal is a named reading: a value, or `unknown` with its reason. Unknown is never 0 and never false."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["number", "text", "flag", "by_replica"]
"""What an expression may do with a value: a number, a text, a boolean, or a number per replica."""

Value = float | bool | str | dict[str, float]
READ_TOGETHER_SECONDS = 15.0
"""Maximum age difference between the newest samples of readings that are read together."""


DURATION = "duration"
"""The unit of a duration in seconds that people read as such: `500 ms`, `2 s`, `5 min`."""
SHOWN_UNITS = {"s": DURATION, DURATION: DURATION, "ratio": "ratio", "°C": "°C"}
"""How `in_words` shows a number of this unit; other units are part of the words around the number."""
Better = Literal["", "lower", "higher"]


class Reading(BaseModel):
    """One reading, with what a reader needs to check it."""

    model_config = ConfigDict(frozen=True)

    name: str
    label: str = ""
    """What people read instead of its name."""
    better: Better = ""
    value: Value | None = None
    fields: dict[str, float | bool | str] = Field(default_factory=dict)
    """A probe's named parts; a part that could not be read is absent, and `unknown_parts` says why."""
    unknown_parts: dict[str, str] = Field(default_factory=dict)
    unknown: str = ""
    """Why no value could be read; empty if one could."""
    by_replica: dict[str, float] = Field(default_factory=dict)
    unit: str = ""
    source: str = ""
    query: str = ""
    at: float = 0.0
    """Epoch seconds of the newest sample behind the value."""
    window_seconds: float = 0.0
    detail: str = ""

    @property
    def called(self) -> str:
        """Its label, else its name."""
        return self.label or self.name

    @property
    def sentence(self) -> str:
        """What a probe says of its whole answer; empty for a metric."""
        return str(self.fields.get("detail") or self.detail) if self.fields else ""

    @property
    def is_known(self) -> bool:
        return not self.unknown

    @property
    def is_number(self) -> bool:
        """Whether it is one plain number, and known."""
        return self.is_known and isinstance(self.value, float | int) and not isinstance(self.value, bool)


def unknown(name: str, reason: str, *, at: float, source: str = "") -> Reading:
    return Reading(name=name, unknown=reason, at=at, source=source)


def in_words(value: Value | None, unit: str = "") -> str:
    """Returns a value for people; a ratio in percent, the highest of many replicas with its name."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        if not value:
            return "none"
        highest = max(value, key=lambda replica: value[replica])
        return f"{in_words(value[highest], unit)} ({highest}, highest of {len(value)})"
    if unit == DURATION:
        return _duration(value)
    if unit == "ratio":
        return f"{value:.1%}" if value < 0.9995 else f"{value:.0%}"
    return _number(value) + (f" {unit}" if unit else "")


def unit_beside(title: str, unit: str) -> str:
    """Returns the unit, unless the title begins with its words: `Requests running: 19`."""
    return "" if f"{title} ".lower().startswith(f"{unit} ".lower()) else unit


def _duration(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * size or (unit == "s" and seconds >= 1):
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds * 1000:.0f} ms" if seconds else "0 s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and 1000 <= abs(value) < 1e15 else f"{value:.3g}"


def result_in_words(reading: Reading) -> str:
    """Returns its own sentence; without one every part with a value, then what is unknown and why."""
    if not reading.is_known:
        return f"unknown: {reading.unknown}"
    if reading.detail:
        return reading.detail
    known = [f"{name.replace('_', ' ')}: {in_words(value)}" for name, value in reading.fields.items() if value != ""]
    return "; ".join([*known, *(f"{name}: unknown ({why})" for name, why in reading.unknown_parts.items())])
