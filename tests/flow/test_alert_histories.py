"""After any history of alerts and any order of steps: one open incident per target, all in the index, no alert lost.

`ALERT_HISTORIES=20000` plays that many; so many take a quarter of an hour.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aioredis
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.flow.alert_histories import History

EXAMPLES = int(os.environ.get("ALERT_HISTORIES", "300"))

workloads, bots, incidents = st.sampled_from([0, 0, 0, 1]), st.integers(0, 1), st.sampled_from([1, 1, 1, 2, 3])
alerts = st.tuples(
    workloads, st.sampled_from([1, 1, 2]), st.sampled_from([0, 0, 300, 600]), st.sampled_from(["firing", "resolved"])
)
moves = st.one_of(
    st.tuples(st.just("alert"), alerts),
    st.tuples(st.just("alert"), st.tuples(st.just(0), st.just(1), st.just(0), st.just("firing"))),
    st.tuples(st.just("route"), st.tuples(bots, st.integers(0, 9))),
    st.tuples(st.just("advance"), st.tuples(bots, incidents, st.integers(0, 4))),
    st.tuples(st.just("resolve"), st.tuples(incidents)),
    st.tuples(st.just("reopen"), st.tuples(incidents)),
    st.tuples(st.just("note"), st.tuples(incidents)),
    st.tuples(st.just("settle"), st.just(())),
    st.tuples(st.just("pass_"), st.tuples(st.sampled_from([1, 600, 1000, 3700]))),
    *[st.tuples(st.just("step"), st.tuples(st.integers(0, 3)))] * 4,
)


@pytest.fixture
async def client(client: aioredis.Redis) -> AsyncIterator[aioredis.Redis]:
    """Nothing here asks what survives a crash, and a history is a hundred writes."""
    await client.config_set("appendfsync", "no")
    yield client
    await client.config_set("appendfsync", "always")


@pytest.mark.needs_server("redis")
@pytest.mark.timeout(0)
@given(history=st.lists(moves, min_size=10, max_size=80))
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
async def test_no_history_of_alerts_hides_an_incident_or_swallows_an_alert(
    client: aioredis.Redis, history: list[tuple[str, tuple[int | str, ...]]]
) -> None:
    with capture_logs():
        played = History(client)
        assert await played.play(history) == []
    event(f"{len(played.received)} alerts received")
