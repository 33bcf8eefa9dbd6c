"""The text of `/metrics`, as vLLM 0.32 writes it: the same families, HELP, TYPE, labels, buckets, in the same order.

A test compares it with a scrape of the real server through prometheus_client's own parser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from bot.sandbox.fleet.engine import Engine
from bot.sandbox.fleet.measurements import Histogram, Measurements

NO_LABELS: Mapping[str, str] = {}
_number: Callable[[float], str] = floatToGoString


class Page:
    """Writes families in the text format, with the `_created` gauges that prometheus_client adds."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def gauge(self, name: str, about: str, *series: tuple[Mapping[str, str], float]) -> None:
        self._family(name, "gauge", about)
        for labels, value in series:
            self._lines.append(f"{name}{_braces(labels)} {_number(value)}")

    def counter(
        self,
        name: str,
        about: str,
        *series: tuple[Mapping[str, str], float],
        created: float | None = None,
    ) -> None:
        self._family(f"{name}_total", "counter", about)
        for labels, value in series:
            self._lines.append(f"{name}_total{_braces(labels)} {_number(value)}")
        self._created(name, about, [labels for labels, _ in series], created)

    def histogram(
        self,
        name: str,
        about: str,
        *series: tuple[Mapping[str, str], Histogram],
        created: float,
    ) -> None:
        self._family(name, "histogram", about)
        for labels, histogram in series:
            key = tuple(sorted(labels.items()))
            below = 0
            for prefix, count in zip(_bucket_names(name, histogram.bounds, key), histogram.counts, strict=True):
                below += count
                self._lines.append(f"{prefix} {below}.0")
            braces = _braces(labels)
            self._lines.append(f"{name}_count{braces} {below}.0")
            self._lines.append(f"{name}_sum{braces} {_number(histogram.sum)}")
        self._created(name, about, [labels for labels, _ in series], created)

    def summary(self, name: str, about: str, *series: tuple[Mapping[str, str], int, float], created: float) -> None:
        self._family(name, "summary", about)
        for labels, count, total in series:
            self._lines.append(f"{name}_count{_braces(labels)} {count}.0")
            self._lines.append(f"{name}_sum{_braces(labels)} {_number(total)}")
        self._created(name, about, [labels for labels, _, _ in series], created)

    def _family(self, name: str, kind: str, about: str) -> None:
        self._lines.append(f"# HELP {name} {about}")
        self._lines.append(f"# TYPE {name} {kind}")

    def _created(self, name: str, about: str, labels: list[Mapping[str, str]], created: float | None) -> None:
        if created is None or not labels:
            return
        self.gauge(f"{name}_created", about, *((one, created) for one in labels))


def _braces(labels: Mapping[str, str]) -> str:
    return _rendered(tuple(sorted(labels.items())))


@lru_cache(maxsize=2048)
def _rendered(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@lru_cache(maxsize=2048)
def _bucket_names(name: str, bounds: tuple[float, ...], labels: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    limits = [*(_number(bound) for bound in bounds), "+Inf"]
    return tuple(f"{name}_bucket{_braces({**dict(labels), 'le': limit})}" for limit in limits)


@dataclass(slots=True)
class HttpCounts:
    """Counts of vLLM's HTTP middleware; /metrics and /health are left out there as here."""

    answers: Counter[str] = field(default_factory=Counter)
    request_bytes: float = 0.0
    first_request_at: float = 0.0

    def note(self, status: int, request_bytes: int, seconds: float, now: float, into: Measurements) -> None:
        self.first_request_at = self.first_request_at or now
        self.answers[f"{status // 100}xx"] += 1
        self.request_bytes += request_bytes
        into.observe("http_request_duration_highr_seconds", seconds)
        into.observe("http_request_duration_seconds", seconds)


@dataclass(frozen=True, slots=True)
class Server:
    """The facts about one API server process that its metrics contain."""

    model_name: str
    process_started_at: float
    engine_created_at: float
    cache_config: Mapping[str, str]


def metrics_text(engine: Engine, server: Server, http: HttpCounts, now: float) -> str:
    page = Page()
    _process(page, server, now)
    labels = {"engine": "0", "model_name": server.model_name}
    _flops(page, labels, server.engine_created_at)
    _scheduler(page, engine, labels)
    _caches(page, engine.measured, labels, server.engine_created_at)
    _tokens(page, engine.measured, labels, server.engine_created_at)
    _outcomes(page, engine.measured, labels, server.engine_created_at)
    _requests(page, engine.measured, labels, server.engine_created_at)
    page.gauge(
        "vllm:cache_config_info",
        "Information of the LLMEngine CacheConfig",
        ({**server.cache_config, "engine": "0"}, 1.0),
    )
    _http(page, engine.measured, http, server)
    return page.text()


def _process(page: Page, server: Server, now: float) -> None:
    up = max(0.0, now - server.process_started_at)
    generations = ("0", "1", "2")
    for name, about, values in (
        ("python_gc_objects_collected", "Objects collected during gc", (15724.0, 1901.0, 637.0)),
        ("python_gc_objects_uncollectable", "Uncollectable objects found during GC", (0.0, 0.0, 0.0)),
        (
            "python_gc_collections",
            "Number of times this generation was collected",
            (1561.0 + up // 5, 142.0 + up // 50, 10.0),
        ),
    ):
        series = zip(({"generation": g} for g in generations), values, strict=True)
        page.counter(name, about, *series)
    python = {
        "implementation": "CPython",
        "major": "3",
        "minor": "11",
        "patchlevel": "7",
        "version": "3.11.7",
    }
    page.gauge("python_info", "Python platform information", (python, 1.0))
    for name, about, value in (
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", 2138677248.0),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", 648581120.0),
        (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            server.process_started_at,
        ),
    ):
        page.gauge(name, about, (NO_LABELS, value))
    cpu_seconds = round(6.5 + 0.1 * up, 2)
    page.counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.", (NO_LABELS, cpu_seconds))
    page.gauge("process_open_fds", "Number of open file descriptors.", (NO_LABELS, 34.0))
    page.gauge("process_max_fds", "Maximum number of open file descriptors.", (NO_LABELS, 20000.0))


def _flops(page: Page, labels: Mapping[str, str], created: float) -> None:
    why = "per GPU (for Model Flops Utilization calculations)."
    for name, about in (
        ("flops", f"Estimated number of floating point operations {why}"),
        ("read_bytes", f"Estimated number of bytes read from memory {why}"),
        ("write_bytes", f"Estimated number of bytes written to memory {why}"),
    ):
        page.counter(f"vllm:estimated_{name}_per_gpu", about, (labels, 0.0), created=created)


def _scheduler(page: Page, engine: Engine, labels: Mapping[str, str]) -> None:
    waiting = float(len(engine.waiting))
    page.gauge(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        (labels, float(len(engine.running))),
    )
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", (labels, waiting))
    page.gauge(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        ({**labels, "reason": "capacity"}, waiting),
        ({**labels, "reason": "deferred"}, 0.0),
    )
    page.gauge(
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        ({**labels, "sleep_state": "awake"}, 1.0),
        ({**labels, "sleep_state": "weights_offloaded"}, 0.0),
        ({**labels, "sleep_state": "discard_all"}, 0.0),
    )
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", (labels, engine.usage))


def _caches(page: Page, measured: Measurements, labels: Mapping[str, str], created: float) -> None:
    external = "External prefix cache {} from KV connector cross-instance cache sharing, in terms of number of {}."
    for name, about, value in (
        (
            "prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            measured.prompt_tokens,
        ),
        (
            "prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            measured.cached_prompt_tokens,
        ),
        ("external_prefix_cache_queries", external.format("queries", "queried tokens"), 0),
        ("external_prefix_cache_hits", external.format("hits", "cached tokens"), 0),
        ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", 0),
        ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", 0),
        ("num_preemptions", "Cumulative number of preemption from the engine.", measured.preemptions),
        ("prompt_tokens", "Number of prefill tokens processed.", measured.prompt_tokens),
    ):
        page.counter(f"vllm:{name}", about, (labels, float(value)), created=created)


def _tokens(page: Page, measured: Measurements, labels: Mapping[str, str], created: float) -> None:
    cached = float(measured.cached_prompt_tokens)
    page.counter(
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        ({**labels, "source": "local_compute"}, measured.prompt_tokens - cached),
        ({**labels, "source": "local_cache_hit"}, cached),
        ({**labels, "source": "external_kv_transfer"}, 0.0),
        created=created,
    )
    page.counter(
        "vllm:prompt_tokens_cached",
        "Number of cached prompt tokens (local + external).",
        (labels, cached),
        created=created,
    )
    tiers = ("device", "host", "p2p", "disk", "external_unspecified")
    page.counter(
        "vllm:prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to "
        "DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at "
        "admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        *(({**labels, "source": tier}, cached if tier == "device" else 0.0) for tier in tiers),
        created=created,
    )
    page.counter(
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        (labels, float(measured.generation_tokens)),
        created=created,
    )


def _outcomes(page: Page, measured: Measurements, labels: Mapping[str, str], created: float) -> None:
    reasons = ("stop", "length", "abort", "error", "repetition")
    page.counter(
        "vllm:request_success",
        "Count of successfully processed requests.",
        *(({**labels, "finished_reason": reason}, float(measured.finished[reason])) for reason in reasons),
        created=created,
    )
    model = {"model_name": labels["model_name"]}
    page.counter(
        "vllm:admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        ({**model, "reason": "max_num_queued_reqs"}, float(measured.rejected)),
        ({**model, "reason": "max_num_queued_tokens"}, 0.0),
        created=created,
    )


REQUEST_HISTOGRAMS = {
    "vllm:request_prompt_tokens": "Number of prefill tokens processed.",
    "vllm:request_generation_tokens": "Number of generation tokens processed.",
    "vllm:iteration_tokens_total": "Histogram of number of tokens per engine_step.",
    "vllm:request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "vllm:request_params_n": "Histogram of the n request parameter.",
    "vllm:request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "vllm:time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "vllm:inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "vllm:request_time_per_output_token_seconds": ("Histogram of time_per_output_token_seconds per request."),
    "vllm:e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "vllm:request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "vllm:request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "vllm:request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "vllm:request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "vllm:request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "vllm:request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
    ),
}


def _requests(page: Page, measured: Measurements, labels: Mapping[str, str], created: float) -> None:
    for name, about in REQUEST_HISTOGRAMS.items():
        page.histogram(name, about, (labels, measured.histograms[name]), created=created)


def _http(page: Page, measured: Measurements, http: HttpCounts, server: Server) -> None:
    handler = {"handler": "/v1/completions"}
    posted = {**handler, "method": "POST"}
    seen = sum(http.answers.values())
    first = http.first_request_at
    page.counter(
        "http_requests",
        "Total number of requests by method, status and handler.",
        *(({**posted, "status": status}, float(count)) for status, count in sorted(http.answers.items())),
        created=first,
    )
    size = (
        "Content length of {} by handler. Only value of header is respected. "
        "Otherwise ignored. No percentile calculated. "
    )
    sizes = {"request": ("incoming requests", http.request_bytes), "response": ("outgoing responses", 0.0)}
    for which, (what, total) in sizes.items():
        series = [(handler, seen, total)] if seen else []
        page.summary(f"http_{which}_size_bytes", size.format(what), *series, created=first)
    page.histogram(
        "http_request_duration_highr_seconds",
        "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
        (NO_LABELS, measured.histograms["http_request_duration_highr_seconds"]),
        created=server.engine_created_at,
    )
    coarse = measured.histograms["http_request_duration_seconds"]
    page.histogram(
        "http_request_duration_seconds",
        "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
        *([(posted, coarse)] if seen else []),
        created=first,
    )
