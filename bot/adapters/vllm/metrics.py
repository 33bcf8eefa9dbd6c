"""From vLLM's `/metrics` text to a scrape: one name for each metric, versions 0.5 to 0.33, V0 and V1, Ray and KServe.

A metric that the page lacks is absent. A twin of a metric under another name never adds to it, and neither does a
router's copy.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

from bot.domain.signals.metric import METRICS, Sample, on_pages, on_the_page
from bot.domain.signals.scrape import BY_MODEL, Histogram, Scrape
from bot.flow.ports import Replica

PREFIX = r"(?:ray_|kserve_)?vllm[:_]"
ALIASES = {
    # V0 and V1 to 0.11 used names with GPU in them; both names are on the page of 0.9 to 0.10.
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "gpu_prefix_cache_hits": "prefix_cache_hits",
    "gpu_prefix_cache_queries": "prefix_cache_queries",
    # Renamed in 0.12, hidden at once, removed in 0.15.
    "time_per_output_token_seconds": "inter_token_latency_seconds",
}
CONFIG = "cache_config_info"
CONFIG_LABELS = ("block_size", "num_gpu_blocks", "cache_dtype", "gpu_memory_utilization", "kv_cache_size_tokens")
"""The labels to keep: there are 45 by now, and they change with every release."""
GAUGES, COUNTERS, HISTOGRAMS = on_pages("gauge"), on_pages("counter"), on_pages("histogram")
NUMBERS = GAUGES | COUNTERS
START = "process_start_time_seconds"
MODEL_LABELS = ("model_name", "lora_name")
"""What a page may tell apart: most name one model, and no adapter."""

T = TypeVar("T")
_PREFIX = re.compile(PREFIX)
SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


def series_pattern(metrics: frozenset[str]) -> str:
    """A regular expression (RE2 too) for the series names of these metrics, and of those that are always needed."""
    bases = {CONFIG} | {_page_name(metric) for metric in on_the_page(metrics)}
    bases |= {old + part for old, new in ALIASES.items() for part in ("", "_sum", "_count") if new + part in bases}
    return f"(?:{PREFIX}(?:{'|'.join(sorted(bases))})(?:_total|_bucket|_sum|_count)?|{START})"


def _page_name(metric: str) -> str:
    """The metric's name on the page: some metrics are labels of another."""
    if metric in ("num_gpu_blocks", "block_size"):
        return CONFIG
    return "request_success" if metric.startswith("request_success") else metric


_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*|$)')
_ESCAPED = re.compile(r"\\(.)")
_WANTED_LINE = re.compile(rf"^{series_pattern(GAUGES | COUNTERS | HISTOGRAMS)}[{{ ].*$", re.MULTILINE)


def parse(text: str) -> list[Sample]:
    """The finite samples that the bot reads. Raises `ValueError` for a line that is not in the text format.

    A fleet of 200 has 10 MB of pages: only the wanted lines are parsed, and the library takes four times as long.
    """
    samples = (_sample(line) for line in _WANTED_LINE.findall(text))
    return [sample for sample in samples if math.isfinite(sample.value)]


def _sample(line: str) -> Sample:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(line[:120])
    return Sample(found[1], _labels(found[2] or ""), float(found[3]))


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise ValueError(text[:120])
        labels[found[1]] = _ESCAPED.sub(_unescaped, found[2]) if "\\" in found[2] else found[2]
        at = found.end()
    return labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def scrape_of(samples: Iterable[Sample], replica: Replica, at: float) -> Scrape | None:
    """One replica's scrape at one moment; None if none of the samples is vLLM's."""
    samples = list(samples)
    counted = _counted(frozenset(sample.name for sample in samples))
    found = _Found()
    started_at: float | None = None
    for sample in samples:
        if sample.name == START:
            started_at = sample.value
        elif sample.name in counted:
            found.take(sample)
    if not found.values and not found.histograms:
        return None
    return Scrape(
        replica=replica.name,
        uid=replica.uid,
        at=at,
        started_at=started_at,
        role=replica.role,
        in_rotation=replica.in_rotation,
        ranks=_resolved(found.values),
        histograms=_resolved(found.histograms_as_values()),
        models=found.models_as_values(),
        config=found.config,
    )


class _Found:
    """Samples sorted by engine rank and by the name on the page, before old names give way to new ones."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float]] = defaultdict(dict)
        self.histograms: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        self.models: dict[str, dict[str, float]] = defaultdict(dict)
        self.config: dict[str, str] = {}

    def take(self, sample: Sample) -> None:
        # The production-stack router republishes its servers' gauges under the same names.
        if "server" in sample.labels:
            return
        rank = sample.labels.get("engine", "0")
        _, base, suffix = _split(sample.name)
        if base == CONFIG:
            self._take_config(sample.labels, rank)
            return
        resolved = ALIASES.get(base, base)
        if resolved in HISTOGRAMS:
            key = f"le={sample.labels['le']}" if suffix == "bucket" and "le" in sample.labels else suffix
            parts = self.histograms[rank][base]
            parts[key] = parts.get(key, 0.0) + sample.value
            if resolved == BY_MODEL and suffix in ("sum", "count"):
                model = "/".join(filter(None, (sample.labels.get(label, "") for label in MODEL_LABELS)))
                self.models[model][suffix] = self.models[model].get(suffix, 0.0) + sample.value
        elif resolved in NUMBERS:
            self._add(rank, base, sample.value)
            reason = sample.labels.get("finished_reason", "")
            if f"{base}_{reason}" in COUNTERS:
                self._add(rank, f"{base}_{reason}", sample.value)

    def _add(self, rank: str, name: str, value: float) -> None:
        known = self.values[rank].get(name)
        metric = METRICS.get(ALIASES.get(name, name))
        shared = metric is not None and metric.is_share
        self.values[rank][name] = value if known is None else max(known, value) if shared else known + value

    def _take_config(self, labels: Mapping[str, str], rank: str) -> None:
        kept = {name: labels[name] for name in CONFIG_LABELS if labels.get(name, "None") != "None"}
        self.config = self.config or kept
        for name in ("num_gpu_blocks", "block_size"):
            if kept.get(name, "").isdigit():
                self.values[rank][name] = float(kept[name])

    def histograms_as_values(self) -> dict[str, dict[str, Histogram]]:
        return {
            rank: {base: _histogram(parts) for base, parts in by_base.items()}
            for rank, by_base in self.histograms.items()
        }

    def models_as_values(self) -> dict[str, Histogram]:
        """Empty for a single model: it is the replica itself."""
        return {name: _histogram(parts) for name, parts in self.models.items()} if len(self.models) > 1 else {}


@lru_cache(maxsize=1024)
def _split(series: str) -> tuple[str, str, str]:
    """The prefix, the name, and the suffix of its kind of series. Of many samples few names.

    `_created` is a time, not a value, and stays unknown.
    """
    found = _PREFIX.match(series)
    prefix, name = (found[0], series[found.end() :]) if found else ("", series)
    kind = SUFFIX.search(name)
    return (prefix, name[: kind.start()], kind[1]) if kind else (prefix, name, "")


@lru_cache(maxsize=256)
def _counted(names: frozenset[str]) -> frozenset[str]:
    """One of the series that have the same values under several names.

    Ray exports each counter with `_total` and, as a gauge, without; a relabelling may copy a series to another prefix.
    """
    best: dict[tuple[str, str], tuple[bool, int, str]] = {}
    for name in names:
        prefix, base, suffix = _split(name)
        same = (base, "" if suffix == "total" else suffix)
        spelled = (suffix != "total", len(prefix), name)
        best[same] = min(spelled, best.get(same, spelled))
    return frozenset(name for _, _, name in best.values())


def _histogram(parts: Mapping[str, float]) -> Histogram:
    buckets = {key.removeprefix("le="): value for key, value in parts.items() if key.startswith("le=")}
    return Histogram(buckets=buckets, sum=parts.get("sum", 0.0), count=parts.get("count", 0.0))


def _resolved(found: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """Old names become new ones if those are absent; if both are on the page they carry the same value."""
    return {
        rank: {
            **{ALIASES[name]: value for name, value in by_name.items() if name in ALIASES},
            **{name: value for name, value in by_name.items() if name not in ALIASES},
        }
        for rank, by_name in found.items()
    }
