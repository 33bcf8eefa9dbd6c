"""Watches whether the trouble ends after a change was only advised, and whether it may be requested meanwhile.

The trouble has ended once the reason for the change is gone and every alert is resolved, for a while. A reading that is
unknown counts as trouble.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.incidents.effect import WatchAdvice
from bot.domain.incidents.event import AdviceWatched, Progressed
from bot.domain.incidents.machine.changing import takes_back
from bot.domain.incidents.named_values import ScopeValues
from bot.domain.incidents.run import ActiveChange, Run
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.language import ChangeState
from bot.domain.signals.signal import Reading
from bot.flow.handlers.read import PlaybookOf, ReadHandler
from bot.flow.handlers.watch import HELD, MAX_SECONDS, MIN_SECONDS, NOT_HELD, held_seconds, verdict_text
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.storage import WatchLog, WatchSample
from bot.flow.restrictions import Restrictions

CALM_FOR, CALM_SECONDS = "calm_for", 300.0
"""How long the trouble must be gone: a setting of the playbook, else five minutes."""
REASON, ALERTS = "the trouble is gone", "the alerts are resolved"


class WatchAdviceHandler:
    def __init__(
        self, read: ReadHandler, watch_log: WatchLog, playbook_of: PlaybookOf, restrictions: Restrictions
    ) -> None:
        self._read, self._watch_log, self._playbook_of = read, watch_log, playbook_of
        self._restrictions = restrictions

    async def __call__(self, context: EffectContext, effect: WatchAdvice) -> Done | Later:
        run, change = context.run, context.run.change
        if change is None or run.watch is None or run.advised is None or run.advised.request_id != effect.request_id:
            return Done()
        back = takes_back(change, run.advised.plan)
        if await self._restrictions.advice(run, takes_back=back, at=context.now) is None:
            return self._ended(effect, "lifted", "the bot may propose changes here again")
        playbook = await self._playbook_of(run)
        readings = {} if change.undo_of else dict(await self._read.readings(run, change.state))
        sample = WatchSample(context.now, _parts(run, change, playbook, readings))
        samples = await self._watch_log.add(context.incident_id, run.visit.number, sample)
        wanted = _calm_seconds(playbook)
        every = min(MAX_SECONDS, max(MIN_SECONDS, wanted / 6))
        calm = held_seconds([each for each in samples if each.at >= run.watch.started_at], every)
        if calm >= wanted:
            recovered_at = context.now - calm
            return self._ended(effect, "recovered", f"calm for {lasting(calm)}", readings, recovered_at=recovered_at)
        if context.now >= run.watch.until:
            return self._ended(effect, "not_recovered", _lacking(sample), readings)
        text = _lacking(sample) or f"the trouble is gone; must stay so for {lasting(wanted)}"
        if run.change is not None and run.change.progress == text:
            return Later(every)
        event_id = f"progress/{effect.effect_id}/{sample.at}"
        return Later(every, (Progressed(event_id=event_id, effect_id=effect.effect_id, text=text, readings=readings),))

    def _ended(
        self,
        effect: WatchAdvice,
        result: str,
        detail: str,
        readings: Mapping[str, Reading] | None = None,
        *,
        recovered_at: float | None = None,
    ) -> Done:
        event = AdviceWatched.model_validate(
            {
                "event_id": f"ended/{effect.effect_id}",
                "effect_id": effect.effect_id,
                "request_id": effect.request_id,
                "result": result,
                "recovered_at": recovered_at,
                "readings": dict(readings or {}),
                "detail": detail,
            }
        )
        return Done((event,))


def _parts(
    run: Run, change: ActiveChange, playbook: CompiledPlaybook, readings: Mapping[str, Reading]
) -> dict[str, str]:
    """What shows that the trouble is over. Without an alert and a reason, only people know."""
    parts = {}
    state = None if change.undo_of else playbook.state(change.state)
    if isinstance(state, ChangeState) and state.still:
        holds = playbook.still_holds(change.state, ScopeValues(run, readings))
        parts[REASON] = verdict_text(playbook, holds if isinstance(holds, Unknown) else not holds)
    if run.alerts:
        is_over = all(alert.status == "resolved" for alert in run.alerts.values())
        parts[ALERTS] = HELD if is_over else NOT_HELD
    return parts or {"nothing shows whether it is over": NOT_HELD}


def _lacking(sample: WatchSample) -> str:
    lacking = [
        part if status == NOT_HELD else f"{part} ({status})" for part, status in sample.parts.items() if status != HELD
    ]
    return f"waits until {' and '.join(lacking)}" if lacking else ""


def _calm_seconds(playbook: CompiledPlaybook) -> float:
    value = playbook.settings.get(CALM_FOR, CALM_SECONDS)
    return float(value) if isinstance(value, int | float) else CALM_SECONDS
