"""Reading shares snapshots for a second; a failure is not kept."""

from __future__ import annotations

import asyncio

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.target import Target
from bot.flow.cached_snapshots import CachedSnapshots
from tests import builders

pytestmark = pytest.mark.fast


class Counting:
    def __init__(self, *, fails: int = 0) -> None:
        self.asked, self._fails = 0, fails

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        self.asked += 1
        if self.asked <= self._fails:
            raise ClusterError("away")
        return ClusterSnapshot(at=float(self.asked), workload=None)


class Hands:
    """A clock that a test moves."""

    at = 0.0

    def now(self) -> float:
        return self.at


async def test_those_who_ask_at_once_share_one_reading() -> None:
    cluster, clock = Counting(), Hands()
    recent = CachedSnapshots(cluster, clock.now)
    await asyncio.gather(*(recent.snapshot(builders.TARGET, incident_id="INC-1") for _ in range(5)))
    assert cluster.asked == 1


async def test_a_snapshot_of_a_second_ago_is_read_again() -> None:
    cluster, clock = Counting(), Hands()
    recent = CachedSnapshots(cluster, clock.now)
    await recent.snapshot(builders.TARGET, incident_id="INC-1")
    clock.at = 1.0
    assert (await recent.snapshot(builders.TARGET, incident_id="INC-1")).at == 2.0


async def test_another_incident_has_its_own_snapshot() -> None:
    cluster = Counting()
    recent = CachedSnapshots(cluster, Hands().now)
    await recent.snapshot(builders.TARGET, incident_id="INC-1")
    await recent.snapshot(builders.TARGET, incident_id="INC-2")
    assert cluster.asked == 2


async def test_a_failure_is_reported_and_not_kept() -> None:
    recent = CachedSnapshots(Counting(fails=1), Hands().now)
    with pytest.raises(ClusterError):
        await recent.snapshot(builders.TARGET, incident_id="INC-1")
    assert (await recent.snapshot(builders.TARGET, incident_id="INC-1")).at == 2.0
