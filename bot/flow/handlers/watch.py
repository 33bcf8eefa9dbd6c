"""Watches named parts until all have held long enough, the evidence is enough, the time is over, or it breaks.

Samples are stored, so that a restart neither forgets nor repeats them. A gap of more than twice the interval restarts
the watch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bot.domain.incidents.effect import WatchSignals
from bot.domain.incidents.event import Progressed, Watched
from bot.domain.incidents.named_values import ScopeValues, units_of
from bot.domain.kernel.durations import lasting
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.language import WatchState
from bot.domain.signals.signal import Reading, Value
from bot.flow.handlers.read import PlaybookOf, ReadHandler
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.storage import WatchLog, WatchSample

HELD, NOT_HELD, UNKNOWN = "held", "not held", "unknown"
MIN_SECONDS, MAX_SECONDS = 1.0, 15.0
REFRESH_SECONDS = 60.0
SAMPLES_THAT_AGREE = 2
"""One sample may fall on a moment that is unlike the rest."""


class WatchHandler:
    def __init__(self, read: ReadHandler, watch_log: WatchLog, playbook_of: PlaybookOf) -> None:
        self._read, self._watch_log, self._playbook_of = read, watch_log, playbook_of

    async def __call__(self, context: EffectContext, effect: WatchSignals) -> Done | Later:
        playbook = await self._playbook_of(context.run)
        state = playbook.state(effect.state)
        if not isinstance(state, WatchState) or context.run.watch is None:
            return Done()
        readings = await self._read.readings(context.run, effect.state)
        values = ScopeValues(context.run, readings)
        broke = playbook.broke(effect.state, values)
        sample = WatchSample(context.now, parts_of(playbook, effect.state, values), broke)
        at_once = next((place for place in broke if not state.broke[place].for_), None)
        if at_once is not None:
            detail = f"broke: {state.broke[at_once].when}"
            return self._verdict(effect, "broke", sample, readings, detail, broke=at_once)
        samples = await self._watch_log.add(context.incident_id, context.run.visit.number, sample)
        every = cadence(playbook, state)
        for place in broke:
            clause = state.broke[place]
            true_for = broke_seconds(samples, every, place)
            if true_for >= playbook.seconds(clause.for_):
                detail = f"broke: {clause.when}, for {lasting(true_for)}"
                return self._verdict(effect, "broke", sample, readings, detail, broke=place)
        held_for = held_seconds(samples, every)
        wanted = playbook.seconds(state.for_)
        if held_for >= wanted:
            return self._verdict(effect, "held", sample, readings, f"held for {lasting(held_for)}")
        early = agreed(samples) if playbook.is_enough(effect.state, values) else ""
        if early:
            return self._verdict(effect, early, sample, readings, f"{early.replace('_', ' ')}: {state.enough}")
        # Nobody has to wait for the rest of a time in which it cannot hold long enough any more. Where the evidence may
        # be enough before, two samples are.
        left = max(0.0, context.run.watch.until - context.now)
        if not left or (not state.enough and held_for + left + SAMPLES_THAT_AGREE * every < wanted):
            return self._too_late(effect, sample, readings, held_for, wanted)
        if not _is_due(context, samples, readings):
            return Later(every)
        lacking = _lacking(sample)
        seen = playbook.watch_values(effect.state, lacking, values, units_of(readings))
        text = f"not yet: {seen}" if lacking else f"yes, and must stay so for {lasting(wanted)}"
        event_id = f"progress/{effect.effect_id}/{sample.at}"
        progress = Progressed(event_id=event_id, effect_id=effect.effect_id, text=text, readings=dict(readings))
        return Later(every, (progress,))

    def _too_late(
        self, effect: WatchSignals, sample: WatchSample, readings: Mapping[str, Reading], held_for: float, wanted: float
    ) -> Done:
        is_unknown = any(status.startswith(UNKNOWN) for status in sample.parts.values())
        lacking = "; ".join(f"{part}: {status}" for part, status in sample.parts.items() if status != HELD)
        detail = f"held for only {lasting(held_for)} of {lasting(wanted)}" + (f" ({lacking})" if lacking else "")
        return self._verdict(effect, "unknown" if is_unknown else "not_held", sample, readings, detail)

    def _verdict(
        self,
        effect: WatchSignals,
        verdict: str,
        sample: WatchSample,
        readings: Mapping[str, Reading],
        detail: str,
        broke: int | None = None,
    ) -> Done:
        event = Watched.model_validate(
            {
                "event_id": effect.effect_id,
                "effect_id": effect.effect_id,
                "verdict": verdict,
                "broke": broke,
                "parts": dict(sample.parts),
                "readings": dict(readings),
                "detail": detail,
            }
        )
        return Done((event,))


def parts_of(playbook: CompiledPlaybook, state: str, values: Mapping[str, Value]) -> dict[str, str]:
    verdicts = playbook.watch_parts(state, values)
    return {part: verdict_text(playbook, verdict) for part, verdict in verdicts.items()}


def verdict_text(playbook: CompiledPlaybook, verdict: bool | Unknown) -> str:
    if isinstance(verdict, Unknown):
        return f"{UNKNOWN}: {playbook.in_words(verdict)}"
    return HELD if verdict else NOT_HELD


def cadence(playbook: CompiledPlaybook, state: WatchState) -> float:
    """Seconds between two samples: as configured, else a sixth of the required holding time, within 1 and 15 s."""
    if state.every:
        return playbook.seconds(state.every)
    return min(MAX_SECONDS, max(MIN_SECONDS, playbook.seconds(state.for_) / 6))


def held_seconds(samples: Sequence[WatchSample], every: float) -> float:
    """How long every part has held without a gap, up to the newest sample; 0 if the newest did not hold."""
    return _seconds_without_gap(samples, every, holds)


def broke_seconds(samples: Sequence[WatchSample], every: float, place: int) -> float:
    """How long a `broke` clause has been true without a gap, up to the newest sample."""
    return _seconds_without_gap(samples, every, lambda sample: place in sample.broke)


def holds(sample: WatchSample) -> bool:
    return all(status == HELD for status in sample.parts.values())


def _seconds_without_gap(samples: Sequence[WatchSample], every: float, is_so: Callable[[WatchSample], bool]) -> float:
    newest = None
    since = None
    for sample in reversed(samples):
        if not is_so(sample) or (since is not None and since - sample.at > 2 * every + MIN_SECONDS):
            break
        since = sample.at
        newest = newest if newest is not None else sample.at
    return 0.0 if newest is None or since is None else newest - since


def agreed(samples: Sequence[WatchSample]) -> str:
    """Returns what the two newest samples show alike: `held`, `not_held`, or nothing."""
    if len(samples) < SAMPLES_THAT_AGREE:
        return ""
    newest = [set(sample.parts.values()) for sample in samples[-SAMPLES_THAT_AGREE:]]
    if all(status == {HELD} for status in newest):
        return "held"
    return "not_held" if all(NOT_HELD in status for status in newest) else ""


def _lacking(sample: WatchSample) -> tuple[str, ...]:
    return tuple(part for part, status in sample.parts.items() if status != HELD)


def _is_due(context: EffectContext, samples: Sequence[WatchSample], readings: Mapping[str, Reading]) -> bool:
    """Whether the progress is reported: when a part changes, and from time to time.

    A watch may last for hours, and the card must not show old numbers.
    """
    watch, latest = context.run.watch, context.run.latest
    shown = max((latest[name].at for name in readings if name in latest), default=0.0)
    is_new = any(_lacking(before) != _lacking(samples[-1]) for before in samples[-2:-1])
    return watch is not None and (not watch.progress or is_new or context.now - shown >= REFRESH_SECONDS)
