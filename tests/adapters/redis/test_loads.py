"""A day of load on a real server: one point per slot, whatever the number of writers, and no older points returned."""

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.loads import KEPT_SECONDS, RedisLoads
from bot.domain.signals.load_log import LoadPoint

pytestmark = pytest.mark.fast

WORKLOAD = "c/serving/Deployment/llm"


async def test_points_come_back_oldest_first_and_a_slot_has_one(connection: Connection) -> None:
    loads = RedisLoads(connection)
    second = LoadPoint(start=300.0, arrivals=2.0, finished=10.0, prompt=100.5)
    for point in (second, LoadPoint(start=0.0, arrivals=1.0), second.model_copy(update={"arrivals": 3.0})):
        await loads.add(WORKLOAD, point)
    assert await loads.all(WORKLOAD) == [
        LoadPoint(start=0.0, arrivals=1.0),
        second.model_copy(update={"arrivals": 3.0}),
    ]
    assert await loads.all("another") == []


async def test_what_is_older_than_a_day_and_two_hours_is_gone(connection: Connection) -> None:
    loads = RedisLoads(connection)
    for start in (0.0, 600.0, KEPT_SECONDS + 300.0):
        await loads.add(WORKLOAD, LoadPoint(start=start, arrivals=1.0))
    assert [point.start for point in await loads.all(WORKLOAD)] == [600.0, KEPT_SECONDS + 300.0]
