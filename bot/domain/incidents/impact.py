"""What a change costs the users of the remaining replicas, and when the cost is too high to continue unasked.

A rolling change takes capacity for a while, and new replicas start with cold caches. Missing data stops nothing: a
fleet that answers no requests has no latency, and its repair must not wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from bot.domain.changes.plan import Plan, Wait
from bot.domain.signals.sampling import metrics_of, read_window
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import MetricSignal, QuantileSignal
from bot.domain.signals.window import Window

IMPACT_SECONDS = 60.0
"""A shorter window mistakes one burst for a trend; a longer one reports after the next replica is gone."""
TTFT_FACTOR, WAITING_FACTOR = 1.5, 2.0
TTFT_LEAST_SECONDS, WAITING_LEAST = 0.5, 2.0
"""A factor means nothing below the usual target for a first token or below two waiting requests per replica."""

TTFT = QuantileSignal(histogram="time_to_first_token_seconds", quantile=0.99, over="60s")
WAITING = MetricSignal(metric="num_requests_waiting", over="60s", take="avg", across="avg")
IMPACT_METRICS = metrics_of(TTFT) | metrics_of(WAITING)
TAKES_CAPACITY = frozenset({"rolled_out", "replaced", "released", "emptied"})


class Impact(BaseModel):
    """How the replicas in rotation served over one minute; None means unknown."""

    model_config = ConfigDict(frozen=True)

    ttft_p99_seconds: float | None = None
    waiting: float | None = None
    """Waiting requests per replica."""

    def __str__(self) -> str:
        ttft = "unknown" if self.ttft_p99_seconds is None else f"{self.ttft_p99_seconds:.2f} s"
        waiting = "unknown" if self.waiting is None else f"{self.waiting:.1f}"
        return f"TTFT p99 {ttft}, {waiting} waiting per replica"

    def or_else(self, earlier: Impact | None) -> Impact:
        """Returns this impact with its unknown values taken from the earlier one."""
        if earlier is None:
            return self
        ttft = earlier.ttft_p99_seconds if self.ttft_p99_seconds is None else self.ttft_p99_seconds
        return Impact(ttft_p99_seconds=ttft, waiting=earlier.waiting if self.waiting is None else self.waiting)


def takes_capacity(plan: Plan) -> bool:
    """Whether the plan takes replicas from users step by step. An undo is never held up: it must be the easier path."""
    waits = {step.condition for step in plan.steps if isinstance(step, Wait)}
    return plan.verb != "undo" and bool(waits & TAKES_CAPACITY)


def impact_in(scrapes: Sequence[Scrape], window: Window) -> Impact:
    serving = [scrape for scrape in scrapes if scrape.in_rotation is not False]
    ttft, waiting = (
        _number(read_window(name, spec, serving, window=window, picked={}))
        for name, spec in (("ttft_p99", TTFT), ("waiting", WAITING))
    )
    return Impact(ttft_p99_seconds=ttft, waiting=waiting)


def too_much(before: Impact, now: Impact) -> str:
    """Returns which values rose beyond their factor since `before`, in words; empty if none did or they are unknown."""
    found = []
    was, ttft = before.ttft_p99_seconds, now.ttft_p99_seconds
    if was is not None and ttft is not None and ttft > max(TTFT_FACTOR * was, TTFT_LEAST_SECONDS):
        found.append(f"TTFT p99 {was:.2f} s → {ttft:.2f} s")
    stood, waits = before.waiting, now.waiting
    if stood is not None and waits is not None and waits > max(WAITING_FACTOR * stood, WAITING_LEAST):
        found.append(f"requests waiting per replica {stood:.1f} → {waits:.1f}")
    return ", ".join(found)


def _number(reading: Reading) -> float | None:
    return float(reading.value) if reading.is_known and isinstance(reading.value, int | float) else None
