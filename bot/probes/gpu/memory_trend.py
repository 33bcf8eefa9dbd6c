"""The `memory_trend` probe: whether memory leaked on the day before the incident, on the GPUs or on the host.

The engine reserves its share of the GPU at start, so used memory is flat by design: a leak shows in the rest, which
shrinks. "Fragmentation" is not read: a high share of reserved memory in use is good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bot.domain.cluster.objects import name_of
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import end_of
from bot.domain.signals.signal import Reading
from bot.domain.signals.trend import DAY_SECONDS, Trend, trend_of
from bot.flow.ports.readings import MemoryHistory, MemoryKind, ProbeRequest
from bot.probes.answers import answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe

SOURCE = "Prometheus"
MIB_IN_GIB, BYTES_IN_GIB = 1024.0, float(1 << 30)
MIN_FIT = 0.8
MIN_PER_DAY = 1.0
"""GiB a day: less does not fill a GPU within a week."""
WHOLE_DAY = 0.9
CRASH_SECONDS = 600.0
"""An alert waits minutes before it fires; memory that the crash itself freed is not a trend."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class MemoryTrend:
    free_per_day: float | None
    free_fit: float | None
    host_per_day: float | None
    host_fit: float | None
    taken: float | None
    leaks: bool | None


class ReadMemoryTrend:
    def __init__(self, days: MemoryHistory | None) -> None:
        self._days = days

    async def __call__(self, request: ProbeRequest) -> Reading:
        if self._days is None:
            why = "no Prometheus is configured to ask for a day of memory"
            return no_answer(request, why, source=SOURCE)
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        pods = [name_of(pod) for pod in pods_asked_for(request, snapshot)]
        if not pods:
            return no_answer(request, "there is no such pod", source=SOURCE)
        until = request.context.opened_at - CRASH_SECONDS
        free, no_gpu = await self._trend("gpu", request, pods, until)
        host, no_host = await self._trend("host", request, pods, until)
        taken, not_taken = await self._taken(request, pods)
        parts = MemoryTrend(
            free_per_day=free.per_day / MIB_IN_GIB if free else None,
            free_fit=free.fit if free else None,
            host_per_day=host.per_day / BYTES_IN_GIB if host else None,
            host_fit=host.fit if host else None,
            leaks=_leaks(free, host),
            taken=taken,
        )
        missing = dict.fromkeys(("free_per_day", "free_fit"), no_gpu)
        missing |= dict.fromkeys(("host_per_day", "host_fit"), no_host) | {"taken": not_taken}
        missing["leaks"] = "; ".join(dict.fromkeys(filter(None, (no_gpu, no_host))))
        return answer(request, parts, missing=missing, detail=_in_words(free, host), source=SOURCE)

    async def _trend(
        self, what: MemoryKind, request: ProbeRequest, pods: Sequence[str], until: float
    ) -> tuple[Trend | None, str]:
        """Of the series that loses most, or why there is none."""
        found, why = await self._day(what, request, pods, until)
        whole = [points for points in found if points[-1][0] - points[0][0] >= WHOLE_DAY * DAY_SECONDS]
        trends = [trend for points in whole if (trend := trend_of(points)) is not None]
        if not trends:
            return None, why or f"there is no whole day of {what} memory of these replicas before the incident"
        return (min if what == "gpu" else max)(trends, key=lambda trend: trend.per_day), ""

    async def _taken(self, request: ProbeRequest, pods: Sequence[str]) -> tuple[float | None, str]:
        """GiB that are less free on a GPU than on the day before `since`, median beside median."""
        since = str(request.spec.parameters.get("since", ""))
        if not since:
            return None, "the playbook gives no 'since'"
        try:
            at = end_of(since, request.context.moments) or request.at
        except ValueError as error:
            return None, str(error)
        then, no_then = await self._day("gpu", request, pods, at, of=request.context.target.name)
        now, no_now = await self._day("gpu", request, pods, request.at)
        before = [value for points in then for _, value in points]
        after = [value for points in now for moment, value in points if moment >= max(at, request.at - 3600.0)]
        if not before or not after:
            return None, no_then or no_now or "no GPU memory is recorded for then, or for the last hour"
        return (median(before) - median(after)) / MIB_IN_GIB, ""

    async def _day(
        self, what: MemoryKind, request: ProbeRequest, pods: Sequence[str], at: float, *, of: str = ""
    ) -> tuple[list[Points], str]:
        assert self._days is not None
        try:
            found = await self._days.day_before(what, request.context.target.namespace, pods, at, of=of)
        except SourceError as error:
            return [], str(error)
        return [points for points in found if points], ""


def _leaks(free: Trend | None, host: Trend | None) -> bool | None:
    """Steadily less free, or steadily more on the host; one trend is enough for yes, both are needed for no."""
    signs = [
        None if free is None else -free.per_day >= MIN_PER_DAY * MIB_IN_GIB and free.fit > MIN_FIT,
        None if host is None else host.per_day >= MIN_PER_DAY * BYTES_IN_GIB and host.fit > MIN_FIT,
    ]
    if any(signs):
        return True
    return None if None in signs else False


def _in_words(free: Trend | None, host: Trend | None) -> str:
    texts = [
        f"free GPU memory {free.per_day / MIB_IN_GIB:+.2f} GiB/day (r² {free.fit:.2f})" if free else "",
        f"host memory {host.per_day / BYTES_IN_GIB:+.2f} GiB/day (r² {host.fit:.2f})" if host else "",
    ]
    return ", ".join(filter(None, texts))


PROBE = Probe(
    name="memory_trend",
    label="GPU memory over time",
    units=dict.fromkeys(("free_per_day", "host_per_day", "taken"), "GiB"),
    help="Whether memory leaks, by its trend over the day before the incident.",
    answer=MemoryTrend,
    parameters={
        "since": Parameter("A past time: `taken` is how much less is free now than on the day before it."),
    },
    read=lambda sources: ReadMemoryTrend(sources.memory),
)
