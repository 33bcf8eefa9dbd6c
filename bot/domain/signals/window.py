"""Evaluates one series over a window: increases, quantiles, and how much of the window its samples cover.

A restarted process counts from zero: later counts are kept, lost ones are not invented.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

STALE_SECONDS = 60.0
"""A sample older than this is no evidence about now."""

NEEDED_SHARE = 0.5
"""How much of a window its samples must cover before it may be read."""
NEEDED_SECONDS = 40.0
"""Enough samples for a window that ends now: people read the first diagnosis within a minute of the alert."""

REACH_SECONDS = 1.5 * STALE_SECONDS
"""How far the nearest sample outside of a short window may be, where it counts because samples are rare."""

FEWEST_POINTS, COARSEST_SECONDS = 30, 300.0
"""A long window is read from a store at so many samples or more, and so often: Prometheus looks back no further."""

SLICES = 5
"""Number of slices of a window in the search for a steady rate."""
MIN_A_SLICE = 2
"""Fewer events in a slice are no evidence of a rate."""


@dataclass(frozen=True, slots=True)
class Window:
    start: float
    end: float
    needed_seconds: float = math.inf
    """How much of it must have been sampled, if that is less than `NEEDED_SHARE` of it."""
    longest_gap: float = STALE_SECONDS
    """A longer gap between two samples counts as this much."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def is_covered(self, seconds: float) -> bool:
        """Whether so many sampled seconds are enough to read it."""
        return seconds >= min(NEEDED_SHARE * self.seconds, self.needed_seconds)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series. `life` distinguishes the processes behind it, `born` is the start of this one."""

    at: float
    value: float
    life: int = 0
    born: float | None = None


def increase(points: Sequence[Point], window: Window, *, may_fall: bool = False) -> float:
    """Returns how much a counter rose from the first to the last point, across restarts of its process.

    `may_fall`: the values include gauges and may fall without a restart, as arrivals briefly do.
    """
    total = points[0].value if began_inside(points[0], window) else 0.0
    total += sum(
        counted(before.value, after.value, after.life != before.life, may_fall=may_fall)
        for before, after in pairwise(points)
    )
    return max(total, 0.0)


def counted(before: float, after: float, is_another_life: bool, *, may_fall: bool = False) -> float:
    """Returns how much a counter rose between two samples: from zero in another process, and where it fell."""
    return after if is_another_life or (after < before and not may_fall) else after - before


def counted_seconds(points: Sequence[Point], window: Window) -> float:
    """Returns the time over which `increase` counts: a counter misses nothing between two of its samples."""
    first = points[0]
    since = first.born if first.born is not None and began_inside(first, window) else first.at
    return points[-1].at - since


def steady_rate(points: Sequence[Point], window: Window, *, may_fall: bool = False) -> float:
    """Returns the median of a counter's rates over equal slices: excludes bursts, such as many clients starting up.

    Between two samples the counter is assumed to rise evenly. Few samples make few slices. For rare events it is the
    mean: most slices would be empty.
    """
    since = points[-1].at - counted_seconds(points, window)
    times, totals = [since], [0.0]
    if since < points[0].at:
        times.append(points[0].at)
        totals.append(points[0].value)
    for before, after in pairwise(points):
        times.append(after.at)
        rise = counted(before.value, after.value, after.life != before.life, may_fall=may_fall)
        totals.append(totals[-1] + rise)
    seconds = times[-1] - since
    if totals[-1] < MIN_A_SLICE * SLICES:
        return max(0.0, totals[-1]) / seconds
    count = min(SLICES, len(times) - 1)
    width = seconds / count
    at_bounds = [_between(times, totals, since + width * slice_) for slice_ in range(count + 1)]
    return median(max(0.0, after - before) / width for before, after in pairwise(at_bounds))


def _between(times: Sequence[float], totals: Sequence[float], at: float) -> float:
    after = min(bisect_left(times, at), len(times) - 1)
    if after == 0:
        return totals[0]
    share = min(1.0, (at - times[after - 1]) / (times[after] - times[after - 1]))
    return totals[after - 1] + share * (totals[after] - totals[after - 1])


def sampled_seconds(points: Sequence[Point], window: Window) -> float:
    """Returns the time that a gauge's samples cover: the middle of a long gap is unknown."""
    return sum(min(after.at - before.at, window.longest_gap) for before, after in pairwise(points))


def coarse(seconds: float) -> float:
    """Returns how far apart the samples of so long a window may be; 0: all are needed.

    For a mean, a rise, or a quantile that is not a peak.
    """
    step = min(seconds / FEWEST_POINTS, COARSEST_SECONDS)
    return step if step >= STALE_SECONDS else 0.0


def coarse_within(seconds: float, parts: int) -> float:
    """As `coarse`, for windows in a row: each of them begins and ends at a sample, and has so many parts or more."""
    coarsest = math.floor(min(seconds / parts, COARSEST_SECONDS))
    return next((float(step) for step in range(coarsest, math.ceil(STALE_SECONDS) - 1, -1) if seconds % step == 0), 0.0)


def quantile(values: Sequence[float], q: float) -> float:
    """Interpolates linearly between the two nearest values, like PromQL's `quantile_over_time`."""
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    below, above = math.floor(rank), math.ceil(rank)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def slope(points: Sequence[Point]) -> float:
    """Returns a gauge's rate of change per second: the least-squares line through its samples, as PromQL's `deriv`."""
    middle = sum(point.at for point in points) / len(points)
    level = sum(point.value for point in points) / len(points)
    spread = sum((point.at - middle) ** 2 for point in points)
    return sum((point.at - middle) * (point.value - level) for point in points) / spread if spread > 0 else 0.0


def histogram_quantile(buckets: Mapping[str, float], q: float) -> float | None:
    """Returns the `q`-quantile from cumulative counts by upper bound, like PromQL's.

    None without observations or without a finite bound. Beyond the highest finite bound it returns that bound: more
    cannot be known.
    """
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    if not bounds or bounds[-1][1] <= 0 or math.isinf(bounds[0][0]):
        return None
    wanted = q * bounds[-1][1]
    below, count_below = 0.0, 0.0
    for bound, count in bounds:
        if count >= wanted and count > count_below:
            if math.isinf(bound):
                return below
            return below + (bound - below) * (wanted - count_below) / (count - count_below)
        below, count_below = bound, count
    return below


def share_above(buckets: Mapping[str, float], target: float) -> float | None:
    """Returns the share of observations above `target`, linear within a bucket like `histogram_quantile`.

    None without observations, and if both the target and some observations are beyond the highest finite bound: how
    many of those are above the target is unknown.
    """
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    if not bounds or bounds[-1][1] <= 0:
        return None
    total = bounds[-1][1]
    below, count_below = 0.0, 0.0
    for bound, count in bounds:
        if target <= bound:
            if target == bound or count == count_below:
                return (total - count) / total
            if math.isinf(bound):
                return None
            return (total - count_below - (count - count_below) * (target - below) / (bound - below)) / total
        below, count_below = bound, count
    return None


def clock(at: float, beside: float) -> str:
    """Returns a time of day in UTC; with its date if that differs from the date of `beside`."""
    shown, near = (datetime.fromtimestamp(each, UTC) for each in (at, beside))
    return f"{shown:%H:%M:%S}" if shown.date() == near.date() else f"{shown:%Y-%m-%d %H:%M}"


def began_inside(point: Point, window: Window) -> bool:
    """Whether the process behind it started in the window, so that all its counts are of the window."""
    return point.born is not None and window.start <= point.born <= point.at
