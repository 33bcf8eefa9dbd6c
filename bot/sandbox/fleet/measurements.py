"""What an engine counts while it runs: counters, and histograms with vLLM 0.32's buckets.

A container's measurements start at zero and never go down; a restart makes a new object.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
STEP_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
NEXT_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
WHOLE_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
HTTP_FINE = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    *(7.5, 10.0, 30.0, 60.0),
)
HTTP_COARSE = (0.1, 0.5, 1.0)

HISTOGRAMS: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "vllm:request_prompt_tokens": TOKENS,
        "vllm:request_generation_tokens": TOKENS,
        "vllm:iteration_tokens_total": STEP_TOKENS,
        "vllm:request_max_num_generation_tokens": TOKENS,
        "vllm:request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
        "vllm:request_params_max_tokens": TOKENS,
        "vllm:time_to_first_token_seconds": FIRST_TOKEN,
        "vllm:inter_token_latency_seconds": NEXT_TOKEN,
        "vllm:request_time_per_output_token_seconds": NEXT_TOKEN,
        "vllm:e2e_request_latency_seconds": WHOLE_REQUEST,
        "vllm:request_queue_time_seconds": WHOLE_REQUEST,
        "vllm:request_inference_time_seconds": WHOLE_REQUEST,
        "vllm:request_prefill_time_seconds": WHOLE_REQUEST,
        "vllm:request_decode_time_seconds": WHOLE_REQUEST,
        "vllm:request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
        "vllm:request_prefill_kv_computed_tokens": TOKENS,
        "http_request_duration_highr_seconds": HTTP_FINE,
        "http_request_duration_seconds": HTTP_COARSE,
    }
)


class Histogram:
    """Counts by upper bound; `observe` takes many equal observations at once."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)


class Measurements:
    """One engine's counters and histograms, by the names under which vLLM exposes them."""

    def __init__(self) -> None:
        self.preemptions = 0
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.rejected = 0
        self.histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAMS.items()}

    def observe(self, name: str, value: float, times: int = 1) -> None:
        self.histograms[name].observe(value, times)

    @property
    def finished_requests(self) -> int:
        return sum(self.finished.values())
