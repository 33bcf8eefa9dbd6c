"""One line about what holds the bot back, for lists and Homes: a planned window, or the halt of everything."""

from __future__ import annotations

from collections.abc import Mapping

from bot.adapters.slack.escape import code, line, mention, whisper
from bot.adapters.slack.outbound.words import day
from bot.domain.kernel.planned_window import PlannedWindow, WindowKind
from bot.domain.kernel.redaction import redacted
from bot.flow.ports.storage import HaltWord

SIGNS: Mapping[WindowKind, str] = {"maintenance": "🔧", "freeze": "⏸"}


def window_line(window: PlannedWindow) -> str:
    # An operator wrote it, and may mention people in it.
    why = f": {whisper(' '.join(redacted(window.why).split()), 200)}" if window.why else ""
    what = f"*{window.kind.capitalize()}* of {code(window.of, 200)}"
    by = mention(window.user) if window.user else line(window.by, 80)
    return f"{SIGNS[window.kind]} {what} until {day(window.ends_at)}, by {by}{why}"


def global_halt_line(halt: HaltWord) -> str:
    why = f": {line(redacted(halt.why), 300)}" if halt.why else ""
    return f"⛔ *Everything is halted* by {mention(halt.by)}{why}. No change is sent until `/incident resume all`."
