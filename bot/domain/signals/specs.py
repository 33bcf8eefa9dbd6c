"""What an author may write under `signals`: which samples a reading uses, and how.

Durations are texts here (`90s`, `5m`, `2h`) or names of settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from bot.domain.kernel.strict import Strict
from bot.domain.signals.signal import Better

Take = Literal["last", "avg", "p50", "p90", "p99", "max", "min", "rate", "steady", "increase", "slope"]
Across = Literal["max", "min", "avg", "sum", "each"]
STARTS_AT = "incident.starts_at"
"""A time at which a window may end: the start of the alert."""


class _Signal(Strict):
    label: str = ""
    """What people read instead of its name: `Preemptions`. Known metrics have one."""
    better: Better = ""
    """Which way is better: people read `better` or `worse` where it moved. Known metrics have one."""


class MetricSignal(_Signal):
    """One engine metric: per replica and engine rank over the window first (`take`), then across replicas."""

    metric: str
    over: str = "5m"
    ending: str = ""
    """When the window ends: now where it is empty, else `incident.starts_at` or `results.<state>.<signal>`."""
    take: Take = "p90"
    across: Across = "max"
    """How the replicas' values are combined: the worst (`max`), `sum` …; `each` keeps one value per replica.

    A `sum` is unknown while a replica that should have samples has none.
    """
    of: str = "target"
    """`target`: replicas of the workload; `canary`: our canary; `picked.<name>`: that one replica."""
    unit: str = ""


class RatioSignal(_Signal):
    """The increase of one counter per increase of another, over the same window; 0/0 is unknown."""

    ratio: tuple[str, str]
    over: str = "5m"
    ending: str = ""
    across: Across = "sum"
    """`sum`: both sides summed over replicas first; `each`: of each replica its worst engine; `max`: the worst."""
    of: str = "target"
    unit: str = ""


class MeanSignal(_Signal):
    """The mean of a histogram's observations in the window: increase of its sum per increase of its count."""

    mean: str
    over: str = "30m"
    ending: str = ""
    of: str = "target"
    across: Across = "sum"
    at_equal_lengths: bool = False
    """For the time of whole requests, of each replica: divided by how much longer its requests need than the median's.

    First tokens take longer by longer prompts, the rest by longer answers. Shorter requests change nothing.
    """
    unit: str = ""


class QuantileSignal(_Signal):
    """A quantile of a histogram's observations in the window, over all replicas together."""

    quantile: float
    histogram: str
    over: str = "5m"
    ending: str = ""
    of: str = "target"
    unit: str = ""


class ShareSignal(_Signal):
    """The share of a histogram's observations above a target in the window: a burn rate is share / (1 - objective)."""

    share_above: float | str
    """The target in the histogram's unit: a number, a duration (`500ms`) or `settings.<name>`."""
    histogram: str
    """Which histogram's observations are counted."""
    over: str = "5m"
    ending: str = ""
    of: str = "target"
    unit: str = ""


class StallSignal(_Signal):
    """The sign of a full stall while preemptions are silent: running falls, waiting rises, nothing finishes."""

    stall: Literal["engine"]
    over: str = "60s"
    ending: str = ""
    of: str = "target"


OF_ENGINES = (MetricSignal, RatioSignal, MeanSignal, QuantileSignal, ShareSignal, StallSignal)
"""What is computed from the pages of the engines' metrics alone."""


def signal_kind(value: Any) -> str:
    return tag(value, SIGNAL_KINDS)


def tag(value: Any, kinds: Iterable[str]) -> str:
    """The tag of a union's member; in brackets, so that it never equals a key of a file."""
    fields = getattr(type(value), "model_fields", {})
    keys = value if isinstance(value, dict) else {field.alias or name for name, field in fields.items()}
    return next((f"({kind})" for kind in kinds if kind in keys), "()")


def comparable_kind(value: Any) -> str:
    return tag(value, COMPARABLE)


class ComparedSignal(_Signal):
    """A reading now per the same reading in the past at similar load: 1 is unchanged, 0.5 is half.

    The past is cut into windows as long as the reading's own (`over`). Those count in which as many requests arrived
    per second as now, give or take `load_within`; compared is with their median. No such load in the past is unknown.
    """

    compared: Annotated[
        Annotated[MetricSignal, Tag("(metric)")]
        | Annotated[RatioSignal, Tag("(ratio)")]
        | Annotated[MeanSignal, Tag("(mean)")]
        | Annotated[QuantileSignal, Tag("(histogram)")],
        Discriminator(comparable_kind),
    ]
    past: str = "24h"
    """How far the past reaches back. Without Prometheus an hour is kept."""
    ending: str = ""
    """When the past ends: where the present window begins, else `incident.starts_at` or `results.<state>.<signal>`."""
    load_within: float = Field(0.2, gt=0, lt=1)
    """The share by which arrivals may differ; 0.2 is ±20 %."""
    unit: str = ""

    @property
    def over(self) -> str:
        return self.compared.over

    @property
    def of(self) -> str:
        return self.compared.of


class ProbeSignal(_Signal):
    probe: str
    of: str = "target"
    parameters: dict[str, Any] = {}


COMPARABLE: dict[str, type[Strict]] = {
    "metric": MetricSignal,
    "ratio": RatioSignal,
    "mean": MeanSignal,
    "histogram": QuantileSignal,
}
"""Signals with one number, which can be compared."""
SIGNAL_KINDS: dict[str, type[Strict]] = {
    "metric": MetricSignal,
    "ratio": RatioSignal,
    "mean": MeanSignal,
    "share_above": ShareSignal,
    "histogram": QuantileSignal,
    "compared": ComparedSignal,
    "stall": StallSignal,
    "probe": ProbeSignal,
}
"""The key that identifies the kind of a signal. A share has a `histogram` too, so it comes before the quantile."""


SignalSpec = Annotated[
    Annotated[MetricSignal, Tag("(metric)")]
    | Annotated[RatioSignal, Tag("(ratio)")]
    | Annotated[MeanSignal, Tag("(mean)")]
    | Annotated[ShareSignal, Tag("(share_above)")]
    | Annotated[QuantileSignal, Tag("(histogram)")]
    | Annotated[ComparedSignal, Tag("(compared)")]
    | Annotated[StallSignal, Tag("(stall)")]
    | Annotated[ProbeSignal, Tag("(probe)")],
    Discriminator(signal_kind),
]
