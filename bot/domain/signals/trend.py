"""A linear fit through a day of samples: the growth rate, and whether a line fits at all.

Without a fit there is no trend: a sawtooth has a slope too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Trend:
    per_day: float
    fit: float
    """r², 1 on a line; also 1 if nothing changes at all."""


def trend_of(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Fits (seconds, value); None with fewer than three usable samples."""
    if len({at for at, _ in points}) < 3:
        return None
    middle = sum(at for at, _ in points) / len(points)
    level = sum(value for _, value in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    together = sum((at - middle) * (value - level) for at, value in points)
    scatter = sum((value - level) ** 2 for _, value in points)
    fit = 1.0 if scatter == 0 else together**2 / (spread * scatter)
    return Trend(per_day=together / spread * DAY_SECONDS, fit=fit)
