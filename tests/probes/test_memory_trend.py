"""Memory leaks: a trend needs a whole day of data, and is unknown without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.signal import Reading
from bot.probes.gpu.memory_trend import CRASH_SECONDS, Points
from tests.kit import probes
from tests.kit.probes import request

pytestmark = pytest.mark.fast

OPENED = 1_790_000_000.0
DAY = 86_400.0
GIB = 1024.0
"""In MiB, as free GPU memory is reported."""
SINCE = "results.enabled.since"


class Kept:
    """What a Prometheus kept, as (day's end, kind) to series; a `SourceError` where it did not answer."""

    def __init__(self, gpu: Sequence[Points] | None = (), host: Sequence[Points] = (), then: Sequence[Points] = ()):
        self._gpu, self._host, self._then = gpu, host, then
        self.asked: list[tuple[str, float, str]] = []

    async def day_before(
        self, what: Literal["gpu", "host"], namespace: str, pods: Sequence[str], at: float, *, of: str = ""
    ) -> Sequence[Points]:
        self.asked.append((what, at, of))
        if self._gpu is None:
            raise SourceError("Prometheus did not answer")
        if of:
            return self._then
        return self._gpu if what == "gpu" else self._host


def line(start: float, per_day: float, *, until: float = OPENED, hours: int = 24) -> Points:
    """A value each hour up to `until`."""
    return [(until - (hours - hour) * 3600.0, start + per_day * hour / 24) for hour in range(hours + 1)]


async def ask(kept: Kept | None, moments: dict[str, float] | None = None) -> Reading:
    owner = {"kind": "ReplicaSet", "uid": "rs", "controller": True}
    replica_set: Obj = {"metadata": {"uid": "rs", "ownerReferences": [{"uid": "d", "controller": True}]}}
    replica: Obj = {"metadata": {"name": "llm-1", "ownerReferences": [owner]}, "status": {"phase": "Running"}}
    deployment = {"metadata": {"name": "llm", "uid": "d"}, "spec": {}}
    snapshot = ClusterSnapshot(at=OPENED, workload=deployment, replica_sets=(replica_set,), pods=(replica,))
    parameters = {"since": SINCE} if moments else {}
    asked = request("memory_trend", snapshot, at=OPENED, moments=moments or {}, parameters=parameters)
    return await probes.ask(asked, memory=kept)


async def test_a_steady_loss_of_free_memory_leaks() -> None:
    reading = await ask(Kept([line(20 * GIB, 0.0), line(20 * GIB, -3 * GIB)], [line(0, 0.0)]))
    assert reading.fields["leaks"] is True
    assert reading.fields["free_per_day"] == pytest.approx(-3.0)


async def test_a_host_that_fills_up_leaks_too() -> None:
    reading = await ask(Kept([line(20 * GIB, 0.0)], [line(0, 2.0 * (1 << 30))]))
    assert reading.fields["leaks"] is True
    assert reading.fields["host_per_day"] == pytest.approx(2.0)


async def test_flat_memory_on_both_sides_does_not_leak() -> None:
    assert (await ask(Kept([line(20 * GIB, 0.0)], [line(5e9, 0.0)]))).fields["leaks"] is False


async def test_one_flat_side_does_not_deny_a_leak_on_the_other() -> None:
    reading = await ask(Kept([line(20 * GIB, 0.0)]))
    assert "leaks" not in reading.fields
    assert "no whole day of host memory" in reading.unknown_parts["leaks"]


async def test_less_than_a_day_is_no_trend() -> None:
    reading = await ask(Kept([line(20 * GIB, -3 * GIB, hours=12)], [line(0, 0.0)]))
    assert "free_per_day" in reading.unknown_parts
    assert "leaks" not in reading.fields


async def test_the_day_ends_before_the_crash_gave_memory_back() -> None:
    kept = Kept([line(20 * GIB, 0.0)], [line(0, 0.0)])
    await ask(kept)
    assert ("gpu", OPENED - CRASH_SECONDS, "") in kept.asked


async def test_what_was_taken_since_is_the_difference_of_the_medians() -> None:
    since = OPENED - 7200
    kept = Kept([line(18 * GIB, 0.0)], [line(0, 0.0)], then=[line(20 * GIB, 0.0, until=since)])
    reading = await ask(kept, {SINCE: since})
    assert reading.fields["taken"] == pytest.approx(2.0)
    assert ("gpu", since, "llm") in kept.asked


async def test_nothing_kept_of_then_leaves_what_was_taken_unknown() -> None:
    reading = await ask(Kept([line(18 * GIB, 0.0)], [line(0, 0.0)]), {SINCE: OPENED - 7200})
    assert "no GPU memory is recorded" in reading.unknown_parts["taken"]


async def test_a_prometheus_that_does_not_answer_is_reported() -> None:
    assert "did not answer" in (await ask(Kept(None))).unknown


async def test_without_a_prometheus_nobody_remembers() -> None:
    assert "no Prometheus is configured" in (await ask(None)).unknown
