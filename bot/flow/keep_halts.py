"""Brings every open incident, and so its card, in line with the kill switch in the storage, which is authoritative.

Halting everything is one write, however many incidents are open. This module notifies them, a bounded number per round,
and also those that open during the halt. The calls themselves never wait for this: `claim` reads the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from bot.domain.incidents.event import ALL, Commanded, Event
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import NewerFormError
from bot.flow.ports.storage import EVERYTHING, CallClaims, HaltWord, RunStore

log = structlog.get_logger()
AT_A_TIME = 10
"""Incidents per round, which is a second: presses must not wait for it, and Slack updates cards more slowly anyway."""
CHECKS_PER_INCIDENT = 2
"""A run learns only after a first check that a call was stopped just at a resume."""
STOPPED = "the kill switch"
"""Its call was stopped before the run had received a halt."""


@dataclass(frozen=True)
class _Halt:
    by: str
    with_all: bool


NOT_HALTED = _Halt("", False)


class KeepHalts:
    def __init__(
        self,
        runs: RunStore,
        claims: CallClaims,
        wake: Callable[[str], None],
        changed: Callable[[], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`changed` is called when a halt or its author has changed; while `is_busy`, no incident is notified."""
        self._runs, self._claims, self._wake, self._changed, self._is_busy = runs, claims, wake, changed, is_busy
        self._kept: Mapping[str, str] | None = None
        self._checks: dict[str, int] = {}
        """How often each incident was checked since the switch changed for it."""
        self._is_done = False

    async def once(self) -> None:
        """Brings some incidents in line. Does nothing if the switch is unchanged and no incident is new under it."""
        halts = await self._claims.halts()
        self._notice(halts)
        if (self._is_done and EVERYTHING not in halts) or self._is_busy():
            return
        still_open = await self._runs.open_incidents()
        # An incident that was closed and reopened is checked again.
        self._checks = {one: self._checks.get(one, 0) for one in still_open}
        left = sorted(
            (one for one in still_open if self._checks[one] < CHECKS_PER_INCIDENT), key=self._checks.__getitem__
        )
        word = await self._claims.halt_word() if left else HaltWord()
        for incident_id in left[:AT_A_TIME]:
            try:
                await self._bring_in_line(incident_id, halts, word)
            except NewerFormError as error:
                log.info("halt.left", reason=str(error))
            self._checks[incident_id] += 1
        self._is_done = all(count >= CHECKS_PER_INCIDENT for count in self._checks.values())

    def _notice(self, halts: Mapping[str, str]) -> None:
        """Resets the count of checks for incidents whose switch has changed."""
        if halts == self._kept:
            return
        before = self._kept
        if before is None or before.get(EVERYTHING) != halts.get(EVERYTHING):
            self._checks = {}
        else:
            same = {one for one in self._checks if before.get(one) == halts.get(one)}
            self._checks = {one: count for one, count in self._checks.items() if one in same}
        self._kept, self._is_done = halts, False
        self._changed()

    async def _bring_in_line(self, incident_id: str, halts: Mapping[str, str], word: HaltWord) -> None:
        # The inbox is read first: events that are drained between the two reads are in the run then.
        waiting = await self._runs.inbox(incident_id)
        run = await self._runs.load(incident_id)
        if run is None or (event := _correction(run, _believed(run, waiting), halts, word)) is None:
            return
        await self._runs.append(incident_id, [event])
        self._wake(incident_id)


def _believed(run: Run, waiting: Sequence[Event]) -> tuple[_Halt, str]:
    """The halt that the run knows of, or will know of once its inbox is drained; and what identifies this state."""
    newest = next((e for e in reversed(waiting) if isinstance(e, Commanded) and e.command in ("halt", "resume")), None)
    if newest is not None:
        return (_Halt(newest.user, newest.to == ALL) if newest.command == "halt" else NOT_HALTED), newest.event_id
    stopped = STOPPED if run.change is not None and run.change.halted else ""
    return _Halt(run.halt.by if run.halt else stopped, run.is_halted_with_all), str(run.version)


def _correction(run: Run, believed: tuple[_Halt, str], halts: Mapping[str, str], word: HaltWord) -> Event | None:
    known, since = believed
    wanted = _Halt(halts[EVERYTHING], True) if EVERYTHING in halts else _Halt(halts.get(run.incident_id, ""), False)
    if known == wanted:
        return None
    # The same correction by two replicas has one id.
    event_id = f"halt-kept/{wanted.by}/{since}"
    if not wanted.by:
        # A call that was stopped before its run received a halt was stopped by the halt of everything.
        if known.with_all or known.by == STOPPED:
            return Commanded(event_id=event_id, command="resume", user=word.by, text=word.why, to=ALL)
        return Commanded(event_id=event_id, command="resume", user="")
    if wanted.with_all:
        return Commanded(event_id=event_id, command="halt", user=wanted.by, text=word.why, to=ALL)
    return Commanded(event_id=event_id, command="halt", user=wanted.by)
