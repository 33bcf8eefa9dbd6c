"""Compares a reading with its own past at similar load: latencies of a quiet night prove nothing at noon.

The past is cut into windows as long as the reading's own. Only windows with a similar number of arrivals count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from bot.domain.kernel.durations import lasting
from bot.domain.signals.sampling import SampledSpec, metrics_of, read_window, spec_fault, words_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import ComparedSignal, MetricSignal
from bot.domain.signals.window import Window

ARRIVALS = MetricSignal(metric="arrivals", take="rate", across="sum")


def metrics_compared(spec: ComparedSignal) -> frozenset[str]:
    """Returns the metrics that this comparison uses: those of the reading, and the load's."""
    return metrics_of(spec.compared) | metrics_of(ARRIVALS)


def is_counted(spec: SampledSpec) -> bool:
    """Returns whether the two ends of a window show what was counted in it."""
    return not isinstance(spec, MetricSignal) or spec.take in ("rate", "increase")


def comparison_fault(spec: ComparedSignal) -> str:
    """Returns why this spec can never yield a comparison; empty if it can."""
    if getattr(spec.compared, "across", "") == "each":
        return "what is compared is one number: take it across max, min, avg or sum, not each"
    if spec.compared.ending:
        return "what is compared ends now; 'ending' beside 'compared' says when the past ends"
    return spec_fault(spec.compared)


class Era(NamedTuple):
    """A time, and the scrapes in it; those of the past may be fewer than were taken."""

    window: Window
    scrapes: Sequence[Scrape]


def compare(name: str, spec: ComparedSignal, *, now: Era, past: Era, picked: Mapping[str, str]) -> Reading:
    """Returns the reading divided by the median of past ones at similar load; unknown if any of them is unknown."""
    if fault := comparison_fault(spec):
        return unknown(name, fault, at=now.window.end)
    asked = {
        "window_seconds": now.window.seconds,
        "unit": spec.unit or "ratio",
        "query": _words(spec, now.window, past.window),
    }
    return _compared(name, spec, now=now, past=past, picked=picked).model_copy(update=asked)


def _compared(name: str, spec: ComparedSignal, *, now: Era, past: Era, picked: Mapping[str, str]) -> Reading:
    present = read_window(name, spec.compared, now.scrapes, window=now.window, picked=picked)
    load = read_window(name, ARRIVALS, now.scrapes, window=now.window, picked={})
    end, span = now.window.end, lasting(now.window.seconds)
    if not isinstance(present.value, float):
        return unknown(name, f"now: {present.unknown or 'it is not a number'}", at=end)
    if not isinstance(load.value, float):
        return unknown(name, f"arrivals now: {load.unknown}", at=end)
    if load.value <= 0:
        return unknown(name, f"no request arrived in {span}: there is no load to compare at", at=end)
    low, high = load.value * (1 - spec.load_within), load.value * (1 + spec.load_within)
    loads, then = list[float](), list[float]()
    for window, inside in _windows(past, now.window):
        was = read_window(name, ARRIVALS, inside, window=window, picked={}).value
        if not isinstance(was, float):
            continue
        loads.append(was)
        if low <= was <= high:
            value = read_window(name, spec.compared, inside, window=window, picked=picked).value
            then += [value] if isinstance(value, float) else []
    if not then or median(then) == 0:
        return unknown(name, _nothing_alike(loads, then, (low, high), past.window), at=end)
    detail = (
        f"{present.value:.3g} now, {median(then):.3g} then: the median of {len(then)} windows at similar load,"
        f" {low:.3g} to {high:.3g} requests/s"
    )
    return Reading(name=name, value=present.value / median(then), at=present.at, detail=detail)


def _windows(past: Era, now: Window) -> Iterator[tuple[Window, Sequence[Scrape]]]:
    """Returns the whole windows of the past, newest first, each with its own scrapes."""
    ordered = sorted(past.scrapes, key=lambda scrape: scrape.at)
    times = [scrape.at for scrape in ordered]
    for back in range(int(past.window.seconds // now.seconds)):
        end = past.window.end - back * now.seconds
        window = Window(end - now.seconds, end, longest_gap=now.longest_gap)
        yield window, ordered[bisect_left(times, window.start) : bisect_right(times, window.end)]


def _nothing_alike(loads: Sequence[float], then: Sequence[float], wanted: tuple[float, float], past: Window) -> str:
    span = lasting(past.seconds)
    if not loads:
        return f"no history of the {span} to compare with"
    if then:
        return f"it was 0 at similar load in the {span} to compare with"
    if not any(wanted[0] <= load <= wanted[1] for load in loads):
        seen = f"{min(loads):.3g} to {max(loads):.3g}"
        return f"no such load in the {span} to compare with: {wanted[0]:.3g} to {wanted[1]:.3g} requests/s, seen {seen}"
    return f"it could not be read at similar load in the {span} to compare with"


def _words(spec: ComparedSignal, now: Window, past: Window) -> str:
    before = f" ending at {spec.ending}" if spec.ending else " before"
    return (
        f"{words_of(spec.compared, now)}, per the same in the {lasting(past.seconds)}{before} "
        f"at arrivals within ±{spec.load_within:.0%}"
    )
