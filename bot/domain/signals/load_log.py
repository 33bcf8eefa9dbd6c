"""A workload's load in points of five minutes: small enough to keep for a day, for comparison with yesterday.

A slot covered less than half by samples has no point; a window covered less than half by points is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from bot.domain.signals.sampling import SampledSpec, read_window, unit_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import MeanSignal, MetricSignal
from bot.domain.signals.window import NEEDED_SHARE, Window

SLOT_SECONDS = 300.0
DAY_SECONDS = 24 * 3600.0

LOAD: Mapping[str, SampledSpec] = {
    "arrivals": MetricSignal(metric="arrivals", take="rate", across="sum"),
    "prompt": MeanSignal(mean="request_prompt_tokens"),
    "output": MeanSignal(mean="request_generation_tokens"),
}
"""The signals of load: requests per second, and the length of finished ones."""
_FINISHED = MetricSignal(metric="request_success", take="increase", across="sum")


class LoadPoint(BaseModel):
    """The load of one slot. Lengths are absent if nothing finished; `finished` weighs them."""

    model_config = ConfigDict(frozen=True)

    start: float
    arrivals: float
    finished: float = 0.0
    prompt: float | None = None
    output: float | None = None


def last_slot(now: float) -> Window:
    """Returns the newest slot that is over; the same for every process, so that two of them write one point."""
    end = now // SLOT_SECONDS * SLOT_SECONDS
    return Window(end - SLOT_SECONDS, end)


def load_point(scrapes: Sequence[Scrape], slot: Window) -> LoadPoint | None:
    """Returns None if the arrivals of the slot are unknown."""
    specs = {**LOAD, "finished": _FINISHED}
    read = {name: read_window(name, spec, scrapes, window=slot, picked={}).value for name, spec in specs.items()}
    known = {name: value for name, value in read.items() if isinstance(value, float)}
    return LoadPoint(start=slot.start, **known) if "arrivals" in known else None


def load_of(
    points: Sequence[LoadPoint], window: Window, *, since: float | None, ago: float = DAY_SECONDS
) -> Mapping[str, Reading]:
    """Returns the window's load from the points that overlap it. `since`: start of the first point that is kept.

    `ago`: how long before the question's time the window ends.
    """
    shares = [(point, _overlap(point, window)) for point in points]
    covered = sum(share for _, share in shares)
    if covered < NEEDED_SHARE * window.seconds:
        reason = _missing(window, since, ago)
        return {name: unknown(name, reason, at=window.end) for name in LOAD}
    arrivals = sum(point.arrivals * share for point, share in shares) / covered
    readings = {"arrivals": Reading(name="arrivals", value=arrivals, at=window.end)}
    for name in ("prompt", "output"):
        lengths = [(getattr(point, name), point.finished * share) for point, share in shares]
        readings[name] = _mean(name, [(length, weight) for length, weight in lengths if length is not None], window)
    return {name: reading.model_copy(update={"unit": unit_of(LOAD[name])}) for name, reading in readings.items()}


def _mean(name: str, weighed: Sequence[tuple[float, float]], window: Window) -> Reading:
    total = sum(weight for _, weight in weighed)
    if total <= 0:
        return unknown(name, "nothing finished then", at=window.end)
    return Reading(name=name, value=sum(length * weight for length, weight in weighed) / total, at=window.end)


def _overlap(point: LoadPoint, window: Window) -> float:
    return max(0.0, min(point.start + SLOT_SECONDS, window.end) - max(point.start, window.start))


def _missing(window: Window, since: float | None, ago: float) -> str:
    if since is None:
        return "it was not sampled then; add it to sampling.workloads, and this is known a day later"
    if since <= window.start:
        return "the samples of that time have gaps"
    known = datetime.fromtimestamp(since + ago + window.seconds, UTC)
    began = datetime.fromtimestamp(since, UTC)
    return f"its load is kept since {began:%Y-%m-%d %H:%M} UTC, so this is known from {known:%Y-%m-%d %H:%M} UTC on"
