"""The kill switch in the storage is the truth; every open incident is brought in line with it, for its card to say so.

Whoever halts or resumes all may die halfway, incidents open while all is halted, one is resumed although all is not:
each is found in the next round. The calls themselves never wait for this: `claim` reads the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.event import ALL, Commanded, Event
from bot.domain.run import Run
from bot.flow.ports import EVERYTHING, CallClaims, RunStore

ALL_HALTED = "everything is halted: nothing more will be changed until all is resumed"
STOPPED = "the kill switch"
"""Its call was stopped before the run had heard of any halt."""
STILL_HALTED = "the halt of everything is lifted; this incident stays halted by itself"


@dataclass(frozen=True)
class _Halt:
    by: str
    with_all: bool


NOT_HALTED = _Halt("", False)


class KeepHalts:
    def __init__(
        self, runs: RunStore, claims: CallClaims, wake: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        """`changed` is told that who halted what is not as it was."""
        self._runs, self._claims, self._wake, self._changed = runs, claims, wake, changed
        self._kept: Mapping[str, str] | None = None

    async def once(self) -> None:
        """Nothing to do while the switch stands as it did; but incidents that open under a halt of all are new."""
        halts = await self._claims.halts()
        if halts == self._kept and EVERYTHING not in halts:
            return
        if halts != self._kept:
            self._changed()
        await keep(self._runs, halts, self._wake)
        self._kept = halts


async def keep(runs: RunStore, halts: Mapping[str, str], wake: Callable[[str], None], *, by: str = "") -> None:
    """Tell every open incident that believes otherwise; `by`: who resumes, where somebody just did."""
    for incident_id in await runs.open_incidents():
        # The inbox first: what is drained between the two is in the run then.
        waiting = await runs.inbox(incident_id)
        run = await runs.load(incident_id)
        if run is None or (event := _correction(run, _believed(run, waiting), halts, by)) is None:
            continue
        await runs.append(incident_id, [event])
        wake(incident_id)


def _believed(run: Run, waiting: Sequence[Event]) -> tuple[_Halt, str]:
    """What halts it, as far as the run knows or will once its inbox is drained; and what tells this belief apart."""
    newest = next((e for e in reversed(waiting) if isinstance(e, Commanded) and e.command in ("halt", "resume")), None)
    if newest is not None:
        return (_Halt(newest.user, newest.to == ALL) if newest.command == "halt" else NOT_HALTED), newest.event_id
    stopped = STOPPED if run.change is not None and run.change.halted else ""
    return _Halt(run.halted_by or stopped, run.halted_with_all), str(run.version)


def _correction(run: Run, believed: tuple[_Halt, str], halts: Mapping[str, str], by: str) -> Event | None:
    known, since = believed
    wanted = _Halt(halts[EVERYTHING], True) if EVERYTHING in halts else _Halt(halts.get(run.incident_id, ""), False)
    if known == wanted:
        return None
    # The same correction by two replicas has one id.
    event_id = f"halt-kept/{wanted.by}/{since}"
    if not wanted.by:
        return Commanded(event_id=event_id, command="resume", user=by)
    text = ALL_HALTED if wanted.with_all else STILL_HALTED if known.with_all else ""
    return Commanded(event_id=event_id, command="halt", user=wanted.by, text=text, to=ALL if wanted.with_all else "")
