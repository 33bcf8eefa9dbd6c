"""Notifies the open incidents of each window that people plan, so that a freeze turns their requests into advice.

Beginning a window is one write, however many incidents are open. This module notifies them, a bounded number per round,
and also after the process that began the window died. No call waits for this: the check before it reads the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from bot.domain.incidents.event import Commanded
from bot.domain.kernel.errors import NewerFormError
from bot.domain.kernel.planned_window import PlannedWindow
from bot.flow.ports.storage import RunStore
from bot.flow.restrictions import Restrictions

log = structlog.get_logger()
AT_A_TIME = 10
"""Incidents per round, which is a second: presses must not wait for it."""


class KeepWindows:
    def __init__(
        self,
        runs: RunStore,
        restrictions: Restrictions,
        wake: Callable[[str], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """While `is_busy`, no incident is notified."""
        self._runs, self._restrictions, self._wake, self._is_busy = runs, restrictions, wake, is_busy
        self._left: dict[str, list[str]] = {}
        """By window, the incidents that this process has not checked yet; the last one is next."""

    async def once(self) -> None:
        """Notifies some incidents. What another process has sent too is stored once, by its id."""
        at = await self._runs.now()
        planned = await self._restrictions.planned(at)
        windows = {_about(window): window for window in planned if window.user}
        self._left = {about: left for about, left in self._left.items() if about in windows}
        if self._is_busy():
            return
        if new := windows.keys() - self._left.keys():
            # What opens later meets the window by itself. The newest incidents are those that people work on.
            still_open = await self._runs.open_incidents()
            self._left |= {about: list(still_open) for about in new}
        open_now, room = self._restrictions.open_of(planned, at), AT_A_TIME
        # A freeze comes first, because it takes buttons away.
        for about, window in sorted(windows.items(), key=lambda item: item[1].kind != "freeze"):
            while room and (left := self._left[about]):
                await self._notify(window, left[-1], about, open_now)
                left.pop()
                room -= 1

    async def _notify(
        self, window: PlannedWindow, incident_id: str, about: str, open_now: Sequence[PlannedWindow]
    ) -> None:
        try:
            run = await self._runs.load(incident_id)
        except NewerFormError as error:
            log.info("window.left", reason=str(error))
            return
        if run is None or run.opened_at > window.starts_at or not window.covers(run.target):
            return
        text = str(window)
        advice = self._restrictions.advice_in(open_now, run.playbook, run.target)
        event = Commanded(
            event_id=about,
            command="freeze" if window.kind == "freeze" else "note",
            user=window.user,
            user_name=window.by,
            text=text[:1].upper() + text[1:],
            to=advice.text if advice is not None and advice.reason == "freeze" else "",
        )
        if await self._runs.append(incident_id, [event]):
            self._wake(incident_id)


def _about(window: PlannedWindow) -> str:
    """The same in every process; a window that replaces another one is a new one."""
    return f"window/{window.kind}/{window.of}/{window.starts_at}"
