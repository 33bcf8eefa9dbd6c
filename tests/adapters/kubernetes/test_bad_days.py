"""What goes wrong between a plan and its end: no room, somebody else's hands, a crash right after a call."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.change.capacity import Capacity, capacity_of
from bot.domain.change.plan import Wait
from bot.domain.change.planning import plan_change
from bot.domain.change.progress import progress
from bot.domain.change.world import World
from tests.adapters.kubernetes.lab import CONTEXT, LLM, Lab
from tests.adapters.kubernetes.test_changes_end_to_end import CAP, names, spec, with_ledger
from tests.adapters.kubernetes.test_other_kinds import template

DEPLOYMENTS = "/apis/apps/v1/namespaces/serving/deployments"


async def fill(lab: Lab, gpus: int) -> None:
    """Somebody else takes this many GPUs."""
    labels = {"app": "batch"}
    wanted = {"replicas": gpus, "selector": {"matchLabels": labels}, "template": template(labels)}
    await lab.somebody_creates(DEPLOYMENTS, {"metadata": {"name": "batch"}, "spec": wanted})
    await lab.until_seen(f"{gpus} more GPUs are taken", lambda world: len(placed(world)) == 4 + gpus)


def placed(world: World) -> list[Any]:
    return [pod for pod in world.all_pods if pod["spec"].get("nodeName")]


async def test_without_a_gpu_for_the_surge_nothing_is_planned(lab: Lab) -> None:
    await fill(lab, 8)
    result = plan_change("set_flags", {"edits": CAP}, await lab.world(), CONTEXT)
    assert result.outcome == "impossible"
    assert "the surge pod cannot be scheduled: 0 free accelerators" in result.reason


async def test_a_waiting_pod_that_no_node_can_take_holds_no_room_back(lab: Lab) -> None:
    labels = {"app": "batch"}
    picky = template(labels)
    picky["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4"
    wanted = {"replicas": 1, "selector": {"matchLabels": labels}, "template": picky}
    await lab.somebody_creates(DEPLOYMENTS, {"metadata": {"name": "batch"}, "spec": wanted})
    await lab.until_seen("it waits", lambda world: len(world.all_pods) == 5 and len(placed(world)) == 4)
    found = capacity_of(await lab.world())
    assert isinstance(found, Capacity)
    assert (found.replicas_that_fit, found.waiting) == (8, 0)


async def test_a_rollout_that_lost_its_room_is_taken_back_without_any(lab: Lab) -> None:
    before = await spec(lab)
    plan = await lab.plan("set_flags", edits=CAP)
    await fill(lab, 8)
    assert (await lab.send(plan)).result == "done"
    wait = next(step for step in plan.steps if isinstance(step, Wait))
    await lab.until_seen("the surge pod waits", lambda world: len(world.pods) == 5)
    assert progress(wait, await lab.world()).state == "pending"
    assert len(lab.serving(await lab.world())) == 4
    await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="last"))
    assert await spec(lab) == before


async def test_somebody_elses_edit_during_a_rollout_ends_the_wait_and_is_not_undone(lab: Lab) -> None:
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.send(plan)
    containers = (await spec(lab))["template"]["spec"]["containers"]
    containers[0]["args"] = ["--max-num-seqs=7"]
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": {"containers": containers}}}})
    wait = next(step for step in plan.steps if isinstance(step, Wait))
    said = progress(wait, await lab.world())
    assert (said.state, said.text) == ("failed", "somebody else changed the template while it rolled out")
    result = plan_change("undo", {"of": "last"}, await lab.world(), with_ledger(plan))
    assert (result.outcome, "the world moved on" in result.reason) == ("impossible", True)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        pytest.param("set_flags", {"edits": CAP}, id="set_flags"),
        pytest.param("scale", {"by": 1}, id="scale"),
        pytest.param("canary", {"edits": CAP}, id="canary"),
        pytest.param("isolate_replica", {"replica": "<pod>"}, id="isolate"),
        pytest.param("replace_replica", {"replica": "<pod>"}, id="replace"),
    ],
)
async def test_after_a_crash_between_call_and_outcome_the_call_is_found_done(
    lab: Lab, verb: str, arguments: dict[str, Any]
) -> None:
    first = sorted(names(await lab.world()))[0]
    given: dict[str, Any] = {key: first if value == "<pod>" else value for key, value in arguments.items()}
    plan = await lab.plan(verb, **given)
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "not_done"
    assert (await lab.send(plan)).result == "done"
    # Whoever comes after the crash knows nothing but the claim: it looks before it sends.
    assert await lab.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"
    assert len(await lab.mutations()) == 1
