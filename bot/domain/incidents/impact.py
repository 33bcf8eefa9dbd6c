"""What a change costs the users of the replicas that stay, and when that is too much to go on without a word.

A rolling change takes capacity for a while, and new replicas begin with cold caches. What cannot be read stops nothing:
a fleet that answers nobody has no latency, and its repair must not wait for one.
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
"""A shorter look takes one burst for a trend; a longer one tells after the next replica is gone."""
TTFT_FACTOR, WAITING_FACTOR = 1.5, 2.0
TTFT_LEAST_SECONDS, WAITING_LEAST = 0.5, 2.0
"""Below the usual target for a first token, and below two requests waiting a replica, a factor says nothing."""

TTFT = QuantileSignal(histogram="time_to_first_token_seconds", quantile=0.99, over="60s")
WAITING = MetricSignal(metric="num_requests_waiting", over="60s", take="avg", across="avg")
IMPACT_METRICS = metrics_of(TTFT) | metrics_of(WAITING)
TAKES_CAPACITY = frozenset({"rolled_out", "replaced", "released", "emptied"})


class Impact(BaseModel):
    """How the replicas in rotation served over a minute; None is unknown."""

    model_config = ConfigDict(frozen=True)

    ttft_p99_seconds: float | None = None
    waiting: float | None = None
    """Requests that wait, a replica."""

    def __str__(self) -> str:
        ttft = "unknown" if self.ttft_p99_seconds is None else f"{self.ttft_p99_seconds:.2f} s"
        waiting = "unknown" if self.waiting is None else f"{self.waiting:.1f}"
        return f"TTFT p99 {ttft}, {waiting} waiting a replica"

    def or_else(self, earlier: Impact | None) -> Impact:
        """What is not known any more is as it was."""
        if earlier is None:
            return self
        ttft = earlier.ttft_p99_seconds if self.ttft_p99_seconds is None else self.ttft_p99_seconds
        return Impact(ttft_p99_seconds=ttft, waiting=earlier.waiting if self.waiting is None else self.waiting)


def takes_capacity(plan: Plan) -> bool:
    """Whether replicas are taken from users step by step. Going back is never held up: it has to be the easier way."""
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
    """Which of them rose beyond its factor since `before`, in words; empty when none did, or nobody can tell."""
    found = []
    was, ttft = before.ttft_p99_seconds, now.ttft_p99_seconds
    if was is not None and ttft is not None and ttft > max(TTFT_FACTOR * was, TTFT_LEAST_SECONDS):
        found.append(f"TTFT p99 {was:.2f} s → {ttft:.2f} s")
    stood, waits = before.waiting, now.waiting
    if stood is not None and waits is not None and waits > max(WAITING_FACTOR * stood, WAITING_LEAST):
        found.append(f"requests waiting a replica {stood:.1f} → {waits:.1f}")
    return ", ".join(found)


def _number(reading: Reading) -> float | None:
    return float(reading.value) if reading.is_known and isinstance(reading.value, int | float) else None
