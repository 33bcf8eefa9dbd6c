"""Held rolling updates: only emptied, chosen replicas are terminated, and the number that serves never drops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Plan, Wait
from bot.domain.cluster.objects import is_going_away, labels_of, name_of
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.rotation import OUT_VALUE
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.adapters.kubernetes.lab import CAP, LLM, LOOK_SECONDS, PODS, Lab, granted, names, spec, with_ledger


@dataclass
class Watched:
    """What an onlooker saw during a rollout."""

    last_labels: dict[str, dict[str, str]] = field(default_factory=dict)
    fewest_serving: int = 99

    def look(self, lab: Lab, snapshot: ClusterSnapshot) -> None:
        self.fewest_serving = min(self.fewest_serving, len(lab.serving(snapshot)))

    def ended_in_rotation(self, left: set[str]) -> list[str]:
        gone = self.last_labels.keys() - left
        assert gone, "no replica was seen to end"
        return [name for name in gone if self.last_labels[name].get("serving") != OUT_VALUE]


@asynccontextmanager
async def onlooker(lab: Lab) -> AsyncIterator[Watched]:
    seen = Watched()

    async def look() -> None:
        while True:
            seen.look(lab, await lab.snapshot())
            await asyncio.sleep(LOOK_SECONDS)  # between two looks

    async def watch(events: AsyncIterator[str]) -> None:
        # Every state of every pod: between two looks a pod may leave rotation and be gone.
        async for line in events:
            pod = json.loads(line)["object"]
            seen.last_labels[name_of(pod)] = labels_of(pod)

    async with lab.door.stream("GET", PODS, params={"watch": "true", "labelSelector": "app=llm"}, timeout=None) as pods:
        tasks = [asyncio.create_task(look()), asyncio.create_task(watch(pods.aiter_lines()))]
        try:
            yield seen
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def with_short_grace(lab: Lab) -> None:
    """The engine's own drain does not fit the grace period any more, so that only the label empties a replica."""
    patch = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 30}}}}
    await lab.somebody_patches(LLM, patch)

    def is_rolled(snapshot: ClusterSnapshot) -> bool:
        assert snapshot.workload is not None
        return rollout_state(snapshot.workload).is_complete and len(lab.serving(snapshot)) == len(snapshot.pods) == 4

    snapshot = await lab.until_seen("the new template runs everywhere", is_rolled)
    assert drain_mode(snapshot).mode == "label"


def flags(pod: Obj) -> list[str]:
    found: list[str] = pod["spec"]["containers"][0]["args"]
    return found


@pytest.mark.parametrize(("verb", "arguments"), [("set_flags", {"edits": CAP}), ("restart", {}), ("rollback", {})])
async def test_every_replica_is_emptied_before_it_ends_and_never_fewer_serve(
    lab: Lab, verb: str, arguments: dict[str, Any]
) -> None:
    await with_short_grace(lab)
    before, old = await spec(lab), names(await lab.snapshot())
    plan = await lab.plan(verb, **arguments)
    async with onlooker(lab) as seen:
        await lab.carry_out(plan)
    left = names(await lab.snapshot())
    assert (len(left), left & old, seen.ended_in_rotation(left)) == (4, set(), [])
    assert seen.fewest_serving >= 4
    after = await spec(lab)
    assert {**after, "template": None} == {**before, "template": None}


async def test_a_held_rollout_is_taken_back_as_gently_and_leaves_no_trace(lab: Lab) -> None:
    await with_short_grace(lab)
    before = await spec(lab)
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.carry_out(plan)
    async with onlooker(lab) as seen:
        await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="last"))
    assert await spec(lab) == before
    assert (seen.fewest_serving >= 4, seen.ended_in_rotation(names(await lab.snapshot()))) == (True, [])


async def stopped_after(lab: Lab, plan: Plan, releases: int) -> Plan:
    """The calls up to the given release carried out, as if the bot were halted then; the plan as far as it came."""
    approved, done, left = granted(plan), [], releases
    for number, step in enumerate(plan.steps):
        done.append(step)
        if isinstance(step, Wait):
            await lab.until_done(step)
        else:
            assert (await lab.writer.send(approved, step, call_id=f"INC-42/R1/{number}")).result == "done", step.title
        left -= isinstance(step, Wait) and step.condition == "released"
        if not left:
            break
    return plan.model_copy(update={"steps": tuple(done)})


async def test_a_bot_that_stops_half_way_leaves_a_rollout_that_ends_nobody(lab: Lab) -> None:
    await with_short_grace(lab)
    before, old = await spec(lab), names(await lab.snapshot())
    so_far = await stopped_after(lab, await lab.plan("set_flags", edits=CAP), releases=1)

    def is_half_way(seen: ClusterSnapshot) -> bool:
        rollout = rollout_state(seen.workload or {})
        return (len(lab.serving(seen)), rollout.total, rollout.updated) == (5, 5, 2)

    # The new ones are Ready, and a rollout that is not held would end the next old one now.
    snapshot = await lab.until_seen("both new replicas serve, and the Deployment knows it", is_half_way)
    assert (len(names(snapshot) & old), [p for p in snapshot.pods if is_going_away(p)]) == (3, [])
    async with onlooker(lab) as seen:
        await lab.carry_out(await lab.plan("undo", with_ledger(so_far), of="last"))
    assert await spec(lab) == before
    left = names(await lab.snapshot())
    assert (len(left & old), seen.ended_in_rotation(left), seen.fewest_serving >= 4) == (3, [], True)


async def test_a_deploy_that_overtakes_a_held_rollout_goes_on_once_that_is_taken_back(lab: Lab) -> None:
    await with_short_grace(lab)
    before = await spec(lab)
    done = await stopped_after(lab, await lab.plan("set_flags", edits=CAP), 1)
    (container,) = before["template"]["spec"]["containers"]
    deployed = [{**container, "args": [*container["args"], "--seed=3"]}]
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": {"containers": deployed}}}})
    await lab.carry_out(await lab.plan("undo", with_ledger(done), of="last"))
    after = await spec(lab)
    assert {**after, "template": None} == {**before, "template": None}
    snapshot = await lab.snapshot()
    assert ["--seed=3" in flags(pod) for pod in snapshot.pods] == [True] * 4
