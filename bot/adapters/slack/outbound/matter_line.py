"""One line about what an incident waits for or has promised, with its time in the reader's zone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from bot.adapters.slack.escape import prose
from bot.adapters.slack.outbound.words import time_beside
from bot.domain.incidents.handover import Matter


def matter_line(matter: Matter, people: Collection[str], beside: float) -> str:
    shown = replace(matter, what=prose(matter.what, people=people), about=prose(matter.about, 300, people=people))
    return shown.in_words(lambda at: time_beside(at, beside))
