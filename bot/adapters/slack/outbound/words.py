"""Formats numbers, times and outcomes as people read them in Slack."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Grade, Risk
from bot.domain.kernel.numbers import is_number
from bot.domain.signals.signal import Reading, in_words

GRADE_SIGNS: Mapping[Grade, str] = {"fine": "🟢", "note": "🟡", "warning": "🔴"}
RISK_LEVELS: Mapping[Risk, str] = {"low": "🟢 low", "medium": "🟡 medium", "high": "🔴 high"}
OUTCOMES = {
    "done": "✅",
    "not_needed": "⚪",
    "refused": "🚫",
    "expired": "⌛",
    "impossible": "⛔",
    "failed": "❌",
    "unclear": "❓",
    "unknown": "❓",
    "superseded": "🔁",
    "halted": "⛔",
    "stopped": "✋",
}
RESULTS = {
    "not_needed": "not needed",
    "impossible": "not possible",
    "unclear": "unclear whether it was applied",
    "unknown": "not known whether it is possible",
    "stopped": "stopped half-way",
    "halted": "halted before anything was changed",
}
"""Outcomes in words; the others read as they are."""
CHECKS = {"found": "Found", "ruled_out": "Ruled out", "unknown": "Could not be ruled out"}
NAMES = 8
"""Of checks in one sentence."""
SAME_DAY_SECONDS = 12 * 3600.0
"""Within this distance, a time of day needs no date."""
DATE = re.compile(r"<!date\^([0-9]+)\^[^>]*>")
PARTS = {"held": "✔", "not_held": "✖", "broke": "✖", "unknown": "?"}
SEVERITIES = {"page": "🔴", "ticket": "🟠", "info": "🔵"}


def stage_of(verb: str) -> str:
    """The part of an incident in which the bot makes this change; a verb of another version has no word."""
    declared = VERBS.get(verb)
    return declared.stage if declared else "Change"


def moment(at: float) -> str:
    """A time of day in the reader's own time zone."""
    return f"<!date^{int(at)}^{{time_secs}}|{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC>"


def time_of_day(at: float) -> str:
    """As `moment`, without seconds: a deadline, a beginning."""
    return f"<!date^{int(at)}^{{time}}|{datetime.fromtimestamp(at, UTC):%H:%M} UTC>"


def capitalized(text: str) -> str:
    """The name of a pod or a node stays as it is."""
    is_name = any(sign.isdigit() for sign in text.partition(" ")[0])
    return text if is_name else f"{text[:1].upper()}{text[1:]}"


def ago(at: float) -> str:
    """`in 9 minutes`, counted by the reader's Slack without an edit."""
    return f"<!date^{int(at)}^{{ago}}|{datetime.fromtimestamp(at, UTC):%H:%M} UTC>"


def day(at: float) -> str:
    """A date and time in the reader's own time zone."""
    return f"<!date^{int(at)}^{{date_short_pretty}} {{time}}|{date_in_utc(at)}>"


def time_beside(at: float, beside: float) -> str:
    """A time of day; with its date if that may differ from the date of `beside`."""
    return time_of_day(at) if abs(at - beside) < SAME_DAY_SECONDS else day(at)


def in_utc(text: str) -> str:
    """The text of a notification or a screen reader, where Slack does not put times into the reader's time zone."""
    return DATE.sub(lambda found: date_in_utc(int(found[1])), text)


def date_in_utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def value(shown: object, unit: str = "") -> str:
    """A reading's value, one of its parts, or either side of a difference."""
    if shown is None or isinstance(shown, bool | int | float | str):
        return in_words(shown, unit)
    if isinstance(shown, dict) and shown and all(is_number(item) for item in shown.values()):
        return in_words(shown, unit)
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"), default=str)


def reasons_of(reading: Reading) -> list[tuple[str, str]]:
    """The parts that could not be read, and why."""
    if not reading.is_known:
        return [(_name(reading), reading.unknown)]
    return [(f"{_name(reading)} ({part.replace('_', ' ')})", why) for part, why in reading.unknown_parts.items()]


def _name(reading: Reading) -> str:
    return reading.called.replace("_", " ")


def checked(checks: Sequence[tuple[str, str]], *kinds: str) -> str:
    """`Found: a deploy. Ruled out: a crash, a node fault.`, of the checks of these kinds."""
    sentences = []
    for kind in kinds:
        names = [text for found, text in checks if found == kind]
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        sentences += [f"{CHECKS[kind]}: {', '.join(names[:NAMES])}{more}."] if names else []
    return " ".join(sentences)
