"""Detects that this process was paused (SIGSTOP, a frozen machine): another one may have gone on meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from bot.domain.kernel.errors import OvertakenError

PAUSED_SECONDS = 10.0
"""Right before a renewal, more than ten seconds are left of a lease, which may have begun half a second early."""


class PauseDetector:
    """`began`: when what is shown was read; each step to the outside follows it, or another step, without a gap."""

    def __init__(self, now: Callable[[], float], began: float) -> None:
        self._now, self._last_step_at = now, began

    @property
    def was_paused(self) -> bool:
        """Whether the last step took so long that another process may have gone on."""
        return self._now() - self._last_step_at > PAUSED_SECONDS

    def stepped(self, doing: str) -> float:
        """Before and after a step; returns the time. Raises `OvertakenError` if the process was paused."""
        if self.was_paused:
            raise OvertakenError(doing)
        self._last_step_at = self._now()
        return self._last_step_at
