"""One line about a planned window, for lists and Homes."""

from __future__ import annotations

from bot.adapters.slack.escape import code, line
from bot.adapters.slack.outbound.words import day
from bot.domain.kernel.planned_window import PlannedWindow


def window_line(window: PlannedWindow) -> str:
    why = f": {line(window.why, 200)}" if window.why else ""
    sign = "🔧" if window.kind == "maintenance" else "⏸"
    what = f"*{window.kind.capitalize()}* of {code(window.of, 200)}"
    return f"{sign} {what} until {day(window.ends_at)}{why} ({line(window.by, 80)})"
