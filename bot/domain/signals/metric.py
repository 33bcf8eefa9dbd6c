"""The engine metrics that the bot knows, under one name each, independent of the engine and its version.

A metric is a gauge, a counter or a histogram, which determines what a window may compute from it. Derived metrics are
computed from others of the same scrape and exist on no `/metrics` page.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, NamedTuple

from bot.domain.signals.scrape import Scrape


class Sample(NamedTuple):
    """One value of one series, as a page or a metrics store returns it: under the engine's own name."""

    name: str
    labels: Mapping[str, str]
    value: float


Shape = Literal["gauge", "counter", "histogram"]

GAUGES = frozenset(
    {
        "kv_cache_usage_perc",
        "num_requests_running",
        "num_requests_waiting",
        "num_gpu_blocks",
        "block_size",
    }
)
COUNTERS = frozenset(
    {
        "num_preemptions",
        "request_success",
        "request_success_abort",
        "request_success_error",
        "admission_rejections",
        "prompt_tokens",
        "generation_tokens",
        "prefix_cache_queries",
        "prefix_cache_hits",
    }
)
HISTOGRAMS = frozenset(
    {
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_params_max_tokens",
    }
)
DERIVED: dict[str, frozenset[str]] = {
    "free_blocks": frozenset({"num_gpu_blocks", "kv_cache_usage_perc"}),
    "usable_tokens": frozenset({"num_gpu_blocks", "block_size"}),
    "arrivals": frozenset({"request_success", "num_requests_running", "num_requests_waiting"}),
    "tokens": frozenset({"prompt_tokens", "generation_tokens"}),
}
"""The inputs of each derived metric."""
DERIVED_GAUGES = frozenset({"free_blocks", "usable_tokens"})
DERIVED_COUNTERS = frozenset({"arrivals", "tokens"})
MAY_FALL = frozenset({"arrivals"})
"""Counters that include gauges: a lower value is not a restart."""

UNITS: dict[str, str] = {
    **dict.fromkeys(("num_gpu_blocks", "free_blocks"), "blocks"),
    **dict.fromkeys(("block_size", "usable_tokens", "prompt_tokens", "generation_tokens", "tokens"), "tokens"),
    **dict.fromkeys(("prefix_cache_queries", "prefix_cache_hits"), "tokens"),
    **dict.fromkeys(("request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens"), "tokens"),
    **dict.fromkeys(("num_requests_running", "num_requests_waiting", "arrivals", "admission_rejections"), "requests"),
    **dict.fromkeys(("request_success", "request_success_abort", "request_success_error"), "requests"),
    **dict.fromkeys(("time_to_first_token_seconds", "inter_token_latency_seconds"), "s"),
    **dict.fromkeys(("e2e_request_latency_seconds", "request_queue_time_seconds"), "s"),
    **dict.fromkeys(("request_prefill_time_seconds", "request_decode_time_seconds"), "s"),
    "num_preemptions": "preemptions",
    "kv_cache_usage_perc": "ratio",
}
"""What each metric counts or measures; the unit of a share is `ratio`."""

FRACTIONS = frozenset({"kv_cache_usage_perc"})
"""Shares of a whole: those of two ranks or replicas are compared, never added."""

SHAPES: dict[str, Shape] = {
    **dict.fromkeys(GAUGES | DERIVED_GAUGES, "gauge"),
    **dict.fromkeys(COUNTERS | DERIVED_COUNTERS, "counter"),
    **dict.fromkeys(HISTOGRAMS, "histogram"),
}


def on_the_page(metrics: frozenset[str]) -> frozenset[str]:
    """Returns the metrics to read from the page for these."""
    return frozenset[str]().union(*(DERIVED.get(metric, {metric}) for metric in metrics))


def value_of(scrape: Scrape, rank: str, metric: str) -> float | None:
    """Returns the metric's value on one engine rank, derived ones included; None if a part of it is absent."""
    values = scrape.ranks.get(rank, {})
    if metric == "arrivals":
        # Not a counter: every arrived request has finished, runs or waits, so their sum counts arrivals.
        return _sum_of(values, "request_success", "num_requests_running", "num_requests_waiting")
    if metric == "tokens":
        return _sum_of(values, "prompt_tokens", "generation_tokens")
    if metric == "usable_tokens":
        blocks, size = values.get("num_gpu_blocks"), values.get("block_size")
        # One block is reserved as the null block: 4,096 tokens of pool serve a request of at most 4,064.
        return None if blocks is None or size is None else size * (blocks - 1)
    if metric == "free_blocks":
        blocks, usage = values.get("num_gpu_blocks"), values.get("kv_cache_usage_perc")
        return None if blocks is None or usage is None else (1 - usage) * (blocks - 1)
    return values.get(metric)


def _sum_of(values: dict[str, float], *names: str) -> float | None:
    found = [values[name] for name in names if name in values]
    return sum(found) if len(found) == len(names) else None


def metric_fault(metric: str, *wanted: Shape) -> str:
    """Returns why this metric cannot be read as one of the wanted shapes; empty if it can."""
    shape = SHAPES.get(metric)
    if shape is None:
        near = get_close_matches(metric, SHAPES, n=1)
        return f"unknown metric '{metric}'" + (f"; did you mean '{near[0]}'?" if near else "")
    if wanted and shape not in wanted:
        return f"'{metric}' is a {shape}, not a {' or '.join(wanted)}"
    return ""


TAKES: dict[str, frozenset[str]] = {
    "counter": frozenset({"rate", "steady", "increase", "last"}),
    "gauge": frozenset({"last", "avg", "p50", "p90", "p99", "max", "min", "slope"}),
    "histogram": frozenset(),
}
"""What a window may compute from a metric's samples, by its shape."""
