"""What was read, in as few words as tell it: the numbers that moved, a compact table, and what could not be read.

What a thread has already shown is not shown again; what could not be read is always named, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bot.adapters.slack import limits
from bot.adapters.slack.blocks import context, section
from bot.adapters.slack.escape import code, code_block, line
from bot.adapters.slack.limits import Block
from bot.adapters.slack.words import ago, reasons_of, rows_of, table, value
from bot.domain.signal import Reading

NUMBERS = 6
ROWS = 40
REASONS = 15
SAME_MOMENT_SECONDS = 60.0
NAMES = 12
"""How many names one reason is given for."""

Readings = Mapping[str, Reading]


def numbers(baseline: Readings, latest: Readings) -> list[str]:
    """`thrash` 3.67 → *0* per finished, for the signals that are plain numbers; what was never read is left out."""
    names = [name for name in {**baseline, **latest} if _is_number(baseline.get(name)) or _is_number(latest.get(name))]
    shown = names[:NUMBERS]
    newest = max((latest[name].at for name in shown if name in latest), default=0.0)
    return [
        f"{code(name, 60)} {_arrow(baseline.get(name), latest.get(name))}{_age(latest.get(name), newest)}"
        for name in shown
    ]


def _age(reading: Reading | None, newest: float) -> str:
    """States read different signals, so numbers of different moments are side by side."""
    is_old = reading is not None and 0 < reading.at < newest - SAME_MOMENT_SECONDS
    return f" ({ago(reading.at)})" if reading is not None and is_old else ""


def read_when(latest: Readings) -> str:
    """When the newest of the numbers was read; empty where there are none."""
    newest = max((each.at for each in latest.values() if _is_number(each)), default=0.0)
    return f"numbers read {ago(newest)}" if newest > 0 else ""


def _is_number(reading: Reading | None) -> bool:
    if reading is None or not reading.is_known:
        return False
    return isinstance(reading.value, float | int) and not isinstance(reading.value, bool)


def _arrow(before: Reading | None, now: Reading | None) -> str:
    then = f"{_shown(before)} → " if before is not None else ""
    unit = (now or before or Reading(name="")).unit
    return f"{then}*{_shown(now)}*" + (f" {line(unit, 40)}" if unit and unit != "ratio" else "")


def _shown(reading: Reading | None) -> str:
    """The number alone: its unit is said once, after both."""
    if reading is None or not reading.is_known:
        return "?"
    return line(value(reading.value, reading.unit if reading.unit == "ratio" else ""), 60)


def read_now(readings: Sequence[Reading], baseline: Readings, before: Readings) -> list[Block]:
    """A table of single values, a line for each reading of several parts, a line for each reason why not."""
    told = {row for reading in before.values() for row in _said(reading)}
    fresh = [reading for reading in readings if not _said(reading) <= told]
    single = [reading for reading in fresh if reading.is_known and _is_single(reading)]
    blocks = section([code_block(_table(single, baseline)[: ROWS + 1], limits.SECTION)]) if single else []
    blocks += section([f"• {code(each.name, 80)} {line(_parts(each), 400)}" for each in fresh if _has_parts(each)])
    blocks += context(_unread(fresh))
    same = len(readings) - len(fresh)
    return blocks + context([f"{same} more {'is' if same == 1 else 'are'} as read before"] if same else [])


def _said(reading: Reading) -> set[tuple[str, str]]:
    return {*rows_of(reading), *reasons_of(reading)}


def _is_single(reading: Reading) -> bool:
    return reading.value is not None and not reading.fields


def _has_parts(reading: Reading) -> bool:
    return reading.is_known and any(known != "" for known in reading.fields.values())


def _table(readings: Iterable[Reading], baseline: Readings) -> list[str]:
    """With the baseline where one of them has moved since."""
    rows = [(each.name, value(each.value, each.unit), baseline.get(each.name)) for each in readings]
    then = {name: value(old.value, old.unit) for name, _, old in rows if old is not None and old.is_known}
    if all(then.get(name, now) == now for name, now, _ in rows):
        return table(("signal", "now"), [(name, now) for name, now, _ in rows])
    return table(("signal", "baseline", "now"), [(name, then.get(name, ""), now) for name, now, _ in rows])


def _parts(reading: Reading) -> str:
    return ", ".join(f"{name.partition('.')[2] or 'is'} {shown}" for name, shown in rows_of(reading) if shown != "?")


def _unread(readings: Iterable[Reading]) -> list[str]:
    """One line a reason: a signal that cannot be read is seldom alone."""
    names: dict[str, list[str]] = {}
    for reading in readings:
        for name, why in reasons_of(reading):
            names.setdefault(why, []).append(name)
    lines = [f"❓ {_listed(each)}: {line(why, 160)}" for why, each in names.items()]
    return lines[:REASONS] + ([f"❓ … and {len(lines) - REASONS} more reasons"] if len(lines) > REASONS else [])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(code(name, 80) for name in names[:NAMES]) + more
