"""The rules of the demo, as deploy/ has them for Prometheus, over the scraped pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.parser import text_string_to_metric_families

THRASH_RATIO = 0.1
HOT_CELSIUS = 85.0
TTFT_TARGET, MISSED_SHARE = 0.5, 0.144
"""The budget of a p99 burns 14.4 times as fast as allowed."""

ENGINES = ("app=llm", 8000)
EXPORTERS = ("app.kubernetes.io/name=dcgm-exporter", 9400)
STATES = ("app=llm", 0)
"""The pages that a rule reads: a label selector and a port. Port 0: kube-state-metrics about the pods."""
RESTARTS = "kube_pod_container_status_restarts_total"
CRASH_LOOP = 2


def labels_of(alertname: str) -> dict[str, str]:
    """The labels of an alert about the demo's workload, from any source."""
    return {
        "alertname": alertname,
        "namespace": "serving",
        "deployment": "llm",
        "severity": "warning",
        "cluster": "sandbox",
    }


class Rule(Protocol):
    alertname: str
    summary: str
    pages: tuple[str, int]

    def look(self, pages: dict[str, str], at: float) -> bool:
        """Whether it fires after this scrape."""
        ...


@dataclass(frozen=True)
class Totals:
    """Counters of the whole fleet at one moment; `started` distinguishes processes."""

    at: float
    preemptions: dict[str, float]
    finished: dict[str, float]


@dataclass
class ThrashRule:
    window_seconds: float
    for_seconds: float
    alertname: str = "VllmKVCacheThrash"
    summary: str = "llm preempts more than one request in ten"
    pages: tuple[str, int] = ENGINES
    _history: deque[Totals] = field(default_factory=deque)
    _since: float | None = None

    def look(self, pages: dict[str, str], at: float) -> bool:
        self.add(totals_of(pages, at))
        return self.fires()

    def add(self, totals: Totals) -> None:
        self._history.append(totals)
        while len(self._history) > 2 and totals.at - self._history[1].at >= self.window_seconds:
            self._history.popleft()

    def fires(self) -> bool:
        """Whether the ratio has been above its threshold for long enough."""
        if len(self._history) < 2:
            return False
        first, last = self._history[0], self._history[-1]
        preempted = sum(_rise(first.preemptions, last.preemptions).values())
        finished = sum(_rise(first.finished, last.finished).values())
        if preempted / max(finished, 1.0) <= THRASH_RATIO:
            self._since = None
            return False
        self._since = self._since if self._since is not None else last.at
        return last.at - self._since >= self.for_seconds


def totals_of(pages: dict[str, str], at: float) -> Totals:
    """Counters by replica process: a restarted one is another key, so a reset is not a fall."""
    preemptions: dict[str, float] = {}
    finished: dict[str, float] = {}
    for replica, page in pages.items():
        wanted = "\n".join(
            line
            for line in page.splitlines()
            if line.startswith(("vllm:num_preemptions_total", "vllm:request_success_total", "process_start_time"))
        )
        samples = [s for family in text_string_to_metric_families(wanted + "\n") for s in family.samples]
        started = next((s.value for s in samples if s.name == "process_start_time_seconds"), 0.0)
        key = f"{replica}@{started}"
        preemptions[key] = sum(s.value for s in samples if s.name == "vllm:num_preemptions_total")
        finished[key] = sum(s.value for s in samples if s.name == "vllm:request_success_total")
    return Totals(at, preemptions, finished)


def _rise(first: dict[str, float], last: dict[str, float]) -> dict[str, float]:
    return {key: value - first.get(key, 0.0) for key, value in last.items()}


@dataclass
class XidRule:
    """A register that has changed: those of a fresh fleet begin at 0."""

    alertname: str = "GpuXidError"
    summary: str = "a GPU of llm reports an XID"
    pages: tuple[str, int] = EXPORTERS

    def look(self, pages: dict[str, str], at: float) -> bool:
        return any(xid != 0 for xid in _gauges(pages, "DCGM_FI_DEV_XID_ERRORS").values())


@dataclass
class HeatRule:
    alertname: str = "GpuThermalSlowdown"
    summary: str = "a GPU of llm is too hot"
    pages: tuple[str, int] = EXPORTERS

    def look(self, pages: dict[str, str], at: float) -> bool:
        return any(celsius >= HOT_CELSIUS for celsius in _gauges(pages, "DCGM_FI_DEV_GPU_TEMP").values())


def state_page(pod: Mapping[str, Any]) -> str:
    """The watched line of kube-state-metrics, from the pod's status."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    lines = [f'{RESTARTS}{{container="{one["name"]}"}} {one["restartCount"]}' for one in statuses]
    return "\n".join([f"# TYPE {RESTARTS} counter", *lines, ""])


@dataclass
class CrashRule:
    """A container that ended and started again more than once."""

    alertname: str = "VllmCrashLoop"
    summary: str = "a replica of llm does not stay up"
    pages: tuple[str, int] = STATES

    def look(self, pages: dict[str, str], at: float) -> bool:
        samples = (s for page in pages.values() for f in text_string_to_metric_families(page) for s in f.samples)
        return any(sample.value >= CRASH_LOOP for sample in samples)


@dataclass
class SloRule:
    """The share of first tokens later than the target, over a window."""

    window_seconds: float
    for_seconds: float
    target: float = TTFT_TARGET
    alertname: str = "VllmTTFTBudgetBurn"
    summary: str = "llm burns its error budget of first tokens"
    pages: tuple[str, int] = ENGINES
    _history: deque[tuple[float, float, float]] = field(default_factory=deque)
    _since: float | None = None

    def look(self, pages: dict[str, str], at: float) -> bool:
        self._history.append((at, *_counted(pages, self.target)))
        while len(self._history) > 2 and at - self._history[1][0] >= self.window_seconds:
            self._history.popleft()
        (began, all_then, within_then), (_, all_now, within_now) = self._history[0], self._history[-1]
        observed, within = all_now - all_then, within_now - within_then
        if at - began < self.window_seconds or observed <= 0 or (observed - within) / observed < MISSED_SHARE:
            self._since = None
            return False
        self._since = self._since if self._since is not None else at
        return at - self._since >= self.for_seconds


def _gauges(pages: dict[str, str], name: str) -> dict[str, float]:
    """By page and series."""
    found: dict[str, float] = {}
    for page_of, page in pages.items():
        lines = "\n".join(line for line in page.splitlines() if line.startswith(name))
        for family in text_string_to_metric_families(lines + "\n"):
            # The fault is a label of the XID's series, so the GPU alone names the series here.
            found |= {f"{page_of}/{sample.labels.get('gpu')}": sample.value for sample in family.samples}
    return found


def _counted(pages: dict[str, str], target: float) -> tuple[float, float]:
    """All first tokens, and those within the target."""
    name = "vllm:time_to_first_token_seconds_bucket"
    samples = [
        sample
        for page in pages.values()
        for family in text_string_to_metric_families(
            "# TYPE vllm:time_to_first_token_seconds histogram\n"
            + "\n".join(line for line in page.splitlines() if line.startswith(name))
            + "\n"
        )
        for sample in family.samples
    ]
    bounds = sorted({float(sample.labels["le"]) for sample in samples if float(sample.labels["le"]) >= target})
    highest = bounds[0] if bounds else float("inf")

    def below(bound: float) -> float:
        return sum(sample.value for sample in samples if float(sample.labels["le"]) == bound)

    return below(float("inf")), below(highest)
