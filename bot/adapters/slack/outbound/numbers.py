"""The numbers that moved, each with the time it was read if that differs from the others.

Nothing is called "now", because a message stays as it is while time passes.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.adapters.slack.escape import code, line
from bot.adapters.slack.outbound.words import SAME_DAY_SECONDS, day, moment, value
from bot.domain.signals.signal import READ_TOGETHER_SECONDS, Reading, unit_beside

NUMBERS = 6
SMALL = 0.05
"""A change by less is neither better nor worse."""

Readings = Mapping[str, Reading]


def numbers(baseline: Readings, latest: Readings) -> list[str]:
    """`thrash` 3.67 → *0* per finished, for signals that are plain numbers; signals never read are left out.

    Numbers of the last sample come first, and of those the ones whose playbook says which way is better.
    """
    began, newest = moment_of(baseline), moment_of(latest)
    names = [name for name in {**baseline, **latest} if _is_number(baseline.get(name)) or _is_number(latest.get(name))]
    names.sort(key=lambda name: (is_apart(latest.get(name), newest), not (latest.get(name) or baseline[name]).better))
    shown = [(name, _dated(baseline.get(name), began), _dated(latest.get(name), newest)) for name in names[:NUMBERS]]
    return [
        f"{_called(latest.get(name) or baseline[name])} {_arrow(baseline.get(name), latest.get(name), *dates)}"
        for name, *dates in shown
    ]


def moment_of(readings: Readings) -> float:
    """When the newest of these numbers was read; 0 when unknown."""
    return max((reading.at for reading in readings.values() if _is_number(reading)), default=0.0)


def is_apart(reading: Reading | None, moment: float) -> bool:
    return reading is not None and _is_another_look(reading.at, moment)


def _is_another_look(at: float, moment: float) -> bool:
    return at > 0 and abs(at - moment) > READ_TOGETHER_SECONDS


def when(baseline: Readings, latest: Readings) -> str:
    """The times of the numbers that do not show their own; empty when unknown."""
    began, newest = moment_of(baseline), moment_of(latest)
    before = f", baseline at {_at(began, newest)}" if _is_another_look(began, newest) else ""
    return f"read at {_at(newest, newest)}{before}" if newest else ""


def _at(at: float, beside: float) -> str:
    return moment(at) if abs(at - beside) < SAME_DAY_SECONDS else day(at)


def _dated(reading: Reading | None, usual: float) -> str:
    """The time of a number, if it differs from the others."""
    return f" (at {_at(reading.at, usual)})" if reading is not None and is_apart(reading, usual) else ""


def _is_number(reading: Reading | None) -> bool:
    return reading is not None and reading.is_number


def _called(reading: Reading) -> str:
    return line(reading.label, 60) if reading.label else code(reading.name, 60)


def _verdict(before: Reading | None, last: Reading | None) -> str:
    """Whether a number that moved got better or worse, if its playbook says which way is better."""
    if before is None or last is None or not (last.better and before.is_number and last.is_number):
        return ""
    moved = float(last.value or 0) - float(before.value or 0)  # type: ignore[arg-type]
    if abs(moved) <= SMALL * abs(float(before.value or 0)):  # type: ignore[arg-type]
        return ""
    return " (better)" if (moved < 0) == (last.better == "lower") else " (worse)"


def _arrow(before: Reading | None, last: Reading | None, began: str, ended: str) -> str:
    then = f"{_shown(before)}{began} → " if before is not None else ""
    reading = last or before or Reading(name="")
    unit = unit_beside(reading.called, reading.unit)
    units = f" {line(unit, 40)}" if unit and unit != "ratio" else ""
    return f"{then}*{_shown(last)}*{units}{_verdict(before, last)}{ended}"


def _shown(reading: Reading | None) -> str:
    """The number without its unit, which follows both numbers."""
    if reading is None or not reading.is_known:
        return "?"
    return line(value(reading.value, reading.unit if reading.unit == "ratio" else ""), 60)
