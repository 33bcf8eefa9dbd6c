"""From vLLM's `/metrics` text to a scrape: one name for each metric, versions 0.5 to 0.33, V0 and V1, Ray and KServe.

A metric that the page lacks is absent. A twin of a metric under another name never adds to it, and neither does a
router's copy.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from bot.domain.signals.metric import METRICS, Sample, Series, on_pages, on_the_page
from bot.domain.signals.scrape import OF_REQUESTS, Histogram, Scrape
from bot.flow.ports.cluster import Replica

PREFIX = r"(?:ray_|kserve_)?vllm[:_]"
ALIASES = {
    # V0 and V1 to 0.11 used names with GPU in them; both names are on the page of 0.9 to 0.10.
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "gpu_prefix_cache_hits": "prefix_cache_hits",
    "gpu_prefix_cache_queries": "prefix_cache_queries",
    # Renamed in 0.12, hidden at once, removed in 0.15.
    "time_per_output_token_seconds": "inter_token_latency_seconds",
}
CONFIG, RUNNING = "cache_config_info", "num_requests_running"
ON_CONFIG = ("block_size", "num_gpu_blocks", "kv_cache_size_tokens")
"""Its labels that are numbers."""
CONFIG_LABELS = (*ON_CONFIG, "cache_dtype", "gpu_memory_utilization")
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
    if not set(ON_CONFIG).isdisjoint(on_the_page(metrics)):
        bases.add(RUNNING)  # it tells how many engines share the blocks
    bases |= {old + part for old, new in ALIASES.items() for part in ("", "_sum", "_count") if new + part in bases}
    return f"(?:{PREFIX}(?:{'|'.join(sorted(bases))})(?:_total|_bucket|_sum|_count)?|{START})"


def _page_name(metric: str) -> str:
    """The metric's name on the page: some metrics are labels of another."""
    if metric in ON_CONFIG:
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
    made = scrapes_of([Series(one.name, one.labels, ((at, one.value),)) for one in samples], replica)
    return made[0] if made else None


def scrapes_of(series: Iterable[Series], replica: Replica) -> list[Scrape]:
    """One replica's scrapes, oldest first; none for a time at which none of the samples is vLLM's.

    A day of a fleet has millions of samples of some thousand series: what a series means is found out once.
    """
    pages: dict[float, _Found] = defaultdict(_Found)
    found = list(series)
    if copies := _copies(frozenset([one.name for one in found])):
        found.sort(key=lambda one: _spelled(one.name)[1])
    for name, labels, points in found:
        # The production-stack router republishes its servers' gauges under the same names.
        if "server" in labels or (put := _placed(name, labels)) is None:
            continue
        copied = copies.get(name)
        for at, value in points:
            page = pages[at]
            if copied is None or page.names.setdefault(copied, name) == name:
                put(page, value)
    return [_scrape(page, replica, at) for at, page in sorted(pages.items()) if page.values or page.histograms]


def _scrape(page: _Found, replica: Replica, at: float) -> Scrape:
    page.share_blocks()
    return Scrape(
        replica=replica.name,
        uid=replica.uid,
        at=at,
        started_at=page.started_at,
        role=replica.role,
        in_rotation=replica.in_rotation,
        ranks=_resolved(page.values),
        histograms=_resolved(page.histograms_as_values()),
        by_model=page.by_model_as_values(),
        config=page.config,
    )


_Copied = tuple[str, str]
"""The name and the suffix that several series share."""


@lru_cache(maxsize=256)
def _copies(names: frozenset[str]) -> Mapping[str, _Copied]:
    """Of series that have the same values under several names: what these share.

    Ray exports each counter with `_total` and, as a gauge, without; a relabelling may copy a series to another prefix.
    """
    same = {name: _spelled(name)[0] for name in names}
    shared = Counter(same.values())
    return {name: what for name, what in same.items() if shared[what] > 1}


@lru_cache(maxsize=1024)
def _spelled(name: str) -> tuple[_Copied, tuple[bool, int, str]]:
    prefix, base, suffix = _split(name)
    return (base, "" if suffix == "total" else suffix), (suffix != "total", len(prefix), name)


def _placed(name: str, labels: Mapping[str, str]) -> Callable[[_Found, float], None] | None:
    """Puts a value of this series where it belongs on a page; None: the bot does not read it."""
    if name == START:
        return _Found.start
    rank = labels.get("engine", "0")
    _, base, suffix = _split(name)
    if base == CONFIG:
        return lambda page, _: page.take_config(labels, rank)
    resolved = ALIASES.get(base, base)
    if resolved in HISTOGRAMS:
        if suffix == "bucket" and (bound := labels.get("le")) is not None:
            if not _is_number(bound):
                return None
            return lambda page, value: _add(page.histograms[rank][base].buckets, bound, value)
        model = None
        if resolved in OF_REQUESTS:
            model = "/".join(filter(None, (labels.get(label, "") for label in MODEL_LABELS)))
        return lambda page, value: page.observe(rank, base, suffix, value, model)
    if resolved not in NUMBERS:
        return None
    names = [base, of_reason] if (of_reason := f"{base}_{labels.get('finished_reason', '')}") in COUNTERS else [base]
    is_share = resolved in METRICS and METRICS[resolved].is_share
    return lambda page, value: page.add(rank, names, value, is_share=is_share)


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


class _Counts:
    """One histogram, or its sum and count alone."""

    __slots__ = ("buckets", "totals")

    def __init__(self) -> None:
        self.buckets: dict[str, float] = {}
        self.totals: dict[str, float] = {}

    def histogram(self) -> Histogram:
        return Histogram(buckets=self.buckets, sum=self.totals.get("sum"), count=self.totals.get("count"))


def _histograms(found: Mapping[str, Mapping[str, _Counts]]) -> dict[str, dict[str, Histogram]]:
    return {key: {base: counts.histogram() for base, counts in by_base.items()} for key, by_base in found.items()}


def _add(values: dict[str, float], name: str, value: float) -> None:
    values[name] = values.get(name, 0.0) + value


class _Found:
    """The values of one page by engine rank and by the name on it, before old names give way to new ones."""

    def __init__(self) -> None:
        self.names: dict[_Copied, str] = {}
        """Which of several names is read of this page."""
        self.started_at: float | None = None
        self.values: dict[str, dict[str, float]] = defaultdict(dict)
        self.histograms: dict[str, dict[str, _Counts]] = defaultdict(lambda: defaultdict(_Counts))
        self.by_model: dict[str, dict[str, _Counts]] = defaultdict(lambda: defaultdict(_Counts))
        self.config: dict[str, str] = {}

    def start(self, value: float) -> None:
        self.started_at = value

    def observe(self, rank: str, base: str, suffix: str, value: float, model: str | None) -> None:
        _add(self.histograms[rank][base].totals, suffix, value)
        if model is not None:
            _add(self.by_model[model][base].totals, suffix, value)

    def add(self, rank: str, names: Sequence[str], value: float, *, is_share: bool) -> None:
        values = self.values[rank]
        for name in names:
            known = values.get(name)
            values[name] = value if known is None else max(known, value) if is_share else known + value

    def take_config(self, labels: Mapping[str, str], rank: str) -> None:
        kept = {name: labels[name] for name in CONFIG_LABELS if labels.get(name, "None") != "None"}
        self.config = self.config or kept
        for name in ON_CONFIG:
            if kept.get(name, "").isdigit():
                self.values[rank][name] = float(kept[name])

    def share_blocks(self) -> None:
        """Gives each engine its own blocks: an API server writes the sum of all its engines beside each of them."""
        pools = [values for values in self.values.values() if "num_gpu_blocks" in values]
        # Until 0.10 only the first engine has such a line.
        engines = sum("num_gpu_blocks" in values or RUNNING in values for values in self.values.values())
        for values in pools:
            values["num_gpu_blocks"] /= engines

    def histograms_as_values(self) -> dict[str, dict[str, Histogram]]:
        return _histograms(self.histograms)

    def by_model_as_values(self) -> dict[str, dict[str, Histogram]]:
        """Empty for a single model: it is the replica itself."""
        return _histograms(self.by_model) if len(self.by_model) > 1 else {}


@lru_cache(maxsize=1024)
def _split(series: str) -> tuple[str, str, str]:
    """The prefix, the name, and the suffix of its kind of series. Of many samples few names.

    `_created` is a time, not a value, and stays unknown.
    """
    found = _PREFIX.match(series)
    prefix, name = (found[0], series[found.end() :]) if found else ("", series)
    kind = SUFFIX.search(name)
    return (prefix, name[: kind.start()], kind[1]) if kind else (prefix, name, "")


def _resolved(found: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """Old names become new ones if those are absent; if both are on the page they carry the same value."""
    return {
        rank: {
            **{ALIASES[name]: value for name, value in by_name.items() if name in ALIASES},
            **{name: value for name, value in by_name.items() if name not in ALIASES},
        }
        for rank, by_name in found.items()
    }
