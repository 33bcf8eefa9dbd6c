"""One long generation on an isolated simulated replica, through the real reader, scraper and sender."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.pod_pages import AddressPages
from bot.adapters.vllm.generations import VllmGenerations
from bot.adapters.vllm.scraper import VllmScraper
from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Plan
from bot.domain.changes.planning import plan_change
from bot.domain.kernel.target import Target
from bot.flow.handlers.generate import GenerateOnReplica, Made
from bot.flow.perform_effect import EffectContext
from bot.flow.sample_replicas import SnapshotReplicas
from tests import builders
from tests.adapters.kubernetes.lab import granted
from tests.sandbox.fleet.living_world import SERVING, World, demo_world, eventually

pytestmark = pytest.mark.end_to_end
TARGET = Target(cluster="sandbox", namespace="serving", name="llm")
TOKENS = 1500


@pytest.fixture(scope="module")
def fleet() -> Iterator[World]:
    with demo_world() as world:
        yield world


class Quiet:
    """Nobody halts; the clock is the wall's."""

    async def halted_by(self, incident_id: str) -> str:
        return ""

    async def now(self) -> float:
        return time.time()


async def ignore(text: str) -> None: ...


def take_aside(fleet: World) -> str:
    pod = sorted(fleet.wait_for_rotation())[0]
    notes = {"incident-bot/rotation-label": "serving=active"}
    fleet.merge(f"{SERVING}/{pod}", {"metadata": {"labels": {"serving": "out-of-rotation"}, "annotations": notes}})
    eventually("the replica is out of rotation", lambda: pod not in fleet.in_rotation())
    eventually("the replica is empty", lambda: fleet.metric(pod, "vllm:num_requests_running") == 0)
    return pod


async def generate(fleet: World, pod: str) -> tuple[Plan, Made]:
    anything: Any = None
    quiet: Any = Quiet()
    async with (
        KubernetesClient(Connection(url=fleet.cluster_url)) as client,
        AddressPages() as pages,
        VllmGenerations() as generations,
    ):
        cluster = KubernetesCluster(client, name="sandbox")
        seen = await cluster.snapshot(TARGET, incident_id="INC-42")
        asked = {"replica": pod, "max_tokens": float(TOKENS)}
        result = plan_change("probe_request", asked, seen, PlanContext(incident_id="INC-42"))
        assert result.plan is not None, result.reason
        scraper = VllmScraper(pages, time.time)
        send = GenerateOnReplica(generations, SnapshotReplicas(cluster), scraper, quiet, quiet)
        job = EffectContext(builders.run(target=TARGET, incident_id="INC-42"), anything, time.time())
        return result.plan, await send(job, granted(result.plan), result.plan.calls[0], ignore)


async def test_a_dense_cache_gives_nothing_back(fleet: World) -> None:
    pod = take_aside(fleet)
    _, made = await generate(fleet, pod)
    assert made.result == "done", made
    assert made.reading is not None
    fields = made.reading.fields
    assert fields["finished"] is True, made
    assert float(fields["tokens"]) > TOKENS
    assert float(fields["used_blocks"]) > 0
    # The last look is at most half a second before the end; here that is a fifth of all tokens.
    assert float(fields["reclaim"]) < 0.4
    assert fleet.metric(pod, "vllm:num_requests_running") == 0
