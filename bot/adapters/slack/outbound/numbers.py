"""Renders readings briefly: the numbers that moved, a compact table, and the signals that could not be read.

A reading that the thread has already shown is not repeated; an unreadable signal is always named, with its reason. The
time of the last sample is given once for all its numbers, and a number of another time shows its own. Nothing is
called "now", because a message stays as it is while time passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bot.adapters.slack import limits
from bot.adapters.slack.escape import code, code_block, line
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.outbound.words import day, moment, reasons_of, rows_of, table, value
from bot.domain.signals.signal import SAME_LOOK_SECONDS, Reading
from bot.domain.signals.window import clock

NUMBERS = 6
ROWS = 40
REASONS = 15
NAMES = 12
"""How many names one reason is given for."""
SMALL = 0.05
"""A change by less is neither better nor worse."""
SAME_DAY_SECONDS = 12 * 3600.0
"""Within this distance, a time of day needs no date."""

Readings = Mapping[str, Reading]


def numbers(baseline: Readings, latest: Readings) -> list[str]:
    """`thrash` 3.67 → *0* per finished, for signals that are plain numbers; signals never read are left out.

    Numbers of the last sample come first.
    """
    began, newest = moment_of(baseline), moment_of(latest)
    names = [name for name in {**baseline, **latest} if _is_number(baseline.get(name)) or _is_number(latest.get(name))]
    names.sort(key=lambda name: is_apart(latest.get(name), newest))
    shown = [(name, _dated(baseline.get(name), began), _dated(latest.get(name), newest)) for name in names[:NUMBERS]]
    return [
        f"{_called(latest.get(name) or baseline[name])} {_arrow(baseline.get(name), latest.get(name), *dates)}"
        for name, *dates in shown
    ]


def of_last_look(latest: Readings) -> dict[str, Reading]:
    """The readings without numbers from earlier samples."""
    newest = moment_of(latest)
    return {name: reading for name, reading in latest.items() if not is_apart(reading, newest)}


def moment_of(readings: Readings) -> float:
    """When the newest of these numbers was read; 0 when unknown."""
    return max((reading.at for reading in readings.values() if _is_number(reading)), default=0.0)


def is_apart(reading: Reading | None, moment: float) -> bool:
    return reading is not None and _is_another_look(reading.at, moment)


def _is_another_look(at: float, moment: float) -> bool:
    return at > 0 and abs(at - moment) > SAME_LOOK_SECONDS


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
    unit = (last or before or Reading(name="")).unit
    units = f" {line(unit, 40)}" if unit and unit != "ratio" else ""
    return f"{then}*{_shown(last)}*{units}{_verdict(before, last)}{ended}"


def _shown(reading: Reading | None) -> str:
    """The number without its unit, which follows both numbers."""
    if reading is None or not reading.is_known:
        return "?"
    return line(value(reading.value, reading.unit if reading.unit == "ratio" else ""), 60)


def what_was_read(readings: Sequence[Reading], baseline: Readings, before: Readings) -> list[Block]:
    """A table of single values, a line for each reading of several parts, a line for each reason why not."""
    newest = last_read(readings)
    shown = {row for reading in before.values() for row in _rows(reading)}
    fresh = [reading for reading in readings if not _rows(reading) <= shown]
    single = [reading for reading in fresh if reading.is_known and _is_single(reading)]
    blocks = section([code_block(_table(single, baseline, newest)[: ROWS + 1], limits.SECTION)]) if single else []
    parts = [(_called(each), line(_parts(each), 400), _dated(each, newest)) for each in fresh if _has_parts(each)]
    blocks += section([f"• {name} {text}{date}" for name, text, date in parts])
    blocks += context(_unread(fresh))
    same = len(readings) - len(fresh)
    return blocks + context([f"{same} more {'is' if same == 1 else 'are'} as read before"] if same else [])


def last_read(readings: Iterable[Reading]) -> float:
    """When the newest of them was read; 0 when unknown."""
    return max((reading.at for reading in readings if reading.is_known), default=0.0)


def _rows(reading: Reading) -> set[tuple[str, str]]:
    return {*rows_of(reading), *reasons_of(reading)}


def _is_single(reading: Reading) -> bool:
    return reading.value is not None and not reading.fields


def _has_parts(reading: Reading) -> bool:
    return reading.is_known and any(known != "" for known in reading.fields.values())


def _table(readings: Sequence[Reading], baseline: Readings, newest: float) -> list[str]:
    """A table with a baseline column if a value has moved, and a time column if a sample time differs."""
    last = {each.name: value(each.value, each.unit) for each in readings}
    then = {name: value(old.value, old.unit) for name in last if (old := baseline.get(name)) and old.is_known}
    other = {each.name: clock(each.at, newest) for each in readings if is_apart(each, newest)}
    columns: dict[str, Mapping[str, str]] = {"signal": {each.name: each.called for each in readings}}
    if any(then.get(name, shown) != shown for name, shown in last.items()):
        began = moment_of({name: baseline[name] for name in then})
        columns[f"baseline {clock(began, newest)}" if _is_another_look(began, newest) else "baseline"] = then
    columns |= {"last": last} | ({"at (UTC)": other} if other else {})
    return table(tuple(columns), [tuple(column.get(name, "") for column in columns.values()) for name in last])


def _parts(reading: Reading) -> str:
    return ", ".join(f"{name.partition('.')[2] or 'is'} {shown}" for name, shown in rows_of(reading) if shown != "?")


def _unread(readings: Iterable[Reading]) -> list[str]:
    """One line per reason, since several signals often share one."""
    names: dict[str, list[str]] = {}
    for reading in readings:
        for name, why in reasons_of(reading):
            names.setdefault(why, []).append(name)
    lines = [f"❓ {_listed(each)}: {line(why, 160)}" for why, each in names.items()]
    return lines[:REASONS] + ([f"❓ … and {len(lines) - REASONS} more reasons"] if len(lines) > REASONS else [])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(code(name, 80) for name in names[:NAMES]) + more
