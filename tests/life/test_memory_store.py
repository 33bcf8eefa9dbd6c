"""The storage in memory gives the same incidents as the real one over random alerts, commits and time."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.playbooks.library import Library
from bot.flow.advance_run import AdvanceRun
from bot.flow.route_alerts import RouteAlerts
from bot.sandbox import valkey
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES, compiled_once
from tests.flow.scenes import DRILL
from tests.life.memory_store import MemoryStore
from tests.redis_server import VirtualTime

NAMES = ("VllmKVCacheThrash", "GPUFatalXID")


async def _history(store: Any, time: VirtualTime, seed: int) -> list[object]:
    """Alerts fire, repeat and resolve on two workloads, and time passes over every deadline."""
    rng = random.Random(seed)
    library = Library({name: load_playbook(DRILL.with_name(f"{name}.yaml")) for name in ("parked", "urgent")})
    cluster = {"test": MemoryCluster(time.now)}
    route = RouteAlerts(store, store, library, cluster, restrictions=restrictions(), wake=lambda *_: None)
    advance = AdvanceRun(store, compiled_once, RULES)
    seen: list[object] = []
    for _ in range(60):
        workload, name = rng.choice(("llm", "chat")), rng.choice(NAMES)
        status, started = rng.choice(("firing", "firing", "resolved")), builders.START + 600 * rng.randrange(3)
        alert = builders.alert(
            status, fingerprint=f"{workload}-{name}", starts_at=started, alertname=name, deployment=workload
        )
        seen.append(await store.accept([alert], truncated=0))
        await route()
        for incident in sorted(f"INC-{number}" for number in range(1, 60)):
            if await store.load(incident) is not None:
                await advance(incident)
        await time.advance(rng.choice((1.0, 60.0, 700.0, 4000.0)))
    for number in range(1, 60):
        run = await store.load(f"INC-{number}")
        if run is not None:
            seen.append(run.model_dump(mode="json"))
            seen.append(await store.open_incident(run.target.key))
            seen.append(await store.last_incident(run.target.key))
            seen.append(list(await store.parked_incidents(run.target.key)))
    return seen


@pytest.mark.parametrize("seed", range(3))
async def test_the_same_alerts_give_the_same_incidents(redis_server: valkey.Embedded, tag: str, seed: int) -> None:
    async with aioredis.from_url(redis_server.url, decode_responses=True) as client:
        time = VirtualTime(client, tag)
        await time.start()
        real = await _history(RedisStore(Connection(client, tag=tag, clock=time.prelude), owner="one"), time, seed)
        again = VirtualTime(client, f"{tag}-memory")
        await again.start()
        memory = await _history(cast(Any, MemoryStore(again.now)), again, seed)
    assert memory == real
