"""Wakes work by a direct call in the process that stored the event; waking twice or from several places is harmless.

The number of advances and effects that run at once is limited, so that accepting alerts is never starved. Each lane has
its own limit: incidents that read a frozen API server leave room for presses, cards, calls and rollouts. Routing alerts
and showing the cards of new incidents goes before readings and later messages. While people wait for the answer to a
press or a command, incidents advance and presses are judged one after the other: a flood of presses is stored first.

A deadline or a wait that ends soon gets a timer here. The others, and those of a process that is gone, are found by
`reconcile` in the ordered indexes of the storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import structlog

from bot.domain.incidents.effect import LANES, Lane
from bot.domain.kernel.errors import BotError
from bot.flow.advance_run import Advanced
from bot.flow.perform_effect import Performed
from bot.flow.ports import Waiting
from bot.flow.priority import Priority

log = structlog.get_logger()
AT_ONCE = 8
SOON_SECONDS = 60.0
GAP_SECONDS = 0.05
"""A flood of presses has gaps between one answer and the next request."""
EFFECTS_AT_ONCE: Mapping[Lane, int] = {"people": 8, "cards": 8, "reads": 8, "waits": 32, "pages": 8}
"""Waits sleep most of the time between two checks."""
GIVE_WAY: frozenset[Lane] = frozenset({"cards", "reads"})
"""What gives way to new alerts. Presses, calls of people and approved changes never do."""
Timer = Callable[[float, Callable[[], None]], None]


class Wake:
    """Runs `advance` and `perform` for each incident that is woken, in order within an incident."""

    def __init__(
        self,
        advance: Callable[[str, Waiting | None], Awaitable[Advanced]],
        perform: Callable[[str, str], Awaitable[Performed]],
        *,
        later: Timer | None = None,
    ) -> None:
        """`later` calls back after so many seconds: by default the event loop, in tests a simulated clock."""
        self._advance, self._perform = advance, perform
        self._call_later = later or _by_the_loop
        self._advances = asyncio.Semaphore(AT_ONCE)
        self._lanes = {lane: asyncio.Semaphore(EFFECTS_AT_ONCE[lane]) for lane in LANES}
        self._first_cards = asyncio.Semaphore(EFFECTS_AT_ONCE["cards"])
        self.priority, self._answers = Priority(), Priority()
        self._again: set[str] = set()
        self._timers: set[str] = set()
        self._advancing: dict[str, asyncio.Task[None]] = {}
        self._performing: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._stopping = False

    def incident(self, incident_id: str, waiting: Waiting | None = None) -> None:
        """Advances this incident soon; a wake during an advance makes it run once more.

        `waiting`: the incident with its inbox, if it was just read.
        """
        if self._stopping:
            return
        if incident_id in self._advancing:
            self._again.add(incident_id)
            return
        task = asyncio.create_task(self._advance_one(incident_id, waiting), name=f"advance {incident_id}")
        self._advancing[incident_id] = task

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
                self._call_later(GAP_SECONDS, until_answered.pop_all().close)

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
                self._again.discard(incident_id)
                async with self._advances, self._answers.other("advances"):
                    advanced = await self._advance(incident_id, waiting)
                waiting = None
                for effect in advanced.effects:
                    self.effect(incident_id, effect.effect_id, effect.lane, is_first=advanced.is_first)
                if advanced.wake_after is not None and advanced.wake_after <= SOON_SECONDS:
                    self._incident_later(incident_id, advanced.wake_after)
                if incident_id not in self._again:
                    return
        except BotError as error:
            # The event stays in the inbox; reconcile calls again.
            log.warning("advance.failed", incident=incident_id, reason=str(error))
        except Exception:
            # As above: this task is the top of its work, and nobody awaits it.
            log.exception("advance.failed", incident=incident_id)
        finally:
            del self._advancing[incident_id]

    async def _perform_one(self, incident_id: str, effect_id: str, lane: Lane, *, is_first: bool) -> None:
        performed = Performed()
        try:
            if lane == "people":
                async with self._lanes[lane], self._answers.other(lane):
                    performed = await self._perform(incident_id, effect_id)
            elif lane not in GIVE_WAY:
                async with self._lanes[lane]:
                    performed = await self._perform(incident_id, effect_id)
            elif is_first and lane == "cards":
                with self.priority.urgent():
                    async with self._first_cards:
                        performed = await self._perform(incident_id, effect_id)
            else:
                async with self._lanes[lane], self.priority.other(lane):
                    performed = await self._perform(incident_id, effect_id)
        except BotError as error:
            log.warning("perform.failed", incident=incident_id, effect=effect_id, reason=str(error))
        except Exception:
            # As above: the effect stays owed, and its lease lapses.
            log.exception("perform.failed", incident=incident_id, effect=effect_id)
        finally:
            del self._performing[incident_id, effect_id]
        if performed.is_news:
            self.incident(incident_id, performed.waiting)
        if performed.again_after is not None:
            self._later(performed.again_after, incident_id, effect_id, lane)

    def _incident_later(self, incident_id: str, seconds: float) -> None:
        """One timer at a time: when it ends, the advance sets the next one."""
        if self._stopping or incident_id in self._timers:
            return
        self._timers.add(incident_id)

        def wake() -> None:
            self._timers.discard(incident_id)
            self.incident(incident_id)

        self._call_later(seconds, wake)

    def _later(self, seconds: float, incident_id: str, effect_id: str, lane: Lane) -> None:
        """Comes back in time; if this process is gone by then, the storage still owes the effect."""
        if seconds <= 0:
            self.effect(incident_id, effect_id, lane)
        elif not self._stopping:
            self._call_later(seconds, lambda: self.effect(incident_id, effect_id, lane))


def _by_the_loop(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
