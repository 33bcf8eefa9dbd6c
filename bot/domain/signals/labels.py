"""What people read for a signal whose author gave it no label: the metric in words, and what is special about it."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from bot.domain.signals.metric import METRICS
from bot.domain.signals.probe_spec import Probes
from bot.domain.signals.signal import Better
from bot.domain.signals.specs import (
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
)

NO_PROBES: Probes = MappingProxyType({})


class Shown(NamedTuple):
    label: str = ""
    better: Better = ""


RATIOS = {
    ("num_preemptions", "request_success"): Shown("Preemptions", "lower"),
    ("prefix_cache_hits", "prefix_cache_queries"): Shown("Prefix cache hits", "higher"),
}
CANARY, BEFORE, AVERAGE = " (canary)", " (before)", " (average replica)"


def words_for(spec: SignalSpec, probes: Probes = NO_PROBES) -> Shown:
    """Returns its own label and direction, else those of its metric or probe; empty for one that has none."""
    usual = _usual(spec, probes)
    return Shown(spec.label or usual.label, spec.better or usual.better)


def _usual(spec: SignalSpec, probes: Probes) -> Shown:
    match spec:
        case MetricSignal():
            found, words = _of_metric(spec.metric), ""
        case RatioSignal():
            found, words = RATIOS.get(spec.ratio, Shown()), ""
        case MeanSignal():
            found, words = _of_metric(spec.mean), ""
        case QuantileSignal():
            found, words = _of_metric(spec.histogram), f" p{spec.quantile * 100:g}"
        case ShareSignal():
            # A share above its target is worse, whatever is measured.
            found, words = _of_metric(spec.histogram)._replace(better="lower"), " slower than its target"
        case ComparedSignal():
            found, words = _usual(spec.compared, probes), " against before"
        case ProbeSignal():
            label = probes[spec.probe].label if spec.probe in probes else ""
            return Shown(label + CANARY * bool(label and spec.of == "canary"))
        case _:
            return Shown()
    if not found.label:
        return Shown()
    of = CANARY if spec.of == "canary" else AVERAGE if getattr(spec, "across", "") == "avg" else ""
    return Shown(found.label + words + of + BEFORE * bool(spec.ending), found.better)


def _of_metric(name: str) -> Shown:
    metric = METRICS.get(name)
    return Shown(metric.label, metric.better) if metric is not None else Shown()
