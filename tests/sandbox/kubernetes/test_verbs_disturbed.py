"""Failures between a plan and its end: no room, a budget, foreign changes, a crash right after a call.

As `test_verbs`, on the stand-in or a real cluster. No real cluster can be asked to drop a request or to lose a reply:
that is in `tests/adapters/kubernetes/test_settlement.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.changes.interference import interference
from bot.domain.changes.plan import Plan, Wait
from bot.domain.changes.planning import plan_change
from bot.domain.changes.progress import progress
from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.adapters.kubernetes.lab import CAP, CONTEXT, names, spec, with_ledger
from tests.sandbox.kubernetes.bench import NAME, REPLICAS, Bench
from tests.sandbox.kubernetes.cluster import MERGE_PATCH
from tests.sandbox.kubernetes.test_verbs import first, whole

ABSURD = "1000"
CALL_ID = "INC-42/R1/0"


# --- room -------------------------------------------------------------------------------------------------------------


async def room(bench: Bench) -> Capacity:
    found = capacity_of(await bench.snapshot())
    assert isinstance(found, Capacity), found
    return found


async def fill(bench: Bench) -> None:
    """Somebody else takes every accelerator that is left."""
    bench.require_room()
    free = (await room(bench)).free_total
    await bench.somebody.create_deployment(bench.deployment("batch", free, {"app": "batch"}), settled=False)

    def is_full(world: ClusterSnapshot) -> bool:
        found = capacity_of(world)
        return isinstance(found, Capacity) and found.free_total == found.waiting == 0

    await bench.until_seen("no accelerator is left", is_full)


async def test_without_a_gpu_for_the_surge_a_rollout_goes_in_place(bench: Bench) -> None:
    await fill(bench)
    result = plan_change("set_flags", {"edits": CAP}, await bench.snapshot(), CONTEXT)
    assert result.plan is not None, result.reason
    (room,) = [each for each in result.plan.circumstances if each.name == "room"]
    assert (room.grade, "no room for a surge pod" in room.text) == ("warning", True), room.text


async def test_a_waiting_pod_that_no_node_can_take_holds_no_room_back(bench: Bench) -> None:
    bench.require_room()
    before = (await room(bench)).replicas_that_fit
    batch = bench.deployment("batch", 1, {"app": "batch"})
    batch["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][bench.resource] = ABSURD
    await bench.somebody.create_deployment(batch, settled=False)
    await bench.until_seen("it waits", lambda world: any(is_unplaced(pod) for pod in world.all_pods if is_batch(pod)))
    found = await room(bench)
    assert (found.replicas_that_fit, found.waiting) == (before, 0)


def is_batch(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == "batch")


def is_unplaced(pod: dict[str, Any]) -> bool:
    return not pod["spec"].get("nodeName")


async def test_a_surge_that_lost_its_room_costs_no_replica_and_is_taken_back(bench: Bench) -> None:
    bench.require_room()
    before = await spec(bench)
    plan = await bench.plan("set_flags", edits=CAP)
    await fill(bench)
    assert (await bench.send(plan)).result == "done"
    await bench.until_seen("the surge pod waits", lambda world: any(is_unplaced(pod) for pod in world.pods))
    world = await bench.snapshot()
    assert progress(waited_for(plan), world).state == "pending"
    assert len(bench.serving(world)) == REPLICAS
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="last"))
    assert await spec(bench) == before


def waited_for(plan: Plan) -> Wait:
    return next(step for step in plan.steps if isinstance(step, Wait))


# --- budgets ----------------------------------------------------------------------------------------------------------


async def test_a_budget_that_is_used_up_refuses_the_eviction_and_a_later_one_is_done(bench: Bench) -> None:
    plan = await bench.plan("replace_replica", replica=await first(bench))
    await allow(bench, 0)
    sent = await bench.send(plan)
    assert (sent.result, sent.detail.startswith("429")) == ("failed", True)
    assert sent.retry_after_seconds
    assert await bench.writer.look(plan.calls[0], call_id=CALL_ID) == "not_done"
    await allow(bench, 1)
    assert (await bench.send(plan)).result == "done"


async def allow(bench: Bench, disruptions: int) -> None:
    path = bench.path(f"poddisruptionbudgets/{NAME}", "policy/v1")
    body = {"spec": {"minAvailable": REPLICAS - disruptions}}
    await bench.somebody.raw("PATCH", path, body, kind=MERGE_PATCH)
    await bench.somebody.budget_where(
        f"{disruptions} disruptions allowed", lambda status: status.get("disruptionsAllowed") == disruptions, NAME
    )


# --- somebody else ----------------------------------------------------------------------------------------------------


async def reported(bench: Bench, plan: Plan) -> list[str]:
    """Without the writer: its time has a resolution of a second and depends on the server."""
    found = interference(with_ledger(plan).ledger, await bench.snapshot())
    return [one.text.partition(" (written by ")[0] for one in found]


async def carried_out(bench: Bench, verb: str, **arguments: Any) -> Plan:
    plan = await bench.plan(verb, **arguments)
    await bench.carry_out(plan)
    assert await reported(bench, plan) == []
    return plan


async def test_somebody_elses_edit_between_plan_and_call_is_reported_and_nothing_is_sent(bench: Bench) -> None:
    plan = await bench.plan("set_flags", edits=CAP)
    await bench.somebody_edits_flags("tiny-llama", "--max-num-seqs=32")
    sent = await bench.send(plan)
    assert (sent.result, "changed by somebody else" in sent.detail) == ("failed", True)
    assert "--max-num-seqs=32" in (await spec(bench))["template"]["spec"]["containers"][0]["args"]
    assert await bench.writer.look(plan.calls[0], call_id=CALL_ID) == "unclear"


async def test_what_a_reloader_adds_during_a_rollout_is_rolled_out_too_and_stays_after_the_undo(bench: Bench) -> None:
    plan = await bench.plan("set_flags", edits=CAP)
    await bench.send(plan)
    added = {"reloader.stakater.com/last-reloaded-from": "1"}
    await bench.somebody_patches({"spec": {"template": {"metadata": {"annotations": added}}}})
    await bench.until_seen(
        "it is rolled out", lambda world: progress(waited_for(plan), world, calls=plan.calls).state == "done"
    )
    assert await reported(bench, plan) == []
    result = plan_change("undo", {"of": "last"}, await bench.snapshot(), with_ledger(plan))
    assert result.plan is not None
    await bench.carry_out(result.plan)
    assert (await spec(bench))["template"]["metadata"]["annotations"] == added


async def test_somebody_elses_edit_during_a_rollout_ends_the_wait_and_is_not_undone(bench: Bench) -> None:
    plan = await bench.plan("set_flags", edits=CAP)
    await bench.send(plan)
    await bench.somebody_edits_flags("tiny-llama", "--max-num-seqs=7")
    seen = progress(waited_for(plan), await bench.snapshot())
    assert (seen.state, seen.text) == ("failed", "somebody else changed the template while it rolled out")
    result = plan_change("undo", {"of": "last"}, await bench.snapshot(), with_ledger(plan))
    assert (result.outcome, "the object changed since" in result.reason) == ("impossible", True)


async def test_a_manual_scale_is_seen(bench: Bench) -> None:
    plan = await carried_out(bench, "scale", by=1)
    await bench.somebody_patches({"spec": {"replicas": REPLICAS}})
    workload = f"Deployment {bench.target.namespace}/{NAME}"
    assert await reported(bench, plan) == [f"{workload}: /spec/replicas is {REPLICAS}, the bot left {REPLICAS + 1}"]


async def test_a_manual_edit_of_a_flag_is_seen(bench: Bench) -> None:
    plan = await carried_out(bench, "set_flags", edits=CAP)
    await bench.somebody_edits_flags("tiny-llama", "--max-num-seqs=32")
    assert any("--max-num-seqs=32" in text and "--max-num-seqs=6" in text for text in await reported(bench, plan))


async def test_a_manual_uncordon_is_seen(bench: Bench) -> None:
    node = bench.nodes[0]
    plan = await carried_out(bench, "cordon_node", node=node)
    await bench.somebody.raw("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, kind=MERGE_PATCH)
    assert await reported(bench, plan) == [f"Node {node}: /spec/unschedulable is not set, the bot left True"]


async def test_a_manual_delete_of_an_isolated_replica_is_seen(bench: Bench) -> None:
    name = await first(bench)
    plan = await carried_out(bench, "isolate_replica", replica=name)
    await bench.somebody.core.delete_namespaced_pod(name, bench.target.namespace)
    await bench.until_seen("it is gone", lambda world: name not in names(world))
    assert (await reported(bench, plan))[0].startswith(f"Pod {bench.target.namespace}/{name} was deleted")


async def test_a_manual_delete_of_the_canary_is_seen(bench: Bench) -> None:
    plan = await carried_out(bench, "canary", edits=CAP)
    canary = plan.calls[0].target.name
    await bench.somebody.apps.delete_namespaced_deployment(canary, bench.target.namespace)
    await bench.until_seen("it is gone", lambda world: world.canary is None)
    assert len(await reported(bench, plan)) == 1


# --- a crash ----------------------------------------------------------------------------------------------------------


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
async def test_after_a_crash_between_call_and_outcome_the_call_is_found_done_and_wins_once(
    bench: Bench, verb: str, arguments: dict[str, Any]
) -> None:
    replica = await first(bench)
    given: dict[str, Any] = {key: replica if value == "<pod>" else value for key, value in arguments.items()}
    plan = await bench.plan(verb, **given)
    call = plan.calls[0]
    assert await bench.writer.look(call, call_id=CALL_ID) == "not_done"
    assert (await bench.send(plan)).result == "done"
    # The outcome is lost here: whoever comes after the crash knows nothing but the claim, and looks before it sends.
    assert await bench.writer.look(call, call_id=CALL_ID) == "done"
    if call.method == "patch":
        assert (await bench.send(plan)).result == "failed"
    elif call.method == "create":
        # Its name is taken, by what carries the stamp of this very call.
        assert (await bench.send(plan)).result == "done"
        pods = (await bench.snapshot()).pods
        assert len([pod for pod in pods if pod["metadata"]["name"].startswith(call.target.name)]) < 2
    else:
        world = await whole(bench)
        assert (replica in names(world), len(world.pods)) == (False, REPLICAS)
