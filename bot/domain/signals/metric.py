"""The engine metrics that the bot knows, under one name each, independent of the engine and its version.

A metric is a gauge, a counter or a histogram, which determines what a window may compute from it. Derived metrics are
computed from others of the same scrape and exist on no `/metrics` page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NamedTuple

from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Better


class Sample(NamedTuple):
    """One value of one series, as a page or a metrics store returns it: under the engine's own name."""

    name: str
    labels: Mapping[str, str]
    value: float


class Series(NamedTuple):
    """The values of one series over time, as a metrics store returns them."""

    name: str
    labels: Mapping[str, str]
    points: Iterable[tuple[float, float]]
    """Time and value."""


Shape = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True)
class Metric:
    """Declares one metric: everything that the language and its readers need to know about it."""

    shape: Shape
    unit: str
    """What it counts or measures; that of a share is `ratio`."""
    label: str = ""
    """What people read for it; empty: playbooks read it seldom, and its name is enough."""
    better: Better = ""
    is_share: bool = False
    """Shares of a whole: those of two ranks or replicas are compared, never added."""
    inputs: frozenset[str] = frozenset()
    """The metrics that a derived one is computed from; empty for one that a page has."""
    may_fall: bool = False
    """A counter that includes gauges: a lower value is not a restart."""


METRICS: Mapping[str, Metric] = {
    "kv_cache_usage_perc": Metric("gauge", "ratio", "KV cache in use", "lower", is_share=True),
    "num_requests_running": Metric("gauge", "requests", "Requests running"),
    "num_requests_waiting": Metric("gauge", "requests", "Requests waiting", "lower"),
    "num_gpu_blocks": Metric("gauge", "blocks"),
    "block_size": Metric("gauge", "tokens"),
    "num_preemptions": Metric("counter", "preemptions", "Preemptions", "lower"),
    "request_success": Metric("counter", "requests", "Requests finished", "higher"),
    "request_success_abort": Metric("counter", "requests"),
    "request_success_error": Metric("counter", "requests"),
    "admission_rejections": Metric("counter", "requests"),
    "prompt_tokens": Metric("counter", "tokens"),
    "generation_tokens": Metric("counter", "tokens", "Tokens generated", "higher"),
    "prefix_cache_queries": Metric("counter", "tokens"),
    "prefix_cache_hits": Metric("counter", "tokens"),
    "time_to_first_token_seconds": Metric("histogram", "s", "First token", "lower"),
    "inter_token_latency_seconds": Metric("histogram", "s", "Time per token", "lower"),
    "e2e_request_latency_seconds": Metric("histogram", "s", "Whole request", "lower"),
    "request_queue_time_seconds": Metric("histogram", "s", "Time in the queue", "lower"),
    "request_prefill_time_seconds": Metric("histogram", "s", "Prefill time", "lower"),
    "request_decode_time_seconds": Metric("histogram", "s", "Decode time", "lower"),
    "request_prompt_tokens": Metric("histogram", "tokens", "Prompt length"),
    "request_generation_tokens": Metric("histogram", "tokens", "Answer length"),
    "request_params_max_tokens": Metric("histogram", "tokens"),
    "free_blocks": Metric(
        "gauge", "blocks", "Free KV blocks", "higher", inputs=frozenset({"num_gpu_blocks", "kv_cache_usage_perc"})
    ),
    "usable_tokens": Metric(
        "gauge", "tokens", "Tokens that fit into the KV cache", "higher",
        inputs=frozenset({"num_gpu_blocks", "block_size", "kv_cache_size_tokens"}),
    ),
    "arrivals": Metric(
        "counter", "requests", "Requests arriving", may_fall=True,
        inputs=frozenset({"request_success", "num_requests_running", "num_requests_waiting"}),
    ),
    "tokens": Metric(
        "counter", "tokens", "Tokens", "higher", inputs=frozenset({"prompt_tokens", "generation_tokens"})
    ),
}  # fmt: skip
"""By the names that playbooks use: vLLM's own, without prefix and `_total`, and those of the derived metrics."""


def on_pages(shape: Shape) -> frozenset[str]:
    """The metrics of this shape that a page has."""
    return frozenset(name for name, metric in METRICS.items() if metric.shape == shape and not metric.inputs)


def on_the_page(metrics: frozenset[str]) -> frozenset[str]:
    """Returns the metrics to read from the page for these."""
    derived = {name: METRICS[name].inputs for name in metrics & METRICS.keys() if METRICS[name].inputs}
    return (metrics - derived.keys()).union(*derived.values())


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
        if not blocks or size is None:
            return None
        # With sliding windows or linear attention a token takes blocks of several kinds, and only the engine knows.
        tokens = values.get("kv_cache_size_tokens", size * blocks)
        # One block is reserved as the null block: 4,096 tokens of pool serve a request of at most 4,064.
        return tokens * (blocks - 1) // blocks
    if metric == "free_blocks":
        blocks, usage = values.get("num_gpu_blocks"), values.get("kv_cache_usage_perc")
        return None if blocks is None or usage is None else (1 - usage) * (blocks - 1)
    return values.get(metric)


def _sum_of(values: dict[str, float], *names: str) -> float | None:
    found = [values[name] for name in names if name in values]
    return sum(found) if len(found) == len(names) else None


def metric_fault(metric: str, *wanted: Shape) -> str:
    """Returns why this metric cannot be read as one of the wanted shapes; empty if it can."""
    if metric not in METRICS:
        near = get_close_matches(metric, METRICS, n=1)
        return f"unknown metric '{metric}'" + (f"; did you mean '{near[0]}'?" if near else "")
    if wanted and (shape := METRICS[metric].shape) not in wanted:
        return f"'{metric}' is a {shape}, not a {' or '.join(wanted)}"
    return ""


TAKES: Mapping[Shape, frozenset[str]] = {
    "counter": frozenset({"rate", "steady", "increase", "last"}),
    "gauge": frozenset({"last", "avg", "p50", "p90", "p99", "max", "min", "slope"}),
    "histogram": frozenset(),
}
"""What a window may compute from a metric's samples, by its shape."""
