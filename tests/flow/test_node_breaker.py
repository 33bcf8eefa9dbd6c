"""A node is cordoned only while the fleet can spare it; a refusal is an outcome that people read."""

from __future__ import annotations

import pytest
import redis.asyncio as aioredis

from bot.adapters.yaml_playbooks import load_text
from bot.domain.cluster.node_disruption import NodeDisruption
from bot.domain.incidents.run import Run
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.flow.harness import Bot, Scene, timeline_text, until
from tests.flow.stage import Stage
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast

PLAYBOOK = load_text(
    """
language: 1
playbook: bad-node
title: A bad node
opens_on: ['alertname=~".+"']
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
start: cordon
states:
  cordon:
    change: cordon_node
    with: {node: gpu-node-1}
    still: usage > 0.5
    why: Its GPU is bad.
    done: over
    failed: left
  over: {end: fixed, say: It takes no more pods.}
  left: {end: handed_over, say: It was not cordoned.}
""",
    file="bad-node.yaml",
)


@pytest.fixture
async def scene(client: aioredis.Redis, tag: str) -> Scene:
    time = VirtualTime(client, tag)
    await time.start()
    cluster = MemoryCluster(time.now)
    return Scene(
        client, tag, time, Stage(), cluster, PLAYBOOK, lambda: {"usage": 0.9}, answers={}, alerts=[builders.alert()]
    )


def has_ended(run: Run) -> bool:
    """Applied or not: a cordon that stands is asked about before the incident ends."""
    return not run.is_open or (run.open_question is not None and run.open_question.built_in)


def is_cordoned(scene: Scene, node: str) -> bool:
    return bool(scene.cluster.objects["Node", node]["spec"].get("unschedulable"))


async def test_the_first_node_is_cordoned(scene: Scene, bot: Bot) -> None:
    await until(scene, bot, has_ended, "ended")
    assert is_cordoned(scene, "gpu-node-1")


async def test_while_another_node_of_a_small_fleet_is_cordoned_it_is_refused_in_words(scene: Scene, bot: Bot) -> None:
    scene.cluster.objects["Node", "gpu-node-2"]["spec"]["unschedulable"] = True
    await until(scene, bot, has_ended, "ended")
    assert scene.cluster.sent == []
    assert "4 of 12 GPUs on gpu-node-1, besides gpu-node-2 (4)" in await timeline_text(scene)


async def test_after_two_other_nodes_within_the_hour_it_is_refused(scene: Scene, bot: Bot) -> None:
    for number in (1, 2):
        node = NodeDisruption(f"elsewhere-{number}", cluster=builders.TARGET.cluster)
        call = f"INC-9{number}/R1/0"
        await bot.claims.claim(
            f"INC-9{number}", call, workload_key=f"w{number}", lease_keys=[], disruption="", node=node
        )
    await until(scene, bot, has_ended, "ended")
    assert not is_cordoned(scene, "gpu-node-1")
    assert "too many nodes were cordoned or drained within the hour" in await timeline_text(scene)
