"""Every verb of the bot from plan to result and back again, through its own planner, reader and writer.

They run on the stand-in, or on a real cluster: `pytest tests/sandbox/kubernetes --kubeconfig FILE`. That cluster should
be a scratch one (kind with two workers is enough, Kubernetes 1.30 or later for `preStop.sleep`), run by its
administrator and without `-n`: nodes are patched, cordoned and drained of the tests' own pods. `--kubernetes-image`
names an image that runs for ever whatever its arguments; `--gpu-resource` is told by `pytest --help`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.plan import Wait
from bot.domain.changes.planning import plan_change
from bot.domain.changes.progress import progress
from bot.domain.cluster.job import pods_of_job
from bot.domain.cluster.objects import condition, name_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.adapters.kubernetes.lab import CAP, CONTEXT, names, spec, with_ledger
from tests.sandbox.kubernetes.bench import ARGS, NAME, REPLICAS, Bench
from tests.sandbox.kubernetes.cluster import JSON_PATCH, MERGE_PATCH, STRATEGIC

CAPPED = "--max-num-seqs=6"


def args_of(pod: dict[str, Any]) -> list[str]:
    found: list[str] = pod["spec"]["containers"][0]["args"]
    return found


async def first(bench: Bench) -> str:
    return sorted(names(await bench.snapshot()))[0]


async def whole(bench: Bench) -> ClusterSnapshot:
    return await bench.until_seen("all replicas are in rotation again", bench.is_whole)


# --- flags ------------------------------------------------------------------------------------------------------------


async def test_flags_roll_out_to_every_replica_and_back_by_undo(bench: Bench) -> None:
    before = await spec(bench)
    plan = await bench.plan("set_flags", edits=CAP)
    await bench.carry_out(plan)
    assert all(CAPPED in args_of(pod) for pod in (await whole(bench)).pods)
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="last"))
    assert await spec(bench) == before


async def test_a_rollback_goes_back_to_the_earlier_revision(bench: Bench) -> None:
    before = await spec(bench)
    await bench.carry_out(await bench.plan("set_flags", edits=CAP))
    plan = await bench.plan("rollback")
    assert [d.text for d in plan.calls[0].differences] == ["--max-num-seqs 6 → 64"]
    await bench.carry_out(plan)
    assert await spec(bench) == before


async def test_flags_in_a_config_map_roll_out_and_back(bench: Bench) -> None:
    text = "max-num-seqs: 64  # cap\nseed: 1\n"
    body: Any = {"metadata": {"name": "flags"}, "data": {"config.yaml": text}}
    namespace = bench.target.namespace
    await bench.somebody.core.create_namespaced_config_map(namespace, body)
    mount = {"name": "flags", "mountPath": "/etc/vllm"}
    container = {"name": "vllm", "args": ["tiny-llama", "--config=/etc/vllm/config.yaml"], "volumeMounts": [mount]}
    pods = {"containers": [container], "volumes": [{"name": "flags", "configMap": {"name": "flags"}}]}
    await bench.somebody.patch_deployment({"spec": {"template": {"spec": pods}}}, STRATEGIC, NAME)
    await whole(bench)
    before = await spec(bench)

    async def written() -> str:
        found = await bench.somebody.core.read_namespaced_config_map("flags", namespace)
        return str((found.data or {})["config.yaml"])

    plan = await bench.plan("set_flags", edits=CAP)
    await bench.carry_out(plan)
    assert await written() == text.replace("64", "6")
    assert (await spec(bench))["template"]["metadata"]["annotations"]["incident-bot/config"]
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="all"))
    assert await written() == text
    assert (await spec(bench))["template"]["spec"] == before["template"]["spec"]


async def test_a_restart_replaces_every_replica_under_the_same_flags(bench: Bench) -> None:
    before = await bench.snapshot()
    await bench.carry_out(await bench.plan("restart"))
    after = await whole(bench)
    assert names(after) & names(before) == set()
    assert {tuple(args_of(pod)) for pod in after.pods} == {ARGS}


async def test_planning_again_while_nothing_relevant_changes_gives_the_same_digest(bench: Bench) -> None:
    plan = await bench.plan("set_flags", edits=CAP)
    await bench.somebody_patches({"metadata": {"annotations": {"somebody": "was here"}}})
    assert (await bench.plan("set_flags", edits=CAP)).digest == plan.digest


# --- a canary beside the workload -------------------------------------------------------------------------------------


async def listed(bench: Bench) -> set[str]:
    world = await bench.snapshot()
    return {
        e["targetRef"]["name"]
        for endpoint_slice in world.endpoint_slices
        for e in endpoint_slice.get("endpoints") or []
    }


async def test_a_canary_out_of_rotation_is_let_in_promoted_and_goes_without_a_trace(bench: Bench) -> None:
    before = names(await bench.snapshot())
    await bench.carry_out(await bench.plan("canary", edits=CAP, rotation="out"))
    (canary,) = names(await bench.snapshot()) - before
    assert canary not in await listed(bench)
    await bench.carry_out(await bench.plan("rotate_canary", rotation="in"))
    assert canary in await listed(bench)
    await bench.carry_out(await bench.plan("promote"))
    assert CAPPED in (await spec(bench))["template"]["spec"]["containers"][0]["args"]
    await bench.carry_out(await bench.plan("remove_canary"))
    assert (await bench.snapshot()).canary is None


# --- single replicas --------------------------------------------------------------------------------------------------


async def test_scaling_out_and_its_undo_end_a_chosen_replica(bench: Bench) -> None:
    plan = await bench.plan("scale", by=1)
    await bench.carry_out(plan)
    assert len((await bench.snapshot()).pods) == REPLICAS + 1
    back = await bench.plan("undo", with_ledger(plan), of="last")
    victim = back.calls[0].target.name
    await bench.carry_out(back)
    left = names(await whole(bench))
    assert (len(left), victim in left) == (REPLICAS, False)


async def test_a_workload_of_no_replicas_is_scaled_out_and_back(bench: Bench) -> None:
    await bench.somebody_patches({"spec": {"replicas": 0}})
    await bench.until_seen("it has no pods", lambda world: not world.pods)
    plan = await bench.plan("scale", to=2)
    assert await bench.cluster.dry_run(plan.calls[0]) == ""
    await bench.carry_out(plan)
    assert len((await bench.snapshot()).pods) == 2
    # The same call cannot win again.
    assert (await bench.send(plan, call_id="INC-42/R9/0")).result == "failed"
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="last"))
    assert (await spec(bench))["replicas"] == 0


async def test_an_annotation_of_somebody_else_does_not_prevent_a_plan(bench: Bench) -> None:
    """It raises the generation, and the controller sees it some milliseconds later."""
    for number in range(5):
        await bench.somebody_patches({"metadata": {"annotations": {"team/note": str(number)}}})
        assert (await bench.plan("set_flags", edits=CAP)).calls


async def test_a_pod_that_asks_for_thousands_of_something_does_not_prevent_a_plan(bench: Bench) -> None:
    """The server stores 3000 as `3k`. No node has such a resource, so the pod only waits."""
    wants = {"resources": {"limits": {"incident-bot.test/memory": "3000"}}}
    main = {"name": "main", "image": bench.somebody.image, **wants}
    await bench.somebody.create_pod("other", containers=[main])
    seen = await bench.until_seen("the pod is there", lambda world: "other" in {name_of(pod) for pod in world.all_pods})
    stored = next(pod for pod in seen.all_pods if name_of(pod) == "other")
    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"incident-bot.test/memory": "3k"}
    plan = await bench.plan("scale", by=1)
    assert [d.text for d in plan.calls[0].differences] == ["replicas 3 → 4"]


async def test_a_quota_is_weighed_in_planning_and_ends_the_wait_with_its_reason(bench: Bench) -> None:
    plan = await bench.plan("scale", by=1)
    body: Any = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": str(REPLICAS)}}}
    await bench.somebody.core.create_namespaced_resource_quota(bench.target.namespace, body)
    await bench.until_seen(
        "the quota is counted", lambda world: any(one.get("status", {}).get("used") for one in world.quotas)
    )
    late = plan_change("scale", {"by": 1}, await bench.snapshot(), CONTEXT)
    used = f"ResourceQuota team admits 0 more (pods: {REPLICAS} of {REPLICAS} used)"
    assert (late.outcome, used in late.reason) == ("impossible", True), late.reason
    assert (await bench.send(plan)).result == "done"

    def is_refused(world: ClusterSnapshot) -> bool:
        return condition(world.workload or {}, "ReplicaFailure").get("status") == "True"

    world = await bench.until_seen("the quota refuses the pod", is_refused)
    wait = plan.steps[1]
    assert isinstance(wait, Wait)
    seen = progress(wait, replace(world, at=world.at + 60))
    assert (seen.state, "a pod cannot be created: " in seen.text, "exceeded quota: team" in seen.text) == (
        "failed",
        True,
        True,
    )
    back = await bench.plan("undo", with_ledger(plan), of="last")
    assert [call.target.kind for call in back.calls] == ["Deployment"]
    await bench.carry_out(back)
    assert len(names(await whole(bench))) == REPLICAS


async def test_scaling_in_ends_the_replica_that_was_chosen(bench: Bench) -> None:
    plan = await bench.plan("scale", by=-1)
    victim = plan.calls[0].target.name
    await bench.carry_out(plan)
    world = await bench.until_seen("one replica less", lambda seen: len(seen.pods) == REPLICAS - 1)
    assert victim not in names(world)


async def test_a_relabelled_replica_leaves_rotation_and_is_returned(bench: Bench) -> None:
    name = await first(bench)
    await bench.carry_out(await bench.plan("isolate_replica", replica=name))
    world = await bench.snapshot()
    assert (name in bench.serving(world), len(world.pods)) == (False, REPLICAS)
    await bench.carry_out(await bench.plan("return_replica", replica=name))
    assert name in bench.serving(await bench.snapshot())


async def test_an_isolated_replica_is_replaced_and_another_one_serves(bench: Bench) -> None:
    name = await first(bench)
    await bench.carry_out(await bench.plan("isolate_replica", replica=name))
    await bench.carry_out(await bench.plan("replace_replica", replica=name))
    assert name not in names(await whole(bench))


async def share_the_selector(bench: Bench) -> None:
    """The Service selects by the labels of the ReplicaSet alone, as in most charts."""
    body = [{"op": "replace", "path": "/spec/selector", "value": {"app": NAME}}]
    await bench.somebody.raw("PATCH", f"{bench.path('services')}/{NAME}", body, kind=JSON_PATCH)
    await bench.until_seen("all replicas are in rotation", bench.is_whole)


async def test_a_replica_that_its_replica_set_lets_go_is_replaced_before_it_ends(bench: Bench) -> None:
    await share_the_selector(bench)
    name = await first(bench)
    before = names(await bench.snapshot())
    await bench.carry_out(await bench.plan("isolate_replica", replica=name))
    world = await bench.snapshot()
    (spare,) = names(world) - before
    assert (name in names(world), name in bench.serving(world), spare in bench.serving(world)) == (True, False, True)
    refused = plan_change("return_replica", {"replica": name}, await bench.snapshot(), CONTEXT)
    assert (refused.outcome, "serves already" in refused.reason) == ("impossible", True), refused
    await bench.carry_out(await bench.plan("replace_replica", replica=name))
    assert names(await whole(bench)) == before - {name} | {spare}


async def test_a_replica_that_its_replica_set_let_go_returns_while_its_replacement_waits(bench: Bench) -> None:
    await share_the_selector(bench)
    name = await first(bench)
    before = names(await bench.snapshot())
    for node in bench.nodes:
        await bench.somebody.raw("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, kind=MERGE_PATCH)
    await bench.carry_out(await bench.plan("isolate_replica", replica=name))
    assert name not in bench.serving(await bench.snapshot())
    await bench.carry_out(await bench.plan("return_replica", replica=name))
    assert names(await whole(bench)) == before


# --- nodes ------------------------------------------------------------------------------------------------------------


async def is_cordoned(bench: Bench, node: str) -> bool:
    found = bench.somebody.plain(await bench.somebody.core.read_node(node))
    return bool(found["spec"].get("unschedulable"))


async def test_a_node_is_cordoned_and_takes_pods_again(bench: Bench) -> None:
    node = bench.nodes[0]
    await bench.carry_out(await bench.plan("cordon_node", node=node))
    assert await is_cordoned(bench, node)
    await bench.carry_out(await bench.plan("uncordon_node", node=node))
    assert not await is_cordoned(bench, node)


async def test_a_drained_node_is_empty_of_ours_and_stays_cordoned(bench: Bench) -> None:
    if len(bench.nodes) < 2:
        pytest.skip("there is no other node that takes pods")
    node = (await bench.snapshot()).pods[0]["spec"]["nodeName"]
    await bench.carry_out(await bench.plan("drain_node", node=node))
    world = await whole(bench)
    assert node not in {pod["spec"]["nodeName"] for pod in world.pods}
    assert await is_cordoned(bench, node)


# --- other kinds of workload ------------------------------------------------------------------------------------------


async def test_flags_roll_through_a_stateful_set_and_back(bench: Bench) -> None:
    chat = bench.of("StatefulSet", "chat")
    labels = {"app": "chat", "serving": "active"}
    spec_of = {"replicas": 2, "serviceName": "chat", "selector": {"matchLabels": {"app": "chat"}}}
    body: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "chat"}}
    body |= {"spec": spec_of | {"template": bench.template(labels)}}
    await bench.create_service("chat", **labels)
    await bench.somebody.raw("POST", bench.path("statefulsets", "apps/v1"), body)
    await chat.until_seen("two numbered replicas serve", lambda world: len(chat.serving(world)) == 2)
    plan = await chat.plan("set_flags", edits=CAP)
    await chat.carry_out(plan)
    assert [CAPPED in args_of(pod) for pod in (await chat.snapshot()).pods] == [True, True]
    await chat.carry_out(await chat.plan("undo", with_ledger(plan), of="last"))
    assert [tuple(args_of(pod)) for pod in (await chat.snapshot()).pods] == [ARGS, ARGS]


LWS = "leaderworkerset.x-k8s.io"


async def test_flags_roll_through_groups_of_pods(bench: Bench) -> None:
    _, _, groups = await bench.somebody.raw("GET", "/apis")
    if LWS not in {group["name"] for group in groups["groups"]}:
        pytest.skip("this cluster has no LeaderWorkerSet: install its CRD and controller to run it")
    big = bench.of("LeaderWorkerSet", "big")
    template = {
        "size": 2,
        "leaderTemplate": bench.template({"role": "leader"}),
        "workerTemplate": bench.template({"role": "worker"}, "worker"),
    }
    body = {"apiVersion": f"{LWS}/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "big"}}
    await bench.create_service("big-leader", **{f"{LWS.replace('x-k8s', 'sigs.k8s')}/name": "big", "role": "leader"})
    await bench.somebody.raw(
        "POST",
        bench.path("leaderworkersets", f"{LWS}/v1"),
        body | {"spec": {"replicas": 2, "leaderWorkerTemplate": template}},
    )
    await big.until_seen("two whole groups serve", lambda world: len(big.serving(world)) == 2 == ready_groups(world))
    await big.carry_out(await big.plan("set_flags", edits=CAP))
    leaders = [pod for pod in (await big.snapshot()).pods if pod["metadata"]["labels"]["role"] == "leader"]
    assert [CAPPED in args_of(pod) for pod in leaders] == [True, True]
    await big.carry_out(await big.plan("isolate_replica", replica="big-0"))
    assert big.serving(await big.snapshot()) == ("big-1",), "the Service of their peers still lists all pods"


def ready_groups(world: ClusterSnapshot) -> int:
    return int(((world.workload or {}).get("status") or {}).get("readyReplicas", 0))


async def test_an_autoscaler_keeps_every_replica_during_a_rollout_and_gets_its_floor_back(bench: Bench) -> None:
    path = bench.path("horizontalpodautoscalers", "autoscaling/v2")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    body = {"metadata": {"name": NAME}, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": REPLICAS}}
    await bench.somebody.raw("POST", path, body)
    plan = await bench.plan("set_flags", edits=CAP)
    floors = [call.body[-1]["value"] for call in plan.calls if call.target.kind == "HorizontalPodAutoscaler"]
    assert floors == [REPLICAS, 1]
    await bench.carry_out(plan)
    _, _, found = await bench.somebody.raw("GET", f"{path}/{NAME}")
    assert found["spec"]["minReplicas"] == 1
    assert all(CAPPED in args_of(one) for one in (await whole(bench)).pods)


# --- Jobs -------------------------------------------------------------------------------------------------------------


async def create_load_test(bench: Bench) -> None:
    """Its pod runs until it is ended: the stand-in's ends by itself unless its image cannot be pulled."""
    image = "bad:1" if bench.somebody.is_stand_in else bench.somebody.image
    pod = {"restartPolicy": "Never", "containers": [{"name": "bench", "image": image, "args": ["$(TARGET_URL)"]}]}
    body = {
        "metadata": {"name": "load-test"},
        "spec": {"schedule": "0 0 31 2 *", "suspend": True, "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }
    await bench.somebody.raw("POST", bench.path("cronjobs", "batch/v1"), body)


async def test_a_load_test_gets_its_replica_runs_once_at_a_time_and_is_taken_back(bench: Bench) -> None:
    await create_load_test(bench)
    asked: dict[str, Any] = {"template": "load-test", "replica": await first(bench), "within_minutes": 2.0}
    plan = await bench.plan("run_job", **asked)
    sent = await bench.send(plan)
    assert sent.result == "done", sent
    started = await bench.until_seen(
        "a pod of the Job", lambda seen: bool(seen.jobs and pods_of_job(seen, seen.jobs[0]))
    )
    (job,) = started.jobs
    (pod,) = pods_of_job(started, job)
    replica = next(one for one in started.pods if name_of(one) == asked["replica"])
    variables = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert variables == {
        "TARGET_URL": f"http://{replica['status']['podIP']}:8000",
        "TARGET_POD": asked["replica"],
        "TARGET_WORKLOAD": NAME,
    }
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["ttlSecondsAfterFinished"]) == (120, 86400)
    again = plan_change("run_job", asked, await bench.snapshot(), with_ledger(plan))
    assert "still runs" in again.reason
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="last"))
    await bench.until_seen("neither the Job nor its pod", lambda seen: not seen.jobs and not pods_of_job(seen, job))
