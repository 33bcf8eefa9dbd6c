"""Probes about the workload's own story: which revision last served well, and today beside yesterday.

What is too young, undated or without history is unknown; a guess would be rolled back to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.changes.template_differences import template_differences
from bot.domain.cluster.objects import dig
from bot.domain.cluster.rollout import replica_sets_of, revision_of
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.signals.load_log import METRICS, load_of, load_specs
from bot.domain.signals.sampling import SampledSpec, read_window, span_of
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import Window, short
from bot.flow.past_probes import PastRuns, troubled_times
from bot.flow.ports import History, LoadLog, Probe, Question
from bot.flow.probes import SOURCE, Part, answer, is_ours, rolled_out_at, unreadable

GOOD_SECONDS = 24 * 3600.0
"""A revision that went through a whole day's load has proved itself; an hour at night has not."""
TRAFFIC_OVER, TRAFFIC_AGO = "30m", "24h"


def workload_probes(
    *, history: History, now: Callable[[], float], runs: PastRuns, loads: LoadLog | None = None
) -> dict[str, Probe]:
    return {"last_good": LastGood(runs), "traffic": Traffic(history, now, loads)}


# --- last good --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Served:
    """A revision and how long it was the newest before the incident, counted from the last one that fell into its time.

    None where its beginning or end has no date.
    """

    replica_set: Obj
    seconds: float | None
    is_current: bool


class LastGood:
    """The newest revision that served its last day before the incident without another one, and is not the bot's own.

    Kubernetes dates a revision by its ReplicaSet; one that was rolled back to is dated only while it is the newest.
    """

    def __init__(self, runs: PastRuns) -> None:
        self._runs = runs

    async def __call__(self, question: Question) -> Reading:
        world = await question.world()
        if failed := unreadable(question, world, "replica_sets"):
            return failed
        context = question.context
        troubled = await troubled_times(self._runs, context.target, but=context.incident_id)
        revisions = _served(world, question, troubled)
        if not revisions:
            return unknown(question.name, "it has no revisions to look at", at=question.at, source=SOURCE)
        good = next((one for one in revisions if one.seconds is not None and one.seconds >= GOOD_SECONDS), None)
        if good is None:
            undated = any(one.seconds is None for one in revisions)
            parts: dict[str, Part | None] = dict.fromkeys(("revision", "is_current", "hours", "summary"))
            parts["found"] = None if undated else False
            reason = f"no revision is known to have served {short(GOOD_SECONDS)} without an incident before this one"
            return answer(question, parts, missing=dict.fromkeys(parts, reason), detail=reason)
        return _told(question, good, revisions[0])


def _served(world: World, question: Question, troubled: Sequence[tuple[float, float]]) -> list[_Served]:
    """Newest first, without the bot's own; those end where the next one, whoever made it, began."""
    found = replica_sets_of(world)
    until: float | None = question.context.began_at
    served = []
    for index, replica_set in enumerate(found):
        began = rolled_out_at(replica_set, world, is_current=index == 0)
        before = found[index + 1] if index + 1 < len(found) else None
        seconds = None if began is None or until is None else _quiet_seconds(began, until, troubled)
        if not is_ours(replica_set, before, question) and (index > 0 or _is_rolled_out(world)):
            served.append(_Served(replica_set, seconds, index == 0))
        # What was rolled out after the incident began took nothing from the revision before it.
        until = min(began, question.context.began_at) if began is not None else None
    return served


def _quiet_seconds(began: float, until: float, troubled: Sequence[tuple[float, float]]) -> float:
    """The time up to its end in which it served without an incident."""
    return until - max(
        (min(ended, until) for start, ended in troubled if start < until and ended > began), default=began
    )


def _is_rolled_out(world: World) -> bool:
    """Whether the newest revision has all its replicas; one that is stuck half-way has served nobody whole."""
    wanted = dig(world.workload, "spec", "replicas")
    updated = dig(world.workload, "status", "updatedReplicas")
    return wanted is None or updated is None or updated >= wanted


def _told(question: Question, good: _Served, newest: _Served) -> Reading:
    revision = revision_of(good.replica_set)
    old, new = (dig(one.replica_set, "spec", "template") or {} for one in (good, newest))
    changed = "; ".join(change.text for change in template_differences(new, old)) if not good.is_current else ""
    hours = (good.seconds or 0.0) / 3600
    parts: dict[str, Part | None] = {
        "found": True,
        "revision": None if revision is None else float(revision),
        "is_current": good.is_current,
        "hours": hours,
        "summary": changed[:600],
    }
    missing = {"revision": "the ReplicaSet carries no revision"}
    what = "runs now" if good.is_current else f"going back to it means: {changed or 'no difference'}"
    return answer(
        question,
        parts,
        missing=missing,
        detail=f"revision {revision} served {hours:.0f} h without an incident; {what}"[:900],
    )


# --- traffic ----------------------------------------------------------------------------------------------------------


class Traffic:
    """Arrivals and lengths beside the same time yesterday, as ratios; unknown where no history reaches there.

    Parameters: `over` is how much time is compared, `ago` how long before that yesterday is.

    `loads` is the day that the bot keeps itself, in five minutes a point, where nobody else keeps samples that long.
    """

    def __init__(self, history: History, now: Callable[[], float], loads: LoadLog | None = None) -> None:
        self._history, self._now, self._loads = history, now, loads

    async def __call__(self, question: Question) -> Reading:
        asked, settings = question.spec.parameters, question.context.settings
        over = str(asked.get("over", TRAFFIC_OVER))
        specs = load_specs(over)
        try:
            span, ago = span_of(over, settings), span_of(str(asked.get("ago", TRAFFIC_AGO)), settings)
        except ValueError as error:
            return unknown(question.name, str(error), at=question.at, source=self._history.source)
        await self._history.sample(question.context)
        now = self._now()
        today = await self._read(specs, question, Window(now - span, now))
        then = Window(now - span - ago, now - ago)
        kept, sampled = await self._kept(question, then, ago), await self._read(specs, question, then)
        # Samples are finer, and mostly do not reach that far; then the reason is that of the day that is kept.
        yesterday = sampled if not sampled["arrivals"].unknown else kept or sampled
        return self._told(question, today, yesterday, span)

    async def _read(
        self, specs: Mapping[str, SampledSpec], question: Question, window: Window
    ) -> Mapping[str, Reading]:
        scrapes = await self._history.between(question.context, METRICS, window.start, window.end)
        return {name: read_window(name, spec, scrapes, window=window, picked={}) for name, spec in specs.items()}

    async def _kept(self, question: Question, window: Window, ago: float) -> Mapping[str, Reading]:
        if self._loads is None:
            return {}
        points = await self._loads.all(question.context.target.key)
        return load_of(points, window, since=points[0].start if points else None, ago=ago)

    def _told(
        self, question: Question, today: Mapping[str, Reading], yesterday: Mapping[str, Reading], span: float
    ) -> Reading:
        arrivals = today["arrivals"].value
        parts: dict[str, Part | None] = {"arrivals": arrivals if isinstance(arrivals, float) else None}
        missing = {"arrivals": today["arrivals"].unknown}
        for name, now in today.items():
            parts[f"{name}_ratio"] = _ratio(now, yesterday[name])
            missing[f"{name}_ratio"] = now.unknown or f"yesterday: {yesterday[name].unknown or 'there was none'}"
        shown = [
            f"{name} {now.value:.3g} {now.unit}, yesterday {then.value:.3g}"
            for name, now in today.items()
            if isinstance(now.value, float) and isinstance((then := yesterday[name]).value, float)
        ]
        reading = answer(question, parts, missing=missing, detail="; ".join(shown), source=self._history.source)
        return reading.model_copy(update={"window_seconds": span})


def _ratio(now: Reading, then: Reading) -> float | None:
    """More of nothing has no measure: a ratio to zero is unknown."""
    if not isinstance(now.value, float) or not isinstance(then.value, float) or then.value <= 0:
        return None
    return now.value / then.value
