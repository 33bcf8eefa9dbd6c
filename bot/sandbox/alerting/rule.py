"""The rule `VllmKVCacheThrash`, as deploy/ has it for Prometheus: preemptions per finished request, over a window."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

THRASH_RATIO = 0.1


@dataclass(frozen=True)
class Totals:
    """Counters of the whole fleet at one moment; `started` tells processes apart."""

    at: float
    preemptions: dict[str, float]
    finished: dict[str, float]


@dataclass
class ThrashRule:
    window_seconds: float
    for_seconds: float
    _history: deque[Totals] = field(default_factory=deque)
    _since: float | None = None

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
