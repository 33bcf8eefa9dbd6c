"""Calls one probe through its declaration."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import ProbeSignal
from bot.flow.ports.readings import ProbeRequest, ReadContext
from bot.probes.catalogue import PROBES
from bot.probes.declaration import Sources

TARGET = Target(cluster="c", namespace="serving", name="llm")


class Samples:
    """A history that holds these scrapes."""

    source = "pages"
    has_whole_pages = True

    def __init__(self, *scrapes: Scrape) -> None:
        self._scrapes = scrapes

    async def sample(self, context: ReadContext) -> None:
        return

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        return [scrape for scrape in self._scrapes if start <= scrape.at <= end]


class NotGiven:
    """A source that the test does not provide. A probe that reads it fails the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        raise AssertionError(f"the test gives no '{self._name}', of which '{method}' was asked")


def sources(at: float, **given: Any) -> Sources:
    required = {field.name: NotGiven(field.name) for field in fields(Sources) if field.default is MISSING}
    return Sources(**{**required, "now": lambda: at, **given})


def request(
    probe: str,
    seen: ClusterSnapshot,
    *,
    at: float,
    of: str = "target",
    parameters: Mapping[str, Any] | None = None,
    target: Target = TARGET,
    opened_at: float | None = None,
    incident_id: str = "INC-1",
    picked: Mapping[str, str] | None = None,
    **context: Any,
) -> ProbeRequest:
    """Returns a state's request to a probe at `at`. The incident opens at the same time unless `opened_at` is given."""

    async def read_snapshot() -> ClusterSnapshot:
        return seen

    opened = at if opened_at is None else opened_at
    asked_in = ReadContext(target, incident_id, opened, dict(picked or {}), context.pop("settings", {}), **context)
    return ProbeRequest(
        "it", ProbeSignal(probe=probe, of=of, parameters=dict(parameters or {})), asked_in, at, read_snapshot
    )


async def ask(asked: ProbeRequest, **given: Any) -> Reading:
    """Returns the probe's answer from these sources. Checks that the probe declares every part of it."""
    probe = PROBES[asked.spec.probe]
    reading = await probe.read(sources(asked.at, **given))(asked)
    parts = set(reading.fields) | set(reading.unknown_parts)
    assert parts == (set(probe.kinds) if reading.is_known else set())
    return reading
