"""StatefulSets, LeaderWorkerSets and owned replica counts, from plan to seen, against their controllers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.progress import progress
from bot.domain.cluster.rotation import replicas_present
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.target import Target
from tests.adapters.kubernetes.lab import CAP, LLM, Lab, names, with_ledger
from tests.builders import alert

GROUPS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/serving/leaderworkersets"
SETS = "/apis/apps/v1/namespaces/serving/statefulsets"
SERVICES = "/api/v1/namespaces/serving/services"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/serving/horizontalpodautoscalers"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/serving/scaledobjects"
SET_NAME = "leaderworkerset.sigs.k8s.io/name"


def template(labels: dict[str, str], *args: str) -> Obj:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve", "tiny-llama"],
        "args": list(args),
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}


def service(name: str, **selector: str) -> Obj:
    spec = {"selector": selector, "ports": [{"port": 80, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def numbered(lab: Lab) -> Lab:
    """Three replicas `chat-0` to `chat-2` in rotation."""
    spec = {
        "replicas": 3,
        "serviceName": "chat",
        "selector": {"matchLabels": {"app": "chat"}},
        "template": template({"app": "chat", "serving": "active"}, "--max-num-seqs=64"),
    }
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "chat"}, "spec": spec}
    await lab.somebody_creates(SERVICES, service("chat", app="chat", serving="active"))
    await lab.somebody_creates(SETS, body)
    made = replace(lab, target=Target(cluster="sandbox", namespace="serving", kind="StatefulSet", name="chat"))
    await made.until_seen("three numbered replicas serve", lambda snapshot: len(made.serving(snapshot)) == 3)
    return made


@pytest.fixture
async def grouped(lab: Lab) -> Lab:
    """Two groups of a leader and a worker; the leaders are in rotation."""
    groups: Obj = {
        "size": 2,
        "leaderTemplate": template({"role": "leader"}, "--max-num-seqs=64"),
        "workerTemplate": template({"role": "worker"}),
    }
    groups["workerTemplate"]["spec"]["containers"][0] |= {"command": ["ray", "start", "--block"], "args": []}
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "big"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": groups},
    }
    await lab.somebody_creates(SERVICES, service("big", **{SET_NAME: "big", "role": "leader"}))
    await lab.somebody_creates(GROUPS, body)
    made = replace(lab, target=Target(cluster="sandbox", namespace="serving", kind="LeaderWorkerSet", name="big"))

    def are_whole(snapshot: Any) -> bool:
        return len(made.serving(snapshot)) == 2 and len(snapshot.workload["status"]) > 0 and ready_groups(snapshot) == 2

    await made.until_seen("two whole groups serve", are_whole)
    return made


def ready_groups(snapshot: Any) -> int:
    return int(snapshot.workload["status"].get("readyReplicas", 0))


def args_of(pod: Obj) -> list[str]:
    found: list[str] = pod["spec"]["containers"][0]["args"]
    return found


# --- StatefulSet ------------------------------------------------------------------------------------------------------


async def test_flags_roll_through_a_stateful_set_and_back_by_undo_and_by_rollback(numbered: Lab) -> None:
    plan = await numbered.plan("set_flags", edits=CAP)
    await numbered.carry_out(plan)
    assert [args_of(pod) for pod in (await numbered.snapshot()).pods] == [["--max-num-seqs=6"]] * 3
    await numbered.carry_out(await numbered.plan("undo", with_ledger(plan), of="last"))
    assert [args_of(pod) for pod in (await numbered.snapshot()).pods] == [["--max-num-seqs=64"]] * 3
    back = await numbered.plan("rollback")
    assert [d.text for d in back.calls[0].differences] == ["--max-num-seqs 64 → 6"]
    await numbered.carry_out(back)
    assert [args_of(pod) for pod in (await numbered.snapshot()).pods] == [["--max-num-seqs=6"]] * 3


async def test_a_stateful_set_whose_new_pod_never_becomes_ready_is_rolled_back(numbered: Lab) -> None:
    containers = [{**template({})["spec"]["containers"][0], "image": "registry.example/bad:v1"}]
    await numbered.somebody_patches(f"{SETS}/chat", {"spec": {"template": {"spec": {"containers": containers}}}})
    stuck = await numbered.until_seen("chat-2 has no image", lambda seen: "ImagePullBackOff" in str(seen.pods))
    kept = {pod["metadata"]["uid"] for pod in stuck.pods if pod["metadata"]["name"] != "chat-2"}
    await numbered.carry_out(await numbered.plan("rollback"))
    after = await numbered.snapshot()
    assert len(numbered.serving(after)) == 3
    assert kept <= {pod["metadata"]["uid"] for pod in after.pods}, "those that served go on"


async def test_a_stateful_set_is_scaled_out_and_its_highest_number_ends_on_the_way_back(numbered: Lab) -> None:
    plan = await numbered.plan("scale", by=1)
    await numbered.carry_out(plan)
    assert names(await numbered.snapshot()) == {"chat-0", "chat-1", "chat-2", "chat-3"}
    await numbered.carry_out(await numbered.plan("undo", with_ledger(plan), of="last"))
    assert names(await numbered.snapshot()) == {"chat-0", "chat-1", "chat-2"}


async def test_a_numbered_replica_is_isolated_returned_and_replaced_under_its_name(numbered: Lab) -> None:
    await numbered.carry_out(await numbered.plan("isolate_replica", replica="chat-1"))
    assert sorted(numbered.serving(await numbered.snapshot())) == ["chat-0", "chat-2"]
    await numbered.carry_out(await numbered.plan("return_replica", replica="chat-1"))
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in (await numbered.snapshot()).pods}
    await numbered.carry_out(await numbered.plan("replace_replica", replica="chat-1"))
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in (await numbered.snapshot()).pods}
    assert {name for name in before if before[name] != after[name]} == {"chat-1"}


# --- LeaderWorkerSet --------------------------------------------------------------------------------------------------


async def test_flags_roll_through_groups_and_back(grouped: Lab) -> None:
    plan = await grouped.plan("set_flags", edits=CAP)
    await grouped.carry_out(plan)
    assert [args_of(pod) for pod in replicas_present(await grouped.snapshot())] == [["--max-num-seqs=6"]] * 2
    await grouped.carry_out(await grouped.plan("undo", with_ledger(plan), of="last"))
    assert [args_of(pod) for pod in replicas_present(await grouped.snapshot())] == [["--max-num-seqs=64"]] * 2


async def test_a_group_is_added_with_all_of_its_pods(grouped: Lab) -> None:
    await grouped.carry_out(await grouped.plan("scale", by=1))
    assert names(await grouped.snapshot()) == {"big-0", "big-0-1", "big-1", "big-1-1", "big-2", "big-2-1"}


async def test_a_group_is_isolated_and_replaced_as_one(grouped: Lab) -> None:
    await grouped.carry_out(await grouped.plan("isolate_replica", replica="big-1"))
    assert grouped.serving(await grouped.snapshot()) == ("big-0",)
    before = {pod["metadata"]["uid"] for pod in (await grouped.snapshot()).pods}
    await grouped.carry_out(await grouped.plan("replace_replica", replica="big-1-1"))
    after = await grouped.snapshot()
    kept = {pod["metadata"]["name"] for pod in after.pods if pod["metadata"]["uid"] in before}
    assert kept == {"big-0", "big-0-1"}
    assert sorted(grouped.serving(after)) == ["big-0", "big-1"]


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [{"pod": "big-1-1"}, {"pod": "big-0"}, {"pod": "big-7"}, {"statefulset": "big-0"}, {"service": "big"}]
)
async def test_an_alert_about_any_part_of_a_group_leads_to_its_set(grouped: Lab, labels: dict[str, str]) -> None:
    assert await grouped.cluster.resolve(bare(**labels)) == grouped.target
    assert await grouped.cluster.workload(grouped.target.namespace, grouped.target.name) == grouped.target


@pytest.mark.parametrize("labels", [{"pod": "chat-1"}, {"pod": "chat-7"}, {"statefulset": "chat"}, {"job": "chat"}])
async def test_an_alert_about_a_numbered_replica_leads_to_its_stateful_set(
    numbered: Lab, labels: dict[str, str]
) -> None:
    assert await numbered.cluster.resolve(bare(**labels)) == numbered.target


def bare(**labels: str) -> Any:
    """An alert with these labels, and with none that names another workload."""
    given = alert()
    kept = {key: value for key, value in given.labels.items() if key not in ("deployment", "pod", "service", "job")}
    return given.model_copy(update={"labels": kept | {"namespace": "serving"} | labels})


# --- owned replica counts ---------------------------------------------------------------------------------------------


async def test_the_floor_of_an_autoscaler_makes_more_replicas_and_goes_back(lab: Lab) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 6}
    await lab.somebody_creates(AUTOSCALERS, {"metadata": {"name": "llm"}, "spec": spec})
    plan = await lab.plan("scale", by=1)
    await lab.carry_out(plan)
    assert len((await lab.snapshot()).pods) == 5
    await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="last"))
    assert (await lab.get(f"{AUTOSCALERS}/llm"))["spec"]["minReplicas"] == 2


async def test_with_keda_the_floor_of_the_scaled_object_is_raised(lab: Lab) -> None:
    spec = {"scaleTargetRef": {"name": "llm"}, "maxReplicaCount": 6, "triggers": []}
    body = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "llm"}, "spec": spec}
    await lab.somebody_creates(SCALED_OBJECTS, body)
    plan = await lab.plan("scale", by=1)
    assert plan.calls[0].target.kind == "ScaledObject"
    await lab.carry_out(plan)
    assert (await lab.get(LLM))["spec"]["replicas"] == 5
    await lab.carry_out(await lab.plan("undo", with_ledger(plan), of="last"))
    assert "minReplicaCount" not in (await lab.get(f"{SCALED_OBJECTS}/llm"))["spec"]


async def test_a_change_by_the_owner_is_seen_to_arrive(numbered: Lab) -> None:
    """What a watch waits for after the owner was given the patch: the same flags, by whomever."""
    plan = await numbered.plan("set_flags", edits=CAP)
    spec = {"template": {"spec": {"containers": [template({}, "--max-num-seqs=6")["spec"]["containers"][0]]}}}
    await numbered.somebody_patches(f"{SETS}/chat", {"spec": spec})
    rollout = next(step for step in plan.steps if isinstance(step, Wait))
    await numbered.until_seen("it arrived", lambda snapshot: progress(rollout, snapshot).state == "done")
    assert await numbered.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "done"
