"""Windows that people plan: maintenance, in which a target's alerts open no incident, and freezes of changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.schedule import open_until
from bot.domain.kernel.target import PATTERN, Target

WindowKind = Literal["maintenance", "freeze"]
MAX_SECONDS = {"maintenance": 24 * 3600.0, "freeze": 31 * 24 * 3600.0}
"""A window that somebody forgets must end. Maintenance hides trouble, so it is shorter."""


ALL = "all"


def targets_of(text: str) -> tuple[str, ...]:
    """Reads the targets that a person names: one pattern, or `all`. Raises `ValueError` if it is not a target."""
    if text.lower() in (ALL, "*"):
        return ()
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"'{text}' is not a target; write NAMESPACE/WORKLOAD, with * for anything, or {ALL}")
    return (text,)


class PlannedWindow(BaseModel):
    """A window that is planned for some time. `by`: the person, or the settings."""

    model_config = ConfigDict(frozen=True)

    kind: WindowKind
    targets: tuple[str, ...]
    """As `PATTERN`; empty: every target."""
    starts_at: float
    ends_at: float
    why: str = ""
    by: str = ""
    user: str = ""
    """The id of the person; empty for a window of the settings."""

    def is_open(self, at: float) -> bool:
        return self.starts_at <= at < self.ends_at

    def covers(self, target: Target) -> bool:
        return not self.targets or any(map(target.matches, self.targets))

    @property
    def of(self) -> str:
        """The targets, for people."""
        return ", ".join(self.targets) or "every target"

    def __str__(self) -> str:
        ends = datetime.fromtimestamp(self.ends_at, UTC)
        because = f": {self.why}" if self.why else ""
        return f"{self.kind} until {ends:%d %b %H:%M} UTC{because} ({self.by})"


class WindowRule(BaseModel):
    """A window of the settings: between two dates, or on some days and hours of each week."""

    model_config = ConfigDict(frozen=True)

    kind: WindowKind
    targets: tuple[str, ...] = ()
    days: tuple[str, ...] = ()
    hours: str = ""
    starts: datetime | None = None
    ends: datetime | None = None
    why: str = ""

    def at(self, at: float) -> PlannedWindow | None:
        """Returns the window that is open at this time."""
        ends_at = open_until(self.hours, at, self.days) if self.hours or self.days else self._last
        begun = self.starts is None or self.starts.timestamp() <= at
        if ends_at is None or not begun or at >= self._last:
            return None
        return PlannedWindow(
            kind=self.kind, targets=self.targets, starts_at=at, ends_at=min(ends_at, self._last), why=self.why,
            by="the settings",
        )  # fmt: skip

    @property
    def _last(self) -> float:
        return self.ends.timestamp() if self.ends is not None else datetime.max.replace(tzinfo=UTC).timestamp()


def open_windows(planned: Iterable[PlannedWindow], rules: Iterable[WindowRule], at: float) -> list[PlannedWindow]:
    """Returns the windows that are open at this time, those that end first before the others."""
    scheduled = (rule.at(at) for rule in rules)
    found = [window for window in (*planned, *scheduled) if window is not None and window.is_open(at)]
    return sorted(found, key=lambda window: window.ends_at)


def last_of(windows: Iterable[PlannedWindow], kind: WindowKind, target: Target) -> PlannedWindow | None:
    """Returns the window of this kind that covers the target for the longest time."""
    covering = [window for window in windows if window.kind == kind and window.covers(target)]
    return max(covering, key=lambda window: window.ends_at, default=None)
