"""Charts a run's signals over time: the signals that a verdict was judged on, with their limits.

A time whose reading is unknown has no point: the line has a gap there, never a zero.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from pydantic import BaseModel, ConfigDict

from bot.domain.incidents.run import Run
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import Finding, ReadState, WatchState
from bot.domain.signals.labels import words_for
from bot.domain.signals.sampling import SampledSpec, read_window
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Better
from bot.domain.signals.specs import ComparedSignal, ProbeSignal, StallSignal
from bot.domain.signals.window import Window

MAX_POINTS = 120
MAX_SERIES = 5
LEAD_SHARE, MIN_LEAD_SECONDS = 0.25, 300.0
"""How much time before the alert is shown, so that normal behavior is visible."""
MAX_SECONDS = 6 * 3600.0

# `thrash < settings.recovered_ratio`: a bare limit. A value computed from a setting is not a line that could be drawn,
# nor is what a value computed from the signal is compared with: `finished * ttft_missed >= settings.least_late`.
_LIMIT = re.compile(
    r"(?:^|[(!&|?:,])\s*(?P<signal>[a-z_]\w*)\s*(?:[<>]=?)\s*settings\.(?P<setting>\w+)(?!\s*[-+*/\w.])", re.ASCII
)


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True)


class Limit(_Fact):
    setting: str
    value: float


class Series(_Fact):
    """One signal over time; `points` are pairs of epoch seconds and value."""

    signal: str
    label: str = ""
    """What people read instead of its name."""
    unit: str = ""
    better: Better = ""
    limits: tuple[Limit, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    unknown: str = ""
    """Why none of its points is known; empty if one is."""

    @property
    def was_beyond_a_limit(self) -> bool:
        """Whether it was at some time on the wrong side of one of its limits; above is wrong by default."""
        values = [value for _, value in self.points]
        if self.better == "higher":
            return any(value < limit.value for limit in self.limits for value in values)
        return any(value > limit.value for limit in self.limits for value in values)


def charted(playbook: CompiledPlaybook, path: Sequence[str]) -> dict[str, tuple[Limit, ...]]:
    """Returns the signals that the states on this path compare with a setting: what users feel, then watched ones."""
    limits: dict[str, dict[str, float]] = {}
    for source in _conditions(playbook, path):
        for found in _LIMIT.finditer(source):
            value = playbook.settings.get(found["setting"])
            if line_of(playbook, found["signal"]) is not None and isinstance(value, float | int):
                limits.setdefault(found["signal"], {})[found["setting"]] = float(value)
    chosen = list(limits.items())[:MAX_SERIES]
    return {name: tuple(Limit(setting=key, value=at) for key, at in found.items()) for name, found in chosen}


def _conditions(playbook: CompiledPlaybook, path: Sequence[str]) -> Iterator[str]:
    yield from [each.when for each in playbook.playbook.users if _names_its_limit(each)][:1]
    states = [playbook.state(name) for name in dict.fromkeys(path)]
    for state in reversed(states):
        if isinstance(state, WatchState):
            yield from state.watch.values()
            yield from (broke.when for broke in state.broke)
    for state in states:
        if isinstance(state, ReadState):
            yield from (go.when for go in state.go)


def _names_its_limit(felt: Finding) -> bool:
    """Whether people read it against its target, as in `Users wait 5 s (target 2 s)`."""
    return any(f"settings.{found['setting']}" in felt.say for found in _LIMIT.finditer(felt.when))


def line_of(playbook: CompiledPlaybook, signal: str) -> SampledSpec | None:
    """Returns how this signal is read if it is one number of the whole workload up to now; else None."""
    spec = playbook.playbook.signals.get(signal)
    if spec is None or isinstance(spec, ProbeSignal | ComparedSignal | StallSignal):
        return None
    is_one_number = getattr(spec, "across", "") != "each"
    return spec if is_one_number and spec.of == "target" and not spec.ending else None


def shown_time(run: Run, now: float) -> Window:
    end = run.closed_at if run.closed_at is not None else now
    began = min(run.starts_at or run.opened_at, run.opened_at)
    lead = max(MIN_LEAD_SECONDS, LEAD_SHARE * (end - began))
    return Window(max(began - lead, end - MAX_SECONDS), end)


def sampled_line(
    name: str, spec: SampledSpec, limits: tuple[Limit, ...], scrapes: Sequence[Scrape], *, shown: Window, span: float
) -> Series:
    """Read the signal's own window again at evenly spaced times of the shown period."""
    in_order = sorted(scrapes, key=attrgetter("at"))
    points: list[tuple[float, float]] = []
    why, unit = "nothing was sampled", ""
    for number in range(MAX_POINTS):
        at = shown.start + shown.seconds * (number + 1) / MAX_POINTS
        reading = read_window(name, spec, _between(in_order, at - span, at), window=Window(at - span, at), picked={})
        unit = reading.unit
        if isinstance(reading.value, float | int) and not isinstance(reading.value, bool):
            points.append((round(at, 1), float(f"{reading.value:.5g}")))
        else:
            why = reading.unknown or why
    unknown, words = "" if points else why, words_for(spec)
    return Series(
        signal=name,
        label=words.label,
        unit=unit,
        better=words.better,
        limits=limits,
        points=tuple(points),
        unknown=unknown,
    )


def _between(in_order: Sequence[Scrape], start: float, end: float) -> Sequence[Scrape]:
    at = attrgetter("at")
    return in_order[bisect_left(in_order, start, key=at) : bisect_right(in_order, end, key=at)]


def as_evidence(lines: Sequence[Series]) -> dict[str, object]:
    """Returns the lines in the form that the timeline stores."""
    return {"series": [line.model_dump(mode="json") for line in lines]}


def series_in_words(lines: Sequence[Series]) -> str:
    known = [f"{line.label or line.signal} ({len(line.points)} points)" for line in lines if line.points]
    unread = [f"{line.label or line.signal} unknown: {line.unknown}" for line in lines if not line.points]
    return "; ".join([*known, *unread]) or "no signal of this playbook is held against a setting"
