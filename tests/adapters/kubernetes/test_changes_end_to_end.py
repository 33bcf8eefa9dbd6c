"""Every verb from plan to seen, against controllers and a scheduler, and back again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bot.domain.change.context import PlanContext
from bot.domain.change.plan import LedgerEntry, Plan
from bot.domain.change.world import Obj, World
from tests.adapters.kubernetes.lab import CONTEXT, LLM, Lab

CAP = [{"flag": "--max-num-seqs", "value": 6.0}]


def with_ledger(plan: Plan) -> PlanContext:
    entries = tuple(
        LedgerEntry(
            call_id=f"INC-42/R1/{number}",
            state="s",
            verb=plan.verb,
            title=call.title,
            target=call.target,
            differences=call.differences,
            undo=call.undo,
            no_undo=call.no_undo,
            applied_at=0.0,
        )
        for number, call in enumerate(plan.calls)
    )
    return replace(CONTEXT, ledger=entries)


async def spec(lab: Lab) -> Obj:
    found: dict[str, Any] = (await lab.get(LLM))["spec"]
    return found


def names(world: World) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.pods}


async def test_flags_roll_out_to_every_replica_and_back(lab: Lab) -> None:
    before = await spec(lab)
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.carry_out(plan)
    for pod in (await lab.world()).pods:
        assert "--max-num-seqs=6" in pod["spec"]["containers"][0]["args"]
    await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="last"))
    assert await spec(lab) == before


async def test_a_rollback_goes_back_to_the_earlier_revision(lab: Lab) -> None:
    before = await spec(lab)
    await lab.carry_out(await lab.plan("set_flags", edits=CAP))
    plan = await lab.plan("rollback")
    assert [d.text for d in plan.calls[0].differences] == ["--max-num-seqs 6 → 64"]
    await lab.carry_out(plan)
    assert await spec(lab) == before


async def test_a_spare_serves_beside_the_workload_and_goes_without_a_trace(lab: Lab) -> None:
    before = names(await lab.world())
    await lab.carry_out(await lab.plan("canary", edits=CAP))
    world = await lab.world()
    (spare,) = (pod for pod in world.pods if pod["metadata"]["name"] not in before)
    listed = [e["targetRef"]["name"] for piece in world.endpoint_slices for e in piece["endpoints"]]
    assert spare["metadata"]["name"] in listed
    assert len(lab.serving(world)) == 4
    await lab.carry_out(await lab.plan("remove_canary"))
    assert names(await lab.world()) == before
    assert (await lab.world()).canary is None


async def test_scaling_out_and_its_undo_end_a_chosen_replica(lab: Lab) -> None:
    plan = await lab.plan("scale", by=1)
    await lab.carry_out(plan)
    assert len((await lab.world()).pods) == 5
    back = await lab.plan("undo", with_ledger(plan), of="last")
    victim = back.calls[0].target.name
    await lab.carry_out(back)
    left = names(await lab.world())
    assert (len(left), victim in left) == (4, False)


async def test_one_replica_is_isolated_replaced_and_serves_again(lab: Lab) -> None:
    name = sorted(names(await lab.world()))[0]
    await lab.carry_out(await lab.plan("isolate_replica", replica=name))
    world = await lab.world()
    assert name not in lab.serving(world)
    assert len(world.pods) == 4
    await lab.carry_out(await lab.plan("replace_replica", replica=name))
    world = await lab.until_seen("four replicas serve again", lambda seen: len(lab.serving(seen)) == 4)
    assert name not in names(world)


async def test_an_isolated_replica_can_be_returned(lab: Lab) -> None:
    name = sorted(names(await lab.world()))[0]
    await lab.carry_out(await lab.plan("isolate_replica", replica=name))
    await lab.carry_out(await lab.plan("return_replica", replica=name))
    assert name in lab.serving(await lab.world())


async def test_scaling_in_ends_the_replica_that_was_chosen(lab: Lab) -> None:
    plan = await lab.plan("scale", by=-1)
    await lab.carry_out(plan)
    left = names(await lab.world())
    assert (len(left), plan.calls[0].target.name in left) == (3, False)


async def test_planning_again_while_nothing_relevant_changes_gives_the_same_digest(lab: Lab) -> None:
    first = await lab.plan("set_flags", edits=CAP)
    await lab.somebody_patches(LLM, {"metadata": {"annotations": {"somebody": "was here"}}})
    assert (await lab.plan("set_flags", edits=CAP)).digest == first.digest
