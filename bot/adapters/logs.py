"""Structured logs: facts named `noun.past_tense` with ids as fields, as JSON or for a console; counted for /metrics.

Secrets, tokens and raw payloads are never fields; likely secrets are masked all the same.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bot.domain.kernel.redaction import redacted, shown_value
from bot.domain.kernel.terminal import plain
from bot.flow.circuit import Circuit

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


LEVELS_SHOWN = {
    "intake_alerts": "Accepted alerts not yet routed.",
    "open_incidents": "Incidents that are open.",
    "parked_incidents": "Incidents that wait outside their target's slot.",
    "unsampled_workloads": "Workloads that are scraped only when their incidents read, because too many are open.",
    "slack_refused": "1 while Slack takes no message of the bot until people change something there, else 0.",
    "slack_disconnected": "1 while Socket Mode has no connection, so that no press or command arrives, else 0.",
}


OF_ANYBODY = frozenset(
    {"webhook.refused", "slack.refused", "slack.aborted", "request.refused", "request.aborted", "secret.unread"}
)
LINES_APART_SECONDS = 1.0


class Facts(Collector):
    """How often each fact was logged since the start, and levels that the storage reports at each scrape."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.circuits: dict[str, Circuit] = {}
        """By dependency."""

    def count(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self.counts[str(event.get("event", ""))] += 1
        return event

    def collect(self) -> list[Metric]:
        family = CounterMetricFamily("incident_bot_facts", "Facts logged since the start.", labels=["fact"])
        for fact, count in sorted(self.counts.items()):
            family.add_metric([fact], count)
        silent = GaugeMetricFamily(
            "incident_bot_dependency_silent",
            "1 if the last three requests to a dependency had no answer.",
            labels=["dependency"],
        )
        for dependency, circuit in self.circuits.items():
            silent.add_metric([dependency], float(circuit.is_silent))
        return [family, silent]

    def page(self, levels: Mapping[str, int]) -> str:
        """`levels` holds only what is known now: an unknown one is absent from the page, not 0."""
        registry = CollectorRegistry()
        registry.register(self)
        registry.register(_Levels(levels))
        return generate_latest(registry).decode()


class _Levels(Collector):
    def __init__(self, levels: Mapping[str, int]) -> None:
        self._levels = levels

    def collect(self) -> list[Metric]:
        return [
            GaugeMetricFamily(f"incident_bot_{name}", LEVELS_SHOWN[name], value=value)
            for name, value in self._levels.items()
        ]


def masked(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if name != "event" and isinstance(value, str | list | dict):
            event[name] = shown_value(name, value)
    return event


class Masking(logging.Formatter):
    """Masks what libraries log, tracebacks too, under the same rule as our own facts."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(redacted(super().format(record)))


class FewLines:
    """Of each fact that anybody who reaches the port can cause, one line a second; it says how many there were."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._counts: Counter[tuple[str, object]] = Counter()
        self._written_at: dict[tuple[str, object], float] = {}

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("event") not in OF_ANYBODY:
            return event
        kind, now = (event["event"], event.get("status")), self._elapsed()
        self._counts[kind] += 1
        if now - self._written_at.get(kind, float("-inf")) < LINES_APART_SECONDS:
            raise structlog.DropEvent
        self._written_at[kind] = now
        return {**event, "since_last": self._counts.pop(kind)}


def processors(facts: Facts, *, style: str) -> list[structlog.typing.Processor]:
    chosen: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else _plain_lines(
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        )
    )
    return [
        facts.count,
        FewLines(),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Before masking: an error's text may quote its input.
        structlog.processors.format_exc_info,
        masked,
        chosen,
    ]


def _plain_lines(render: structlog.dev.ConsoleRenderer) -> structlog.typing.Processor:
    return lambda logger, method, event: plain(render(logger, method, event))


def configure(facts: Facts, *, level: str, style: str) -> None:
    """`style`: `json` for machines, `console` for people. Standard-library loggers are included from warning up."""
    structlog.configure(
        processors=processors(facts, style=style),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stderr)
    libraries.setFormatter(Masking("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[libraries])
    # An illegal outcome is a valid answer for us, and a token beside a client is intended: neither deserves a warning.
    for talkative in ("transitions", "slack_bolt"):
        logging.getLogger(talkative).setLevel(logging.ERROR)
