"""Every call of every verb, interrupted: a lookup finds the result of the attempt, and the call succeeds once."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.changes.plan import Call, Plan, Wait
from tests.adapters.kubernetes.lab import CAP, LLM, Lab, granted, names, with_ledger
from tests.adapters.kubernetes.test_held_rollout import with_short_grace
from tests.adapters.kubernetes.test_jobs import CRON_JOBS, template

METHODS = {"patch": "PATCH", "create": "POST", "delete": "DELETE", "evict": "POST"}
RESOURCES = {"Deployment": "deployments", "Pod": "pods", "Node": "nodes", "Job": "jobs"}


def fault_match(call: Call) -> str:
    part = "eviction" if call.method == "evict" else call.subresource
    return f"{METHODS[call.method]} {RESOURCES[call.target.kind]}" + (f"/{part}" if part else "")


async def settle_each(lab: Lab, plan: Plan) -> None:
    """Each call dropped before it arrives, then carried out with its reply lost; each wait seen."""
    approved = granted(plan)
    for number, step in enumerate(plan.steps):
        if isinstance(step, Wait):
            await lab.until_done(step)
            continue
        call_id, match = f"INC-42/R9/{number}", fault_match(step)
        before = len(await lab.mutations())
        # aiohttp sends a DELETE again by itself when a kept connection ends; its uid precondition makes that harmless.
        times = 2 if step.method == "delete" else 1
        await lab.fault(match, "drop", count=times)
        assert (await lab.writer.send(approved, step, call_id=call_id)).result == "unclear", step.title
        assert await lab.writer.look(step, call_id=call_id) == "not_done", step.title
        await lab.fault(match, "lost_reply", count=times)
        assert (await lab.writer.send(approved, step, call_id=call_id)).result == "unclear", step.title
        if len(await lab.mutations()) == before:
            # The kept connection was ending since the drop, so this one did not arrive either.
            assert await lab.writer.look(step, call_id=call_id) == "not_done", step.title
            assert (await lab.writer.send(approved, step, call_id=call_id)).result == "unclear", step.title
        assert await lab.writer.look(step, call_id=call_id) == "done", step.title
        if step.method in ("patch", "create"):
            # What ends a pod or a canary is sent again by nobody: looking says that it is done.
            await lab.writer.send(approved, step, call_id=call_id)
        assert len(await lab.mutations()) == before + 1, f"{step.title} won twice"


async def busy_node(lab: Lab) -> str:
    return str((await lab.snapshot()).pods[0]["spec"]["nodeName"])


async def first(lab: Lab) -> str:
    return sorted(names(await lab.snapshot()))[0]


async def after(lab: Lab, verb: str, **arguments: Any) -> Plan:
    plan = await lab.plan(verb, **arguments)
    await lab.carry_out(plan)
    return plan


async def planned(lab: Lab, name: str) -> Plan:
    """The plan of a verb, in a snapshot where it is possible and has every kind of call that it can have."""
    match name:
        case "return_replica":
            await after(lab, "isolate_replica", replica=await first(lab))
        case "remove_canary" | "promote":
            await after(lab, "canary", edits=CAP)
        case "rotate_canary":
            await after(lab, "canary", edits=CAP, rotation="out")
        case "uncordon_node":
            await after(lab, "cordon_node", node="gpu-node-1")
        case "rollback":
            await after(lab, "set_flags", edits=CAP)
        case "undo":
            done = await after(lab, "scale", by=1)
            return await lab.plan("undo", with_ledger(done), of="last")
        case "run_job":
            await lab.somebody_creates(CRON_JOBS, template())
        case "held rollout":
            await with_short_grace(lab)
    replica, node = {"replica": await first(lab)}, {"node": await busy_node(lab)}
    arguments: dict[str, dict[str, Any]] = {
        "scale": {"by": -1},
        "set_flags": {"edits": CAP},
        "held rollout": {"edits": CAP},
        "canary": {"edits": CAP, "rotation": "out"},
        "rotate_canary": {"rotation": "in"},
        "isolate_replica": replica,
        "replace_replica": replica,
        "return_replica": replica,
        "cordon_node": node,
        "uncordon_node": {"node": "gpu-node-1"},
        "drain_node": node,
        "run_job": {"template": "eval"},
    }
    return await lab.plan("set_flags" if name == "held rollout" else name, **arguments.get(name, {}))


async def settle_each_late(lab: Lab, plan: Plan) -> None:
    """Each call is carried out only while it is sent again, since its answer took too long; each wait seen."""
    impatient = KubernetesWriter(lab.client, lab.reader, deadline_seconds=0.2)
    approved = granted(plan)
    for number, step in enumerate(plan.steps):
        if isinstance(step, Wait):
            await lab.until_done(step)
            continue
        call_id, before = f"INC-42/R9/{number}", len(await lab.mutations())
        await lab.fault(fault_match(step), "late")
        assert (await impatient.send(approved, step, call_id=call_id)).result == "unclear", step.title
        assert await lab.writer.look(step, call_id=call_id) == "not_done", step.title
        await lab.writer.send(approved, step, call_id=call_id)
        assert await lab.writer.look(step, call_id=call_id) == "done", step.title
        # An API server accepts the eviction of a pod that is going away already; its uid makes that harmless.
        if step.method != "evict":
            assert len(await lab.mutations()) == before + 1, f"{step.title} won twice"


VERBS = pytest.mark.parametrize(
    "name",
    [
        "scale",
        "set_flags",
        "held rollout",
        "rollback",
        "restart",
        "canary",
        "rotate_canary",
        "promote",
        "remove_canary",
        "isolate_replica",
        "replace_replica",
        "return_replica",
        "cordon_node",
        "uncordon_node",
        "drain_node",
        "run_job",
        "undo",
    ],
)


@VERBS
async def test_a_call_that_won_while_it_was_sent_again_is_known_as_done(lab: Lab, name: str) -> None:
    await settle_each_late(lab, await planned(lab, name))


@VERBS
async def test_every_call_is_settled_after_a_crash_and_wins_once(lab: Lab, name: str) -> None:
    await settle_each(lab, await planned(lab, name))


async def test_a_drained_node_is_empty_of_ours_and_stays_cordoned(lab: Lab) -> None:
    node = await busy_node(lab)
    await lab.carry_out(await lab.plan("drain_node", node=node))
    snapshot = await lab.until_seen("four replicas serve again", lambda seen: len(lab.serving(seen)) == 4)
    assert node not in {pod["spec"]["nodeName"] for pod in snapshot.pods}
    assert (await lab.get(f"/api/v1/nodes/{node}"))["spec"]["unschedulable"] is True


async def test_a_canary_out_of_rotation_answers_nobody_until_it_is_let_in_and_its_edits_are_promoted(lab: Lab) -> None:
    before = names(await lab.snapshot())
    await lab.carry_out(await lab.plan("canary", edits=CAP, rotation="out"))

    async def listed() -> set[str]:
        snapshot = await lab.snapshot()
        return {e["targetRef"]["name"] for fragment in snapshot.endpoint_slices for e in fragment["endpoints"]}

    (canary,) = names(await lab.snapshot()) - before
    assert canary not in await listed()
    await lab.carry_out(await lab.plan("rotate_canary", rotation="in"))
    assert canary in await listed()
    await lab.carry_out(await lab.plan("promote"))
    found = await lab.get(LLM)
    assert "--max-num-seqs=6" in found["spec"]["template"]["spec"]["containers"][0]["args"]
    await lab.carry_out(await lab.plan("remove_canary"))
    assert (await lab.snapshot()).canary is None
