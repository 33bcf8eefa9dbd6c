"""One line about what holds the bot back, for lists and Homes: a planned window, or the halt of everything."""

from __future__ import annotations

from bot.adapters.slack.escape import code, line, mention
from bot.adapters.slack.outbound.words import day
from bot.domain.kernel.planned_window import PlannedWindow
from bot.flow.ports import HaltWord


def window_line(window: PlannedWindow) -> str:
    why = f": {line(window.why, 200)}" if window.why else ""
    sign = "🔧" if window.kind == "maintenance" else "⏸"
    what = f"*{window.kind.capitalize()}* of {code(window.of, 200)}"
    return f"{sign} {what} until {day(window.ends_at)}{why} ({line(window.by, 80)})"


def global_halt_line(halt: HaltWord) -> str:
    why = f": {line(halt.why, 300)}" if halt.why else ""
    return f"⛔ *Everything is halted* by {mention(halt.by)}{why}. No change is sent until `/incident resume all`."
