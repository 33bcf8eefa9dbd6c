"""Reading shares snapshots for a second; a failure is not kept."""

from __future__ import annotations

import asyncio

import pytest

from bot.domain.cluster.snapshot import World
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.target import Target
from bot.flow.recent_worlds import RecentWorlds
from tests import builders

pytestmark = pytest.mark.fast


class Counting:
    def __init__(self, *, fails: int = 0) -> None:
        self.asked, self._fails = 0, fails

    async def world(self, target: Target, *, incident_id: str) -> World:
        self.asked += 1
        if self.asked <= self._fails:
            raise ClusterError("away")
        return World(at=float(self.asked), workload=None)


class Hands:
    """A clock that a test moves."""

    at = 0.0

    def now(self) -> float:
        return self.at


async def test_those_who_ask_at_once_share_one_reading() -> None:
    cluster, clock = Counting(), Hands()
    recent = RecentWorlds(cluster, clock.now)
    await asyncio.gather(*(recent.world(builders.TARGET, incident_id="INC-1") for _ in range(5)))
    assert cluster.asked == 1


async def test_a_snapshot_of_a_second_ago_is_read_again() -> None:
    cluster, clock = Counting(), Hands()
    recent = RecentWorlds(cluster, clock.now)
    await recent.world(builders.TARGET, incident_id="INC-1")
    clock.at = 1.0
    assert (await recent.world(builders.TARGET, incident_id="INC-1")).at == 2.0


async def test_another_incident_has_its_own_snapshot() -> None:
    cluster = Counting()
    recent = RecentWorlds(cluster, Hands().now)
    await recent.world(builders.TARGET, incident_id="INC-1")
    await recent.world(builders.TARGET, incident_id="INC-2")
    assert cluster.asked == 2


async def test_a_failure_is_told_and_not_kept() -> None:
    recent = RecentWorlds(Counting(fails=1), Hands().now)
    with pytest.raises(ClusterError):
        await recent.world(builders.TARGET, incident_id="INC-1")
    assert (await recent.world(builders.TARGET, incident_id="INC-1")).at == 2.0
