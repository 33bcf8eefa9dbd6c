"""What is restricted now: where the bot only observes, and which maintenance windows and freezes are open."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.approvals.advice import OBSERVE_ONLY, Observing, OnlyAdvice
from bot.domain.incidents.run import Run
from bot.domain.kernel.planned_window import PlannedWindow, WindowRule, last_of, open_windows
from bot.domain.kernel.target import Target
from bot.flow.ports.storage import PlannedWindows


class Restrictions:
    def __init__(
        self, windows: PlannedWindows, observing: Observing | None = None, rules: Sequence[WindowRule] = ()
    ) -> None:
        """`rules`: the windows of the settings."""
        self.observing = observing or Observing()
        self._windows, self._rules = windows, rules

    async def open(self, at: float) -> Sequence[PlannedWindow]:
        """The windows that are open now, those that end first before the others."""
        return self.open_of(await self._windows.planned(at=at), at)

    async def planned(self, at: float) -> Sequence[PlannedWindow]:
        """The windows that people planned and that are open now: those of `open` without those of the settings."""
        return open_windows(await self._windows.planned(at=at), (), at)

    def open_of(self, planned: Sequence[PlannedWindow], at: float) -> Sequence[PlannedWindow]:
        """As `open`, where these windows are planned."""
        return open_windows(planned, self._rules, at)

    async def advice(self, run: Run, *, at: float, takes_back: bool = False) -> OnlyAdvice | None:
        """Why a change of this run is only advised now; None if it may be requested.

        `takes_back`: it undoes what the bot did, which a freeze does not stop.
        """
        needs_windows = not (takes_back or self.observing.is_on(run.playbook, run.target))
        windows = await self.open(at) if needs_windows else ()
        return self.advice_in(windows, run.playbook, run.target)

    def advice_in(self, windows: Sequence[PlannedWindow], playbook: str, target: Target) -> OnlyAdvice | None:
        """As `advice`, where these windows are open."""
        if self.observing.is_on(playbook, target):
            return OBSERVE_ONLY
        freeze = last_of(windows, "freeze", target)
        return OnlyAdvice(reason="freeze", text=str(freeze)) if freeze is not None else None
