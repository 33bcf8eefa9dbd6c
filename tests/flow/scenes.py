"""Two scenes: a short playbook with every kind of step, and the main path of the shipped one with shortened waits."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import redis.asyncio as aioredis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.summary import RedisSummary
from bot.adapters.slack.outbound.incident_channel import ChannelRules
from bot.adapters.yaml_playbooks import load_playbook
from tests import builders
from tests.domain.changes.test_run_job import cron_job
from tests.fakes.cluster import MemoryCluster
from tests.fakes.signals import Script
from tests.flow.harness import LEAD, Scene
from tests.flow.stage import Side, Stage
from tests.redis_server import VirtualTime

DRILL = Path(__file__).with_name("drill.yaml")
TRIAL = DRILL.with_name("trial.yaml")
QUIET = DRILL.with_name("quiet.yaml")
SHIPPED = Path(__file__).parents[2] / "playbooks" / "kv-cache-oom.yaml"
SHORT = dict.fromkeys(("calm_for", "canary_for", "settle_for", "quiet_for"), "2s")
"""What the shipped playbook waits for, shortened."""

drill_playbook = functools.cache(lambda: load_playbook(DRILL))
trial_playbook = functools.cache(lambda: load_playbook(TRIAL))
quiet_playbook = functools.cache(lambda: load_playbook(QUIET))
shipped_playbook = functools.cache(lambda: load_playbook(SHIPPED, SHORT))


def drill_signals(cluster: MemoryCluster) -> Script:
    def script() -> dict[str, float]:
        return {"thrash": 0.0 if "--max-num-seqs=6" in cluster.flags() else 2.8, "canary_room": 0.0}

    return script


async def drill_scene(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Scene:
    """The short playbook on a workload that is taken out of rotation by a label before a replica ends."""
    time = VirtualTime(client, tag)
    await time.start()
    cluster = MemoryCluster(time.now, "--served-model-name=tiny-llama", "--max-num-seqs=64", "--shutdown-timeout=20")
    return Scene(
        client, tag, time, Stage(dies_at), cluster, drill_playbook(), drill_signals(cluster),
        answers={"mitigation": "cap"}, alerts=[builders.alert()],
    )  # fmt: skip


async def folded_scene(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Scene:
    """The short playbook in a storm of others: its card waits in the digest until somebody is asked."""
    scene = await drill_scene(client, tag, dies_at)
    scene.cards = (1, 10.0)
    connection = Connection(client, tag=tag, clock=scene.time.prelude)
    other = RedisSummary(connection, scene.cards)
    await other.turn("INC-999", "", 999.0, needs_a_person_below=0.0)
    await other.leave("INC-999")
    return scene


async def channel_scene(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Scene:
    """The short playbook in a channel of its own, which is archived at the end."""
    scene = await drill_scene(client, tag, dies_at)
    scene.own = ChannelRules(wanted=True, users=(LEAD,), archive=True)
    return scene


async def trial_scene(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Scene:
    """One replica is taken aside, tried with one long generation, judged by a Job, and put back."""
    time = VirtualTime(client, tag)
    await time.start()
    cluster = MemoryCluster(time.now)
    cluster.objects["CronJob", "eval-gsm8k"] = cron_job()
    return Scene(
        client, tag, time, Stage(dies_at), cluster, trial_playbook(), lambda: {"thrash": 2.8},
        answers={}, alerts=[builders.alert()],
    )  # fmt: skip


def shipped_signals(cluster: MemoryCluster) -> Script:
    """The thrash of the captures until the fleet has the cap; the canary is calm from the beginning."""
    replicas = {"llm-1": 2.8, "llm-2": 2.6, "llm-3": 3.0, "llm-4": 2.8}

    def script() -> dict[str, Any]:
        is_capped = bool({"--max-num-seqs=6", "--max-num-active-seqs=6"} & set(cluster.flags()))
        return {
            "thrash": 0.0 if is_capped else 2.8,
            "preempted": 0.0 if is_capped else 300.0,
            "no_progress": {"bad": 0.0, "worst": "llm-1", "least": 0.0, "hung": 0.0, "names": ""},
            "limits": {"prefix_caching": False},
            "kv_usage": 0.6 if is_capped else 0.99,
            "running": 6.0 if is_capped else 44.0,
            "waiting": 0.0 if is_capped else 4.0,
            "stall": False,
            "arrivals": 1.7,
            "ttft_p99": 0.3,
            "tpot_p99": 0.02,
            "output_p95": 700.0,
            "progress": {"exists": True, "running": False},
            "others": {"acted": False, "who": ""},
            "memory": {"least_free": 5.0},
            "canary_edits": {"canary": True, "ready": True, "edits": "--max-num-seqs"},
            "canary_restarts": {"count": 0.0, "oom": False, "crashed": False},
            "recurrence": {"count": 1.0, "incidents": "INC-1"},
            "prompt_length": 96.0,
            "asked_prompt": 96.0,
            "asked_answer": 512.0,
            "queue": 0.0,
            "output_length": 512.0,
            "thrash_by_replica": replicas,
            "usage_by_replica": dict.fromkeys(replicas, 0.99),
            "arrivals_by_replica": dict.fromkeys(replicas, 0.5),
            "canary_usage": 0.6,
            "canary_thrash": 0.0,
            "canary_stall": False,
            "node": {"healthy": True, "fault": False, "thermal": False},
            "restarts": {"count": 0.5, "oom": False, "crashed": False},
            "last_words": {"why": "none"},
            "rollout": {"happened": False, "matters": False, "by_bot": False},
            "engine_flags": {"max_num_seqs": 64.0, "version": "0.30.0"},
            "kv_budget": {"tokens": 4064.0, "block_size": 16.0, "blocks": 254.0},
            "rotation": {"ready": 4.0, "in_rotation": 4.0, "wanted": 4.0},
            "drain_mode": {"mode": "native"},
            "capacity": {"free_gpus": 8.0, "replicas_that_fit": 8.0},
        }

    return script


async def shipped_scene(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Scene:
    """The main way of the shipped playbook: the cap on a canary, then on the fleet, verified, the canary removed."""
    time = VirtualTime(client, tag)
    await time.start()
    cluster = MemoryCluster(time.now)
    return Scene(
        client, tag, time, Stage(dies_at), cluster, shipped_playbook(), shipped_signals(cluster),
        answers={}, alerts=[builders.alert()],
    )  # fmt: skip


async def storm_scene(client: aioredis.Redis, tag: str, dies_at: tuple[int, Side] | None = None) -> Scene:
    """Four incidents at once that need nobody, and a card every four seconds."""
    time = VirtualTime(client, tag)
    await time.start()
    cluster = MemoryCluster(time.now)
    return Scene(
        client, tag, time, Stage(dies_at), cluster, quiet_playbook(), lambda: {"thrash": 0.0}, answers={},
        alerts=[builders.alert(fingerprint=f"f{number}", deployment=f"llm-{number}") for number in range(4)],
        people_are_there=False, cards=(1, 4.0),
    )  # fmt: skip
