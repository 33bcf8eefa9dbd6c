"""What people read for a signal whose author gave it no label: the metric in words, and what is special about it."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

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


METRICS = {
    "arrivals": Shown("Requests arriving"),
    "e2e_request_latency_seconds": Shown("Whole request", "lower"),
    "free_blocks": Shown("Free KV blocks", "higher"),
    "generation_tokens": Shown("Tokens generated", "higher"),
    "inter_token_latency_seconds": Shown("Time per token", "lower"),
    "kv_cache_usage_perc": Shown("KV cache in use", "lower"),
    "num_preemptions": Shown("Preemptions", "lower"),
    "num_requests_running": Shown("Requests running"),
    "num_requests_waiting": Shown("Requests waiting", "lower"),
    "request_decode_time_seconds": Shown("Decode time", "lower"),
    "request_generation_tokens": Shown("Answer length"),
    "request_prefill_time_seconds": Shown("Prefill time", "lower"),
    "request_prompt_tokens": Shown("Prompt length"),
    "request_queue_time_seconds": Shown("Time in the queue", "lower"),
    "request_success": Shown("Requests finished", "higher"),
    "time_to_first_token_seconds": Shown("First token", "lower"),
    "tokens": Shown("Tokens", "higher"),
    "usable_tokens": Shown("Tokens that fit into the KV cache", "higher"),
}
"""By the names that playbooks use; vLLM's own, without prefix and `_total`."""
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
            found, words = METRICS.get(spec.metric, Shown()), ""
        case RatioSignal():
            found, words = RATIOS.get(spec.ratio, Shown()), ""
        case MeanSignal():
            found, words = METRICS.get(spec.mean, Shown()), ""
        case QuantileSignal():
            found, words = METRICS.get(spec.histogram, Shown()), f" p{spec.quantile * 100:g}"
        case ShareSignal():
            # A share above its target is worse, whatever is measured.
            found, words = METRICS.get(spec.histogram, Shown())._replace(better="lower"), " slower than its target"
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
