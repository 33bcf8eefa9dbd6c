"""Deployments, ReplicaSets, Services and pods: the effect of a change of one on the others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.processes import Running
from tests.sandbox.kubernetes.cluster import (
    BAD_IMAGE,
    JSON_PATCH,
    MERGE_PATCH,
    Cluster,
    Obj,
    condition,
    connect,
    eventually,
    is_ready,
    refused,
    waiting_reason,
)

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"


def revision(obj: Obj) -> int:
    return int(obj["metadata"]["annotations"][REVISION])


def env_patch(value: str) -> Obj:
    container = {"name": "main", "env": [{"name": "MODE", "value": value}]}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def image_patch(image: str) -> Obj:
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}


async def set_labels(cluster: Cluster, pod: Obj, labels: dict[str, str | None], **metadata: Any) -> None:
    patch = {"metadata": {"labels": labels, **metadata}}
    name = pod["metadata"]["name"]
    await cluster.core.patch_namespaced_pod(name, cluster.namespace, patch, _content_type=MERGE_PATCH)


async def test_a_deployment_makes_a_numbered_replica_set_named_after_its_template(cluster: Cluster) -> None:
    deployment = await cluster.create_deployment()
    (made,) = await cluster.replica_sets()
    assert made["metadata"]["name"] == f"web-{made['metadata']['labels'][HASH]}"
    assert (revision(deployment), revision(made)) == (1, 1)
    for pod in await cluster.pods():
        assert pod["metadata"]["labels"][HASH] == made["metadata"]["labels"][HASH]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_an_edit_of_the_template_rolls_every_replica(cluster: Cluster) -> None:
    await cluster.create_deployment()
    before = {pod["metadata"]["uid"] for pod in await cluster.pods()}
    await cluster.patch_deployment(env_patch("fast"))
    after = await cluster.settled()
    pods = await cluster.pods()
    assert revision(after) == 2
    assert not before & {pod["metadata"]["uid"] for pod in pods}
    assert {pod["spec"]["containers"][0]["env"][0]["value"] for pod in pods} == {"fast"}
    assert condition(after, "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_writing_an_old_template_back_reuses_its_replica_set_with_a_new_number(cluster: Cluster) -> None:
    first = await cluster.create_deployment()
    await cluster.patch_deployment(env_patch("fast"))
    await cluster.settled()
    (old,) = [one for one in await cluster.replica_sets() if revision(one) == 1]
    template = old["spec"]["template"]
    del template["metadata"]["labels"][HASH]
    operations = [{"op": "replace", "path": "/spec/template", "value": template}]
    await cluster.patch_deployment(operations, JSON_PATCH)
    after = await cluster.settled()
    sets = {one["metadata"]["uid"]: one for one in await cluster.replica_sets()}
    assert len(sets) == 2
    assert revision(after) == revision(sets[old["metadata"]["uid"]]) == 3
    assert after["spec"]["template"] == first["spec"]["template"]


async def test_a_bad_image_leaves_one_pod_stuck_and_the_old_ones_serving(cluster: Cluster) -> None:
    body = cluster.deployment_body()
    body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await cluster.create_deployment(body)
    await cluster.patch_deployment(image_patch(BAD_IMAGE))

    async def stuck() -> bool:
        reasons = [waiting_reason(pod) for pod in await cluster.pods()]
        return sum(reason in ("ErrImagePull", "ImagePullBackOff") for reason in reasons) == 1

    await eventually("one pod cannot pull its image", stuck)
    status = (await cluster.deployment())["status"]
    assert (status["availableReplicas"], status["updatedReplicas"]) == (2, 1)

    await cluster.patch_deployment(image_patch(cluster.image))
    after = await cluster.settled()
    assert after["status"]["updatedReplicas"] == 2


async def test_a_rollout_that_stands_still_is_called_failed_by_its_deadline(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=1)
    body["spec"]["progressDeadlineSeconds"] = 2
    body["spec"]["template"]["spec"]["containers"][0]["image"] = BAD_IMAGE
    await cluster.create_deployment(body, settled=False)

    async def failed() -> Obj | None:
        progressing = condition(await cluster.deployment(), "Progressing")
        return progressing if progressing.get("status") == "False" else None

    progressing = await eventually("the deadline has passed", failed)
    assert progressing["reason"] == "ProgressDeadlineExceeded"
    assert "has timed out progressing" in progressing["message"]


async def test_a_paused_deployment_scales_and_does_not_roll(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=1)
    body["spec"]["paused"] = True
    await cluster.create_deployment({**body, "spec": {**body["spec"], "paused": False}})
    await cluster.patch_deployment({"spec": {"paused": True, "replicas": 2}})
    await cluster.settled()
    await cluster.patch_deployment(env_patch("fast"))

    async def is_paused() -> bool:
        return condition(await cluster.deployment(), "Progressing").get("reason") == "DeploymentPaused"

    await eventually("the deployment says that it is paused", is_paused)
    assert len(await cluster.replica_sets()) == 1
    await cluster.patch_deployment({"spec": {"paused": False}})
    await cluster.settled()
    assert len(await cluster.replica_sets()) == 2


async def test_a_recreate_rollout_ends_every_old_pod_before_it_starts_a_new_one(cluster: Cluster) -> None:
    body = cluster.deployment_body()
    body["spec"]["strategy"] = {"type": "Recreate"}
    await cluster.create_deployment(body)
    (old,) = await cluster.replica_sets()
    await cluster.patch_deployment(env_patch("fast"))

    async def new_set() -> Obj | None:
        found = [one for one in await cluster.replica_sets() if revision(one) == 2]
        return found[0] if found else None

    made = await eventually("the new ReplicaSet is there", new_set)
    selector = f"app=web,{HASH}={old['metadata']['labels'][HASH]}"
    assert await cluster.pods(selector) == []
    await cluster.settled()
    assert made["metadata"]["uid"] != old["metadata"]["uid"]


async def test_a_surge_that_finds_no_node_stops_the_rollout_and_costs_no_replica(own_cluster: Cluster) -> None:
    cluster = own_cluster
    whole_node = {"name": "main", "image": cluster.image, "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    body = cluster.deployment_body("big", replicas=1, containers=[whole_node])
    body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}

    # The demo's four replicas lie on all three nodes: no node has four GPUs left.
    async def spread() -> bool:
        found = await cluster.core.list_namespaced_pod("serving")
        pods = [cluster.plain(one) for one in found.items]
        return len({pod["spec"].get("nodeName") for pod in pods if is_ready(pod)}) == 3

    await eventually("the demo's replicas are up on all nodes", spread)
    await cluster.create_deployment(body, settled=False)

    async def refusal() -> Obj | None:
        pods = await cluster.pods("app=big")
        found = condition(pods[0], "PodScheduled") if pods else {}
        return found if found.get("status") == "False" else None

    refused_pod = await eventually("the pod finds no node", refusal)
    assert refused_pod["reason"] == "Unschedulable"
    assert refused_pod["message"].startswith("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    events = await cluster.core.list_namespaced_event(cluster.namespace, field_selector="reason=FailedScheduling")
    assert events.items[0].message == refused_pod["message"]


async def test_a_gpu_is_free_only_when_its_pod_is_gone_and_not_while_it_terminates(
    own_stand_in: Callable[..., Running],
) -> None:
    running = own_stand_in("--seed-world", "plain", "--with-kubelet")
    async with connect(running.url) as cluster:
        one_gpu = {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}
        await cluster.core.patch_node_status("node-1", one_gpu)
        limits = {"limits": {"nvidia.com/gpu": "1"}}
        wants_gpu = {"name": "main", "image": cluster.image, "resources": limits}
        await cluster.create_pod("holder", containers=[wants_gpu])
        await cluster.pod_where("it has the GPU", "holder", is_ready)
        await cluster.create_pod("waits", containers=[wants_gpu])
        await cluster.pod_where("it has none", "waits", lambda pod: condition(pod, "PodScheduled") != {})

        await cluster.sandbox("PUT", "paused-controllers", ["kubelet"])
        await cluster.core.delete_namespaced_pod("holder", cluster.namespace)
        # A pod that does fit is placed after the deletion: by then the scheduler has looked again.
        await cluster.create_pod("small")
        await cluster.pod_where("it has a node", "small", lambda pod: "nodeName" in pod["spec"])
        still = await cluster.pod("waits")
        assert still is not None
        assert "nodeName" not in still["spec"]

        await cluster.sandbox("PUT", "paused-controllers", [])
        await cluster.pod_where("it has the freed GPU", "waits", lambda pod: "nodeName" in pod["spec"])
        assert await cluster.pod("holder") is None


async def test_a_cordoned_node_takes_no_new_pod_and_keeps_the_old(own_cluster: Cluster) -> None:
    cluster = own_cluster
    old = await cluster.running_pod("old")
    for number in (1, 2, 3):
        await cluster.core.patch_node(f"gpu-node-{number}", {"spec": {"unschedulable": True}})
    await cluster.create_pod("new")
    new = await cluster.pod_where(
        "it finds no node", "new", lambda pod: condition(pod, "PodScheduled").get("status") == "False"
    )
    assert "3 node(s) were unschedulable" in condition(new, "PodScheduled")["message"]
    kept = await cluster.pod("old")
    assert kept is not None
    assert kept["metadata"]["uid"] == old["metadata"]["uid"]
    await cluster.core.patch_node("gpu-node-2", {"spec": {"unschedulable": False}})
    placed = await cluster.pod_where("it has a node", "new", lambda pod: "nodeName" in pod["spec"])
    assert placed["spec"]["nodeName"] == "gpu-node-2"


async def test_a_taint_keeps_away_pods_that_do_not_tolerate_it(own_cluster: Cluster) -> None:
    cluster = own_cluster
    taint = {"key": "gpu", "value": "sick", "effect": "NoSchedule"}
    for number in (1, 2, 3):
        await cluster.core.patch_node(f"gpu-node-{number}", {"spec": {"taints": [taint]}})
    await cluster.create_pod("plain")
    tolerations = [{"key": "gpu", "operator": "Equal", "value": "sick", "effect": "NoSchedule"}]
    await cluster.create_pod("tolerant", tolerations=tolerations)
    await cluster.pod_where("it has a node", "tolerant", lambda pod: "nodeName" in pod["spec"])
    plain = await cluster.pod_where("it was refused", "plain", lambda pod: bool(condition(pod, "PodScheduled")))
    assert "untolerated taint" in condition(plain, "PodScheduled")["message"]


async def test_a_pod_relabelled_out_of_its_replica_set_is_released_and_replaced(cluster: Cluster) -> None:
    await cluster.create_deployment()
    pod = (await cluster.pods())[0]
    await set_labels(cluster, pod, {"app": "quarantine"})

    async def released() -> bool:
        now = await cluster.pod(pod["metadata"]["name"])
        return now is not None and not now["metadata"].get("ownerReferences")

    await eventually("the pod has no owner any more", released)
    await cluster.settled()
    lonely = await cluster.pod(pod["metadata"]["name"])
    assert lonely is not None
    assert lonely["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_pod_relabelled_back_is_adopted_and_another_goes(cluster: Cluster) -> None:
    await cluster.create_deployment()
    pod = (await cluster.pods())[0]
    await set_labels(cluster, pod, {"app": "quarantine"})
    await cluster.settled()
    await set_labels(cluster, pod, {"app": "web"})
    await cluster.settled()
    (owner,) = await cluster.replica_sets()
    for one in await cluster.pods():
        assert one["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]


async def create_service(cluster: Cluster) -> None:
    body: Any = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web", "tier": "active"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    await cluster.core.create_namespaced_service(cluster.namespace, body)


async def endpoints(cluster: Cluster) -> dict[str, Obj]:
    """Conditions by the name of the pod."""
    _, _, listed = await cluster.raw(
        "GET",
        f"/apis/discovery.k8s.io/v1/namespaces/{cluster.namespace}/endpointslices",
        query={"labelSelector": "kubernetes.io/service-name=web"},
    )
    return {
        one["targetRef"]["name"]: one["conditions"] for item in listed["items"] for one in item.get("endpoints") or []
    }


async def test_a_key_of_the_service_selector_takes_a_pod_out_of_rotation_and_leaves_its_owner(
    cluster: Cluster,
) -> None:
    await create_service(cluster)
    await cluster.create_deployment()

    async def in_rotation(count: int) -> bool:
        return [one["ready"] for one in (await endpoints(cluster)).values()].count(True) == count

    await eventually("both pods are endpoints", lambda: in_rotation(2))
    pod = (await cluster.pods())[0]
    await set_labels(cluster, pod, {"tier": "drained"})
    await eventually("one endpoint is left", lambda: in_rotation(1))
    assert pod["metadata"]["name"] not in await endpoints(cluster)
    kept = await cluster.pod(pod["metadata"]["name"])
    assert kept is not None
    assert kept["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
    assert len(await cluster.pods()) == 2


async def test_a_terminating_pod_is_not_ready_in_its_slice_but_may_still_serve(own_cluster: Cluster) -> None:
    cluster = own_cluster
    await create_service(cluster)
    await cluster.create_deployment()
    pod = (await cluster.pods())[0]
    name = pod["metadata"]["name"]

    async def conditions() -> Obj | None:
        return (await endpoints(cluster)).get(name)

    before = await eventually("the pod is an endpoint", conditions)
    assert before == {"ready": True, "serving": True, "terminating": False}
    await cluster.sandbox("PUT", "paused-controllers", ["kubelet"])
    await cluster.core.delete_namespaced_pod(name, cluster.namespace)

    async def terminating() -> Obj | None:
        found = await conditions()
        return found if found is not None and found["terminating"] else None

    after = await eventually("the slice has seen the deletion", terminating)
    assert after == {"ready": False, "serving": True, "terminating": True}


async def test_scaling_in_deletes_the_pod_with_the_lowest_deletion_cost(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=3))
    chosen = (await cluster.pods())[1]
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-100"}
    await set_labels(cluster, chosen, {}, annotations=cost)
    await cluster.patch_deployment({"spec": {"replicas": 2}})
    await cluster.settled()
    assert await cluster.pod(chosen["metadata"]["name"]) is None


async def test_scaling_in_deletes_a_pod_that_serves_nobody_before_any_other(cluster: Cluster) -> None:
    body = cluster.deployment_body()
    body["spec"]["template"]["spec"]["topologySpreadConstraints"] = []
    await cluster.create_deployment(body)
    ready = {pod["metadata"]["uid"] for pod in await cluster.pods()}
    await cluster.create_pod("unplaced", {"app": "web", "tier": "active"}, nodeSelector={"no": "such-node"})
    hash_label = (await cluster.replica_sets())[0]["metadata"]["labels"][HASH]
    unplaced = await cluster.pod("unplaced")
    assert unplaced is not None
    await set_labels(cluster, unplaced, {HASH: hash_label})
    await cluster.gone("unplaced")
    assert {pod["metadata"]["uid"] for pod in await cluster.pods()} == ready


async def test_a_pod_counts_as_available_only_after_its_minimum_time_of_readiness(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=1)
    body["spec"]["minReadySeconds"] = 3
    await cluster.create_deployment(body, settled=False)

    async def ready() -> Obj | None:
        obj = await cluster.deployment()
        return obj if obj["status"].get("readyReplicas") else None

    assert "availableReplicas" not in (await eventually("the pod is ready", ready))["status"]
    await cluster.settled()


async def test_a_deleted_pod_ends_within_its_grace_and_answers_with_itself(cluster: Cluster) -> None:
    pod = await cluster.running_pod()
    answer = cluster.plain(await cluster.core.delete_namespaced_pod("lone", cluster.namespace))
    assert answer["metadata"]["uid"] == pod["metadata"]["uid"]
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 1
    await cluster.gone("lone")


async def test_deleting_a_deployment_takes_its_pods_along(cluster: Cluster) -> None:
    await cluster.create_deployment()
    await cluster.apps.delete_namespaced_deployment("web", cluster.namespace)

    async def empty() -> bool:
        return not await cluster.pods() and not await cluster.replica_sets()

    await eventually("nothing of it is left", empty)


async def test_a_foreground_delete_keeps_the_owner_until_its_dependents_are_gone(cluster: Cluster) -> None:
    await cluster.create_deployment()
    await cluster.apps.delete_namespaced_deployment("web", cluster.namespace, propagation_policy="Foreground")

    async def gone() -> bool:
        found = await cluster.apps.list_namespaced_deployment(cluster.namespace)
        return not found.items

    await eventually("the deployment is gone", gone)
    assert await cluster.replica_sets() == []


async def test_an_orphaning_delete_leaves_the_pods(cluster: Cluster) -> None:
    await cluster.create_deployment()
    before = {pod["metadata"]["uid"] for pod in await cluster.pods()}
    await cluster.apps.delete_namespaced_deployment("web", cluster.namespace, propagation_policy="Orphan")

    async def orphaned() -> bool:
        return all(not one["metadata"].get("ownerReferences") for one in await cluster.replica_sets())

    await eventually("the ReplicaSet has no owner", orphaned)
    assert {pod["metadata"]["uid"] for pod in await cluster.pods()} == before


async def test_a_share_in_a_budget_is_of_the_wanted_size(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=3))
    await cluster.create_budget(maxUnavailable="34%")
    budget = await cluster.budget_where("two may go", lambda status: status["disruptionsAllowed"] == 2)
    assert (budget["status"]["expectedPods"], budget["status"]["desiredHealthy"]) == (3, 1)


async def test_the_history_keeps_only_as_many_old_replica_sets_as_it_may(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=0)
    body["spec"]["revisionHistoryLimit"] = 1
    await cluster.create_deployment(body)
    for value in ("a", "b", "c"):
        await cluster.patch_deployment(env_patch(value))
        await cluster.settled()

    async def kept() -> bool:
        return sorted(map(revision, await cluster.replica_sets())) == [3, 4]

    await eventually("the last two revisions are left", kept)


async def test_nothing_can_be_created_in_a_namespace_that_does_not_exist(cluster: Cluster) -> None:
    body: Any = {"metadata": {"name": "note"}}
    async with refused(404) as refusal:
        await cluster.core.create_namespaced_config_map("no-such-namespace", body)
    assert refusal.body["message"] == 'namespaces "no-such-namespace" not found'


async def test_the_rollout_is_recorded_in_events(cluster: Cluster) -> None:
    await cluster.create_deployment()
    found = await cluster.core.list_namespaced_event(
        cluster.namespace, field_selector="involvedObject.kind=Deployment,reason=ScalingReplicaSet"
    )
    (made,) = await cluster.replica_sets()
    messages = [one.message for one in found.items]
    assert f"Scaled up replica set {made['metadata']['name']} from 0 to 2" in messages


async def test_a_deleted_namespace_goes_with_everything_in_it(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-more"
    namespace: Any = {"metadata": {"name": name}}
    await cluster.core.create_namespace(namespace)
    other = replace(cluster, namespace=name)
    await other.create_deployment()
    await cluster.core.delete_namespace(name)

    async def is_gone() -> bool:
        listed = await cluster.core.list_namespace(field_selector=f"metadata.name={name}")
        return not listed.items

    await eventually("the namespace is gone", is_gone)
    assert await other.pods() == []


# --- quotas -----------------------------------------------------------------------------------------------------------


async def create_quota(cluster: Cluster, **hard: str) -> None:
    body: Any = {"metadata": {"name": "team"}, "spec": {"hard": hard}}
    await cluster.core.create_namespaced_resource_quota(cluster.namespace, body)

    async def is_counted() -> bool:
        read = cluster.plain(await cluster.core.read_namespaced_resource_quota("team", cluster.namespace))
        return set(read.get("status", {}).get("used", {})) == set(hard)

    await eventually("the quota is counted", is_counted)


async def test_a_pod_beyond_a_quota_answers_403(cluster: Cluster) -> None:
    await create_quota(cluster, pods="1")
    await cluster.create_pod("first")
    async with refused(403) as refusal:
        await cluster.create_pod("second")
    assert "exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1" in refusal.body["message"]


async def test_a_deployment_beyond_a_quota_says_so_and_its_dry_run_does_not(cluster: Cluster) -> None:
    await create_quota(cluster, pods="2")
    await cluster.create_deployment()
    await cluster.patch_deployment({"spec": {"replicas": 3}}, dry_run="All")
    await cluster.patch_deployment({"spec": {"replicas": 3}})

    async def failure() -> Obj | None:
        return condition(await cluster.deployment(), "ReplicaFailure") or None

    refused = await eventually("the Deployment says that a pod was refused", failure)
    assert (refused["status"], refused["reason"], "exceeded quota: team" in refused["message"]) == (
        "True",
        "FailedCreate",
        True,
    )
    (replica_set,) = await cluster.replica_sets()
    assert condition(replica_set, "ReplicaFailure")["reason"] == "FailedCreate"
    selector = f"reason=FailedCreate,involvedObject.name={replica_set['metadata']['name']}"
    events = await cluster.core.list_namespaced_event(cluster.namespace, field_selector=selector)
    assert "exceeded quota: team" in cluster.plain(events.items[0])["message"]
    await cluster.patch_deployment({"spec": {"replicas": 2}})

    async def is_over() -> bool:
        return not condition(await cluster.deployment(), "ReplicaFailure")

    await eventually("the failure is over", is_over)
