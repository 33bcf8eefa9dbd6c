"""The `pressure_symptoms` probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, seconds_of
from bot.domain.flags.flags_in_spec import engine_statuses
from bot.domain.kernel.numbers import is_number
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import SampledSpec
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import MetricSignal, QuantileSignal
from bot.domain.signals.window import Window
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, pods_asked_for, seconds_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

EQUAL_ARRIVALS = 0.2
"""Arrivals that differ by less than this share count as equal."""
RESTARTED_SECONDS = 1800.0


@dataclass(frozen=True)
class PressureSymptoms:
    count: float
    signs: str


class ReadPressureSymptoms(Sampled):
    """How many early signs there are at once. An unreadable sign is not counted, but named.

    Parameters: `over` is the window for now, and `past` how long ago the comparison window began.
    """

    OVER, PAST = "30m", "24h"

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        if isinstance(span := seconds_asked_for(request, "over", self.OVER), str):
            return unknown(request.name, span, at=now, source=self.history.source)
        if isinstance(past := seconds_asked_for(request, "past", self.PAST), str):
            return unknown(request.name, past, at=now, source=self.history.source)
        recent = await self.read(request, _SIGNS, Window(now - span, now))
        before = await self.read(request, _BEFORE, Window(now - past, now - span))
        signs = {
            "fewer run at once": _collapsed(recent, before),
            "latency doubled": _doubled(recent, before),
            "the queue grows": _grows(recent),
            "restarts": await self._restarted(request),
        }
        known = {name: sign for name, sign in signs.items() if sign is not None}
        if not known:
            return unknown(request.name, "no sign can be read", at=now, source=self.history.source)
        shown = ", ".join(name for name, sign in known.items() if sign) or "none"
        blind = ", ".join(name for name in signs if name not in known)
        detail = shown + (f"; not readable: {blind}" if blind else "")
        parts = PressureSymptoms(float(sum(known.values())), shown)
        return answer(request, parts, detail=detail, source=self.history.source)

    async def _restarted(self, request: ProbeRequest) -> bool | None:
        snapshot = await request.snapshot()
        if "pods" in snapshot.unreadable:
            return None
        ends = [
            seconds_of(dig(status, "lastState", "terminated", "finishedAt") or "")
            for pod in pods_asked_for(request, snapshot)
            for status in engine_statuses(pod)
        ]
        return any(end is not None and request.at - end <= RESTARTED_SECONDS for end in ends)


_BEFORE: dict[str, SampledSpec] = {
    "running": MetricSignal(metric="num_requests_running", take="p50", across="sum"),
    "arrivals": MetricSignal(metric="arrivals", take="steady", across="sum"),
    "latency": QuantileSignal(histogram="e2e_request_latency_seconds", quantile=0.95),
}
_SIGNS: dict[str, SampledSpec] = {
    **_BEFORE,
    "waiting": MetricSignal(metric="num_requests_waiting", take="p90", across="sum"),
    "rising": MetricSignal(metric="num_requests_waiting", take="slope", across="sum"),
}
QUEUE_FLOOR = 2.0


def _number(readings: Mapping[str, Reading], name: str) -> float | None:
    value = readings[name].value
    return float(value) if is_number(value) else None


def _collapsed(recent: Mapping[str, Reading], before: Mapping[str, Reading]) -> bool | None:
    """Half as many requests run at once, with as many arrivals."""
    ran, runs = _number(before, "running"), _number(recent, "running")
    came, come = _number(before, "arrivals"), _number(recent, "arrivals")
    if ran is None or runs is None or came is None or come is None:
        return None
    return abs(come - came) <= EQUAL_ARRIVALS * came and runs <= ran / 2 and ran > 0


def _doubled(recent: Mapping[str, Reading], before: Mapping[str, Reading]) -> bool | None:
    was, now = _number(before, "latency"), _number(recent, "latency")
    return None if was is None or now is None else now >= 2 * was > 0


def _grows(recent: Mapping[str, Reading]) -> bool | None:
    slope, waiting = _number(recent, "rising"), _number(recent, "waiting")
    return None if slope is None or waiting is None else slope > 0 and waiting > QUEUE_FLOOR


PROBE = Probe(
    name="pressure_symptoms",
    label="Early signs",
    help="How many early signs of pressure there are at once.",
    answer=PressureSymptoms,
    parameters={
        "over": Parameter("How much time counts as now.", "duration"),
        "past": Parameter("How long ago the time before it began.", "duration"),
    },
    read=ReadPressureSymptoms.of,
)
