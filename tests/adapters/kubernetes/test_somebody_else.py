"""What people and controllers do by hand behind the bot's back is seen in the cluster itself, value by value."""

from __future__ import annotations

from typing import Any

from bot.domain.change.interference import interference
from bot.domain.change.plan import Plan
from tests.adapters.kubernetes.lab import LLM, PODS, Lab
from tests.adapters.kubernetes.test_changes_end_to_end import CAP, names, with_ledger


async def said(lab: Lab, plan: Plan) -> list[str]:
    return [found.text for found in interference(with_ledger(plan).ledger, await lab.world())]


async def carried_out(lab: Lab, verb: str, **arguments: Any) -> Plan:
    result = await lab.plan(verb, **arguments)
    await lab.carry_out(result)
    assert await said(lab, result) == []
    return result


async def test_a_manual_uncordon(lab: Lab) -> None:
    plan = await carried_out(lab, "cordon_node", node="gpu-node-1")
    await lab.somebody_patches("/api/v1/nodes/gpu-node-1", {"spec": {"unschedulable": None}})
    assert await said(lab, plan) == ["Node gpu-node-1: /spec/unschedulable is not set, the bot left True"]


async def test_a_manual_scale(lab: Lab) -> None:
    plan = await carried_out(lab, "scale", by=1)
    await lab.somebody_patches(LLM, {"spec": {"replicas": 4}})
    assert await said(lab, plan) == ["Deployment serving/llm: /spec/replicas is 4, the bot left 5"]


async def test_a_manual_edit_of_a_flag(lab: Lab) -> None:
    plan = await carried_out(lab, "set_flags", edits=CAP)
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--max-num-seqs=32"]}
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": {"containers": [container]}}}})
    assert any("--max-num-seqs=32" in text and "--max-num-seqs=6" in text for text in await said(lab, plan))


async def test_a_manual_delete_of_an_isolated_replica(lab: Lab) -> None:
    name = sorted(names(await lab.world()))[0]
    plan = await carried_out(lab, "isolate_replica", replica=name)
    (await lab.door.delete(f"{PODS}/{name}")).raise_for_status()
    assert (await said(lab, plan))[0].startswith(f"Pod serving/{name} was deleted")


async def test_a_manual_delete_of_the_spare(lab: Lab) -> None:
    plan = await carried_out(lab, "canary", edits=CAP)
    (await lab.door.delete(LLM + "-incident-bot-canary-inc-42")).raise_for_status()
    assert len(await said(lab, plan)) == 1
