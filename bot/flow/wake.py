"""Wakes work by a direct call in the process that stored the event; waking twice or from several places is harmless.

The number of advances and effects that run at once is limited, so that accepting alerts is never starved. Each lane has
its own limit: incidents that read a frozen API server leave room for presses, cards, calls and rollouts. Routing alerts
and showing the cards of new incidents goes before readings and later messages. An incident's first reading follows its
card. While people wait for the answer to a
press or a command, incidents advance and presses are judged one after the other: a flood of presses is stored first.

An effect whose lease came with the decision begins without another step, unless it had to wait for room.

A deadline or a wait that ends soon gets a timer here. The others, and those of a process that is gone, are found by
`reconcile` in the ordered indexes of the storage.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol

import structlog

from bot.domain.incidents.effect import LANES, Lane
from bot.domain.incidents.machine.draft import SHOW
from bot.domain.kernel.errors import BotError
from bot.flow.advance_run import Advanced
from bot.flow.perform_effect import Performed
from bot.flow.ports.storage import Owed, Waiting
from bot.flow.priority import Priority

log = structlog.get_logger()
AT_ONCE = 8
SOON_SECONDS = 60.0
GAP_SECONDS = 0.05
"""A flood of presses has gaps between one answer and the next request."""
FRESH_SECONDS = 0.5
"""An effect that begins later than this after its decision is taken again: the run may have gone on meanwhile."""
REST_SECONDS = 1.0
"""How long further alerts of an incident wait after its last advance: one decision and one look at its card for all."""
MAX_REST_SECONDS = 4.0
"""While alerts keep coming, each wait is twice as long as the one before, up to this."""
MAX_NOTED = 1000
EFFECTS_AT_ONCE: Mapping[Lane, int] = {"people": 8, "cards": 8, "reads": 8, "waits": 32, "pages": 8}
"""Waits sleep most of the time between two checks."""
HEAD_START_SECONDS = 0.25
"""How long the first reading of an incident waits for its card at most, as while Slack does not answer."""
READINGS: frozenset[Lane] = frozenset({"reads", "waits"})
GIVE_WAY: frozenset[Lane] = frozenset({"cards", "reads"})
"""What gives way to new alerts. Presses, calls of people and approved changes never do."""
Timer = Callable[[float, Callable[[], None]], None]


class Performs(Protocol):
    async def __call__(self, incident_id: str, effect_id: str, taken: Owed | None = None, /) -> Performed: ...


class Wake:
    """Runs `advance` and `perform` for each incident that is woken, in order within an incident."""

    def __init__(
        self,
        advance: Callable[[str, Waiting | None], Awaitable[Advanced]],
        perform: Performs,
        *,
        later: Timer | None = None,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`later` calls back after so many seconds: by default the event loop, in tests a simulated clock."""
        self._advance, self._perform, self.elapsed = advance, perform, elapsed
        self.call_later = later or _by_the_loop
        self._advances = asyncio.Semaphore(AT_ONCE)
        self._lanes = {lane: asyncio.Semaphore(EFFECTS_AT_ONCE[lane]) for lane in LANES}
        self._first_cards = asyncio.Semaphore(EFFECTS_AT_ONCE["cards"])
        self.priority, self._answers = Priority(), Priority()
        self._again: dict[str, Waiting | None] = {}
        """The incidents that were woken during their advance, with the newest that is known of each."""
        self._taken: dict[str, dict[str, tuple[Owed, float]]] = {}
        """By incident and effect: what the last advance took, and when it began, until it is performed."""
        self._begun: dict[tuple[str, str], int] = {}
        """Effects that are being performed, with the run's version that owed one of them again meanwhile, or 0."""
        self._ended: dict[str, dict[str, float]] = {}
        """Effects that ended during their incident's advance: up to which version each may have returned its lease."""
        self._timers: set[str] = set()
        self._advanced_at: dict[str, float] = {}
        self._rest_seconds: dict[str, float] = {}
        self._resting: dict[str, Waiting | None] = {}
        self._advancing: dict[str, asyncio.Task[None]] = {}
        self._performing: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._stopping = False

    def incident(self, incident_id: str, waiting: Waiting | None = None, may_rest: bool = False) -> None:
        """Advances this incident soon; a wake during an advance makes it run once more.

        `waiting`: the incident with its inbox, if it was just read. `may_rest`: alerts of an open incident come in
        rows, so they wait together until some time has passed since its last advance.
        """
        if self._stopping or (may_rest and self._rests(incident_id, waiting)):
            return
        if incident_id in self._advancing:
            self._again[incident_id] = _newest(waiting, self._again.get(incident_id, waiting))
            return
        task = asyncio.create_task(self._advance_one(incident_id, waiting), name=f"advance {incident_id}")
        self._advancing[incident_id] = task

    def _rests(self, incident_id: str, waiting: Waiting | None) -> bool:
        """Whether the incident was advanced just now; then a timer wakes it, unless one does already."""
        if incident_id in self._resting:
            self._resting[incident_id] = _newest(waiting, self._resting[incident_id])
            return True
        if (left := self.rest_left(incident_id)) <= 0:
            self._set_rest(incident_id)
            return False
        self._resting[incident_id] = waiting

        def wake() -> None:
            self._set_rest(incident_id)
            self.incident(incident_id, self._resting.pop(incident_id))

        self.call_later(left, wake)
        return True

    def rest_left(self, incident_id: str) -> float:
        """Seconds until a further alert of this incident is looked at; 0 if that can be now."""
        rest = self._rest_seconds.get(incident_id, REST_SECONDS)
        return rest if incident_id in self._advancing else max(0.0, rest - self._since_advance(incident_id))

    def _set_rest(self, incident_id: str) -> None:
        """How long the alerts after this one wait."""
        rest = self._rest_seconds.pop(incident_id, REST_SECONDS)
        if self._since_advance(incident_id) < rest + REST_SECONDS:
            self._rest_seconds[incident_id] = min(2 * rest, MAX_REST_SECONDS)

    def _since_advance(self, incident_id: str) -> float:
        return self.elapsed() - self._advanced_at.get(incident_id, -math.inf)

    def effect(self, incident_id: str, effect_id: str, lane: Lane, *, is_first: bool = False) -> None:
        """Performs this effect soon, when its lane has room, unless this process is performing it.

        `is_first`: it belongs to the first decision of an incident, such as posting its card.
        """
        key = (incident_id, effect_id)
        if self._stopping or key in self._performing:
            return
        self._performing[key] = asyncio.create_task(
            self._perform_one(incident_id, effect_id, lane, is_first=is_first),
            name=f"perform {incident_id} {effect_id}",
        )

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While somebody waits for the answer to a press or a command."""
        with ExitStack() as until_answered:
            until_answered.enter_context(self._answers.urgent())
            try:
                yield
            finally:
                self.call_later(GAP_SECONDS, until_answered.pop_all().close)

    @property
    def begun(self) -> Collection[tuple[str, str]]:
        """(incident, effect id) of effects that are being performed here, or wait for room."""
        return self._performing.keys()

    @property
    def is_busy(self) -> bool:
        """Whether more work is queued here than may run at once: then work that is not urgent should wait."""
        return len(self._advancing) + len(self._performing) > AT_ONCE

    async def settled(self) -> None:
        """Returns when nothing that was woken here is running; what is owed for later does not count."""
        while tasks := [*self._advancing.values(), *self._performing.values()]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Takes on no new work and drops what runs; everything is owed in the storage and continues elsewhere."""
        self._stopping = True
        tasks = [*self._advancing.values(), *self._performing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _advance_one(self, incident_id: str, waiting: Waiting | None) -> None:
        try:
            while True:
                self._again.pop(incident_id, None)
                async with self._advances, self._answers.other("advances"):
                    self._ended.pop(incident_id, None)
                    began = self.elapsed()
                    advanced = await self._advance(incident_id, waiting)
                self._note(incident_id, advanced, began)
                for effect in advanced.effects:
                    if (incident_id, effect.effect_id) in self._begun:
                        self._begun[incident_id, effect.effect_id] = advanced.version
                    self.effect(incident_id, effect.effect_id, effect.lane, is_first=advanced.is_first)
                if advanced.wake_after is not None and advanced.wake_after <= SOON_SECONDS:
                    self._incident_later(incident_id, advanced.wake_after)
                if incident_id not in self._again:
                    return
                waiting = self._again[incident_id]
                if waiting is not None and waiting.run.version < advanced.version:
                    # The last commit came after it, and has shown what it brought.
                    return
        except BotError as error:
            # The event stays in the inbox; reconcile calls again.
            log.warning("advance.failed", incident=incident_id, reason=str(error))
        except Exception:
            # As above: this task is the top of its work, and nobody awaits it.
            log.exception("advance.failed", incident=incident_id)
        finally:
            del self._advancing[incident_id]
            self._ended.pop(incident_id, None)
            self._note_advance(incident_id)

    def _note_advance(self, incident_id: str) -> None:
        now = self.elapsed()
        if len(self._advanced_at) >= MAX_NOTED:
            kept = {each: at for each, at in self._advanced_at.items() if now - at < MAX_REST_SECONDS}
            self._advanced_at = kept
            self._rest_seconds = {each: rest for each, rest in self._rest_seconds.items() if each in kept}
        self._advanced_at[incident_id] = now

    def _note(self, incident_id: str, advanced: Advanced, began: float) -> None:
        """Keep what the advance took. What was performed meanwhile may have given that very lease back since."""
        ended = self._ended.pop(incident_id, {})
        taken = {
            effect_id: (owed, began)
            for effect_id, owed in advanced.taken.items()
            if ended.get(effect_id, -1) < owed.version and (incident_id, effect_id) not in self._begun
        }
        # What an earlier advance took belongs to an older run: it is taken again.
        self._taken.pop(incident_id, None)
        if taken:
            self._taken[incident_id] = taken

    def _noted(self, incident_id: str, effect_id: str) -> Owed | None:
        """What was just taken, once; None if the effect must be taken."""
        taken = self._taken.get(incident_id, {})
        owed, began = taken.pop(effect_id, (None, 0.0))
        if not taken:
            self._taken.pop(incident_id, None)
        return owed if self.elapsed() - began <= FRESH_SECONDS else None

    async def _begin(self, incident_id: str, effect_id: str) -> Performed:
        self._begun[incident_id, effect_id] = 0
        return await self._perform(incident_id, effect_id, self._noted(incident_id, effect_id))

    async def _perform_one(self, incident_id: str, effect_id: str, lane: Lane, *, is_first: bool) -> None:
        performed, key = Performed(), (incident_id, effect_id)
        try:
            if is_first and lane in READINGS:
                await self._card_is_shown(incident_id)
            if lane == "people":
                async with self._lanes[lane], self._answers.other(lane):
                    performed = await self._begin(incident_id, effect_id)
            elif lane not in GIVE_WAY:
                async with self._lanes[lane]:
                    performed = await self._begin(incident_id, effect_id)
            elif is_first and lane == "cards":
                with self.priority.urgent():
                    async with self._first_cards:
                        performed = await self._begin(incident_id, effect_id)
            else:
                async with self._lanes[lane], self.priority.other(lane):
                    performed = await self._begin(incident_id, effect_id)
        except BotError as error:
            log.warning("perform.failed", incident=incident_id, effect=effect_id, reason=str(error))
        except Exception:
            # As above: the effect stays owed, and its lease lapses.
            log.exception("perform.failed", incident=incident_id, effect=effect_id)
        finally:
            del self._performing[key]
            owed_by = self._begun.pop(key, 0)
        self._note_end(incident_id, effect_id, performed)
        if performed.again is None and owed_by > performed.version:
            # It was owed again while it was under way here: that does not wait.
            self.effect(incident_id, effect_id, lane)
        elif performed.again_after is not None:
            self._later(performed.again_after, incident_id, effect_id, lane)
        if performed.is_news:
            self.incident(incident_id, performed.waiting)

    async def _card_is_shown(self, incident_id: str) -> None:
        """Returns when the incident's card is no longer being shown, or after `HEAD_START_SECONDS`."""
        if (card := self._performing.get((incident_id, SHOW.effect_id))) is None:
            return
        is_over = asyncio.Event()
        card.add_done_callback(lambda _: is_over.set())
        self.call_later(HEAD_START_SECONDS, is_over.set)
        await is_over.wait()

    def _note_end(self, incident_id: str, effect_id: str, performed: Performed) -> None:
        """Keep what was taken at the end of the effect, and which lease it may have given back."""
        if incident_id in self._advancing:
            is_over = performed.again_after is None and performed.version
            ended = self._ended.setdefault(incident_id, {})
            ended[effect_id] = max(performed.version if is_over else math.inf, ended.get(effect_id, 0))
        if performed.again is not None:
            self._taken.setdefault(incident_id, {})[effect_id] = performed.again, self.elapsed()

    def _incident_later(self, incident_id: str, seconds: float) -> None:
        """One timer at a time: when it ends, the advance sets the next one."""
        if self._stopping or incident_id in self._timers:
            return
        self._timers.add(incident_id)

        def wake() -> None:
            self._timers.discard(incident_id)
            self.incident(incident_id)

        self.call_later(seconds, wake)

    def _later(self, seconds: float, incident_id: str, effect_id: str, lane: Lane) -> None:
        """Comes back in time; if this process is gone by then, the storage still owes the effect."""
        if seconds <= 0:
            self.effect(incident_id, effect_id, lane)
        elif not self._stopping:
            self.call_later(seconds, lambda: self.effect(incident_id, effect_id, lane))


def _newest(one: Waiting | None, other: Waiting | None) -> Waiting | None:
    """None, which is read from the storage, if one of them is not known."""
    if one is None or other is None:
        return None
    return max(one, other, key=lambda waiting: waiting.now)


def _by_the_loop(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
