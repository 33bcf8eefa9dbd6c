"""Every verb from plan to seen, against controllers and a scheduler, and back again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bot.domain.change.context import PlanContext
from bot.domain.change.plan import LedgerEntry, Plan
from bot.domain.change.world import Obj, World
from tests.adapters.kubernetes.lab import CONTEXT, LLM, Lab

FLAGS = "/api/v1/namespaces/serving/configmaps/flags"
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


async def test_flags_in_a_config_map_roll_out_and_back(lab: Lab) -> None:
    text = "max-num-seqs: 64  # cap\nseed: 1\n"
    config = {"kind": "ConfigMap", "metadata": {"name": "flags"}, "data": {"config.yaml": text}}
    answer = await lab.door.post("/api/v1/namespaces/serving/configmaps", json={"apiVersion": "v1", **config})
    answer.raise_for_status()
    pods = {
        "containers": [
            {"name": "vllm", "volumeMounts": [{"name": "flags", "mountPath": "/etc/vllm"}]}
            | {"image": "vllm/vllm-openai:v0.32.0", "command": ["vllm", "serve", "m"]}
            | {"args": ["--config=/etc/vllm/config.yaml"]}
        ],
        "volumes": [{"name": "flags", "configMap": {"name": "flags"}}],
    }
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": pods}}})
    await lab.until_seen("the new template serves", lambda world: _is_served(world, "--config=/etc/vllm/config.yaml"))
    before = await spec(lab)
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.carry_out(plan)
    assert (await lab.get(FLAGS))["data"]["config.yaml"] == text.replace("64", "6")
    assert (await spec(lab))["template"]["metadata"]["annotations"]["incident-bot/config"]
    await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="all"))
    assert (await lab.get(FLAGS))["data"]["config.yaml"] == text
    assert (await spec(lab))["template"]["spec"] == before["template"]["spec"]


def _is_served(world: World, word: str) -> bool:
    status = (world.workload or {})["status"]
    pods = [pod for pod in world.pods if word in pod["spec"]["containers"][0]["args"]]
    return len(pods) == len(world.pods) == 4 and status.get("availableReplicas") == status.get("replicas") == 4


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
