"""Reads the signals that the present state of a run needs, and returns them as an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bot.domain.incidents.effect import ReadCalm, ReadSignals
from bot.domain.incidents.event import CalmRead, SignalsRead
from bot.domain.incidents.run import Run
from bot.domain.kernel.copies import copy_with
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import SignalSpec
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.readings import Signals
from bot.flow.snapshot_reader import context_of

PlaybookOf = Callable[[Run], Awaitable[CompiledPlaybook]]


class ReadHandler:
    def __init__(self, signals: Signals, playbook_of: PlaybookOf) -> None:
        self._signals, self._playbook_of = signals, playbook_of

    async def readings(self, run: Run, state: str, *, for_change: bool = False) -> Mapping[str, Reading]:
        """`for_change`: a change depends on them."""
        playbook = await self._playbook_of(run)
        shares = not for_change and not run.ledger and run.change is None
        return await self._read(run, playbook, playbook.wanted(state), shares_lists=shares)

    async def __call__(self, context: EffectContext, effect: ReadSignals) -> Done:
        readings = await self.readings(context.run, effect.state)
        event = SignalsRead(event_id=effect.effect_id, effect_id=effect.effect_id, readings=dict(readings))
        return Done((event,))

    async def calm(self, context: EffectContext, effect: ReadCalm) -> Done:
        playbook = await self._playbook_of(context.run)
        readings = await self._read(
            context.run, playbook, playbook.wanted_for_calm, shares_lists=not context.run.ledger
        )
        return Done((CalmRead(event_id=effect.effect_id, effect_id=effect.effect_id, readings=readings),))

    async def _read(
        self, run: Run, playbook: CompiledPlaybook, wanted: Mapping[str, SignalSpec], *, shares_lists: bool
    ) -> dict[str, Reading]:
        found = await self._signals.read(wanted, context_of(run, playbook.settings, shares_lists=shares_lists))
        words = playbook.words_of_signals
        return {
            name: copy_with(reading, **words[name]) if name in words else reading for name, reading in found.items()
        }
