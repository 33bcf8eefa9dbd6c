"""Detects that this process stood still (SIGSTOP, a paused machine): another one may have gone on meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from bot.domain.kernel.errors import OvertakenError

STOOD_STILL_SECONDS = 10.0
"""Right before a renewal, more than ten seconds are left of a lease, which may have begun half a second early."""


class Pulse:
    """`began`: when what is shown was read; each step to the outside follows it, or another step, without a gap."""

    def __init__(self, now: Callable[[], float], began: float) -> None:
        self._now, self._last_step_at = now, began

    @property
    def stood_still(self) -> bool:
        """Whether the last step took so long that another process may have gone on."""
        return self._now() - self._last_step_at > STOOD_STILL_SECONDS

    def went_on(self, doing: str) -> float:
        """Before and after a step; returns the time. Raises `OvertakenError` if the process stood still."""
        if self.stood_still:
            raise OvertakenError(doing)
        self._last_step_at = self._now()
        return self._last_step_at
