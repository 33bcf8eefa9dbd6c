"""A rollout that cannot finish is recognised by its pods, reported, and undone; refused evictions give a reason."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Plan, Wait
from bot.domain.changes.progress import Progress, progress
from bot.domain.changes.startup import recorded_start_seconds, with_own_start_time
from bot.domain.cluster.objects import ObjectRef
from bot.domain.cluster.rollout import template_digest
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.adapters.kubernetes.lab import CAP, LLM, PODS, Lab, available, names, with_ledger
from tests.processes import Running, start

A_MINUTE = 60.0


@pytest.fixture
def cluster_process() -> Iterator[Running]:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--die-with-parent") as running:
        yield running


@pytest.fixture
async def living(cluster_process: Running) -> AsyncIterator[Lab]:
    """The same lab with a simulated fleet behind it: engines that parse their flags, start, load and refuse."""
    url = cluster_process.url
    with start("bot.sandbox.fleet", "--api", url, "--startup-seconds", "0.3", "--die-with-parent"):
        async with KubernetesClient(Connection(url=url)) as client, httpx.AsyncClient(base_url=url) as door:
            reader = KubernetesReader(client, cluster_wide_seconds=0.0)
            made = Lab(
                url=url,
                client=client,
                reader=reader,
                cluster=KubernetesCluster(client, name="sandbox", reader=reader),
                writer=KubernetesWriter(client, reader),
                door=door,
            )
            await made.until_seen("four replicas are Ready", lambda snapshot: len(made.serving(snapshot)) == 4)
            yield made


async def roll(lab: Lab, **container: Any) -> Wait:
    """Somebody's edit of the container, and the wait that would judge its rollout."""
    found = await lab.get(LLM)
    template = found["spec"]["template"]
    template["spec"]["containers"][0].update(container)
    await lab.somebody_patches(LLM, {"spec": {"template": {"spec": {"containers": template["spec"]["containers"]}}}})
    about = ObjectRef(kind="Deployment", namespace="serving", name="llm", uid=found["metadata"]["uid"])
    parameters = {"template": template_digest((await lab.get(LLM))["spec"]["template"])}
    return Wait(condition="rolled_out", about=about, parameters=parameters, within_seconds=60, title="rolled out")


async def failure_of(lab: Lab, wait: Wait) -> Progress:
    found: list[Progress] = []

    def has_failed(snapshot: ClusterSnapshot) -> bool:
        found.append(progress(wait, snapshot))
        return found[-1].state == "failed"

    await lab.until_seen("the rollout is called failed", has_failed)
    return found[-1]


async def test_an_engine_that_refuses_its_flags_is_recognised_by_its_exit(living: Lab) -> None:
    args = (await living.get(LLM))["spec"]["template"]["spec"]["containers"][0]["args"]
    wait = await roll(living, args=[*args, "--swap-space=4"])
    status = await failure_of(living, wait)
    assert "the engine refuses its command line" in status.text
    assert len(living.serving(await living.snapshot())) == 4


async def test_an_image_that_cannot_be_pulled_is_reported_by_its_name(lab: Lab) -> None:
    wait = await roll(lab, image="registry.example/bad:v1")
    assert "image registry.example/bad:v1 cannot be pulled" in (await failure_of(lab, wait)).text


async def test_a_surge_pod_without_room_is_recognised_within_a_minute(lab: Lab) -> None:
    """The clock of the snapshot is moved, not waited for."""
    plan = await lab.plan("set_flags", edits=CAP)
    for number in (1, 2, 3):
        await lab.somebody_patches(f"/api/v1/nodes/gpu-node-{number}", {"spec": {"unschedulable": True}})
    assert (await lab.send(plan)).result == "done"
    (wait,) = (step for step in plan.steps if isinstance(step, Wait))

    def is_turned_down(snapshot: ClusterSnapshot) -> bool:
        pods = [pod for pod in snapshot.pods if not pod["spec"].get("nodeName")]
        return any(
            one.get("reason") == "Unschedulable" for pod in pods for one in pod["status"].get("conditions") or []
        )

    snapshot = await lab.until_seen("the scheduler turned the surge pod down", is_turned_down)
    assert progress(wait, snapshot).state == "pending"
    later = replace(snapshot, at=time.time() + A_MINUTE)
    status = progress(wait, later)
    assert (status.state, "cannot be scheduled" in status.text) == ("failed", True)
    await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="last"))
    assert len(lab.serving(await lab.snapshot())) == 4


async def test_a_replica_is_given_twice_the_time_that_its_own_replicas_took(living: Lab) -> None:
    snapshot = await living.snapshot()
    recorded = recorded_start_seconds(snapshot)
    assert recorded is not None
    assert with_own_start_time(PlanContext(incident_id="INC-42"), snapshot).startup_seconds == max(180.0, 2 * recorded)


# --- evictions --------------------------------------------------------------------------------------------------------


async def eviction(lab: Lab) -> Plan:
    return await lab.plan("replace_replica", replica=sorted(names(await lab.snapshot()))[0])


async def test_a_budget_that_its_controller_has_not_seen_says_when_to_come_back(lab: Lab) -> None:
    plan = await eviction(lab)
    (await lab.door.put("/__sandbox__/paused-controllers", json=["disruption"])).raise_for_status()
    budget = "/apis/policy/v1/namespaces/serving/poddisruptionbudgets/llm"
    await lab.somebody_patches(budget, {"spec": {"minAvailable": 2}})
    sent = await lab.send(plan)
    assert (sent.result, sent.retry_after_seconds) == ("failed", 10.0)
    assert "still being processed" in sent.detail
    (await lab.door.put("/__sandbox__/paused-controllers", json=[])).raise_for_status()
    await lab.until_seen(
        "the budget is worked out again",
        lambda w: w.pdbs[0]["status"]["observedGeneration"] == w.pdbs[0]["metadata"]["generation"],
    )
    assert (await lab.send(plan)).result == "done"


async def test_a_replica_that_is_gone_already_needs_no_eviction(lab: Lab) -> None:
    plan = await eviction(lab)
    name = plan.calls[0].target.name
    (await lab.door.delete(f"{PODS}/{name}")).raise_for_status()
    await lab.until_seen("it is gone", lambda snapshot: name not in names(snapshot))
    sent = await lab.send(plan)
    assert (sent.result, "gone already" in sent.detail) == ("done", True)


async def test_a_replica_of_the_same_name_that_is_another_one_is_left_alone(lab: Lab) -> None:
    call = (await eviction(lab)).calls[0]
    other = call.model_copy(update={"target": call.target.model_copy(update={"uid": "another"})})
    sent = await lab.send(Plan(verb="replace_replica", title="x", steps=(other,), risk="low"))
    assert (sent.result, sent.detail.startswith("changed by somebody else")) == ("failed", True)


async def test_a_rollout_in_place_goes_on_beside_replicas_that_no_node_takes(lab: Lab) -> None:
    await lab.somebody_patches(LLM, {"spec": {"replicas": 14}})
    await lab.until_seen("there is room for 12 of 14", lambda seen: (available(seen), len(seen.pods)) == (12, 14))
    plan = await lab.plan("set_flags", edits=CAP)
    await lab.carry_out(plan)
    after = await lab.snapshot()
    assert len(lab.serving(after)) == 12
    assert all("--max-num-seqs=6" in pod["spec"]["containers"][0]["args"] for pod in after.pods)


async def test_a_recreated_fleet_that_is_down_is_rolled_back(lab: Lab) -> None:
    recreate = {"type": "Recreate", "rollingUpdate": None}
    broken = {"metadata": {"annotations": {"sandbox/ready": "false"}}}
    await lab.somebody_patches(LLM, {"spec": {"strategy": recreate, "template": broken}})
    await lab.until_seen("nothing is available", lambda seen: available(seen) == 0)
    await lab.carry_out(await lab.plan("rollback"))
    after = await lab.snapshot()
    assert len(lab.serving(after)) == 4
    assert after.workload is not None
    assert after.workload["spec"]["strategy"] == {"type": "Recreate"}
