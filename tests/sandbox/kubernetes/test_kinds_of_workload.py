"""StatefulSets follow the rules of a real cluster; LeaderWorkerSets if the simulator or the cluster has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes import Running
from tests.sandbox.kubernetes.cluster import MERGE_PATCH, STRATEGIC, Cluster, Obj, connect, eventually, refused

REVISION = "controller-revision-hash"


def stateful_set(cluster: Cluster, **spec: object) -> Obj:
    template = {"metadata": {"labels": {"app": "chat"}}, "spec": cluster.pod_spec()}
    base = {"replicas": 3, "serviceName": "chat", "selector": {"matchLabels": {"app": "chat"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "chat"}, "spec": base | spec}


async def created(cluster: Cluster, **spec: object) -> Obj:
    body = stateful_set(cluster, **spec)
    await cluster.raw("POST", f"/apis/apps/v1/namespaces/{cluster.namespace}/statefulsets", body)
    return await settled(cluster)


async def read(cluster: Cluster) -> Obj:
    return cluster.plain(await cluster.apps.read_namespaced_stateful_set("chat", cluster.namespace))


async def settled(cluster: Cluster) -> Obj:
    async def look() -> Obj | None:
        obj = await read(cluster)
        status, wanted = obj.get("status", {}), obj["spec"]["replicas"]
        seen = status.get("observedGeneration", 0) >= obj["metadata"]["generation"]
        counts = {status.get(key, 0) for key in ("replicas", "availableReplicas")}
        return obj if seen and counts == {wanted} and len(await cluster.pods("app=chat")) == wanted else None

    return await eventually("the stateful set has settled", look)


async def patched(cluster: Cluster, patch: Obj, kind: str = STRATEGIC) -> None:
    await cluster.apps.patch_namespaced_stateful_set("chat", cluster.namespace, patch, _content_type=kind)


def edit(mode: str) -> Obj:
    env = [{"name": "MODE", "value": mode}]
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": env}]}}}}


async def modes(cluster: Cluster) -> dict[str, str]:
    pods = await cluster.pods("app=chat")
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["env"][0]["value"] for pod in pods}


async def test_replicas_are_numbered_and_labelled_with_their_number_and_revision(cluster: Cluster) -> None:
    workload = await created(cluster)
    pods = await cluster.pods("app=chat")
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["chat-0", "chat-1", "chat-2"]
    for pod in pods:
        labels = pod["metadata"]["labels"]
        assert labels["apps.kubernetes.io/pod-index"] == pod["metadata"]["name"][-1]
        assert labels[REVISION] == workload["status"]["updateRevision"] == workload["status"]["currentRevision"]


async def test_an_edit_makes_a_revision_and_rolls_every_replica(cluster: Cluster) -> None:
    before = await created(cluster)
    await patched(cluster, edit("fast"))

    async def rolled() -> bool:
        status = (await read(cluster))["status"]
        return bool(status["currentRevision"] == status["updateRevision"] != before["status"]["updateRevision"])

    await eventually("every replica runs the new revision", rolled)
    assert set((await modes(cluster)).values()) == {"fast"}
    kept = await cluster.apps.list_namespaced_controller_revision(cluster.namespace, label_selector="app=chat")
    numbers = sorted(cluster.plain(one)["revision"] for one in kept.items)
    assert numbers == [1, 2]


async def test_replicas_below_the_partition_keep_their_revision(cluster: Cluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await created(cluster, updateStrategy=strategy)
    await patched(cluster, edit("fast"))

    async def rolled() -> bool:
        return (await modes(cluster)).get("chat-2") == "fast"

    await eventually("the highest number is renewed", rolled)
    await settled(cluster)
    assert await modes(cluster) == {"chat-0": "slow", "chat-1": "slow", "chat-2": "fast"}


async def test_on_delete_nothing_rolls_until_a_replica_is_deleted(cluster: Cluster) -> None:
    await created(cluster, updateStrategy={"type": "OnDelete"})
    await patched(cluster, edit("fast"))
    await settled(cluster)
    assert set((await modes(cluster)).values()) == {"slow"}
    await cluster.core.delete_namespaced_pod("chat-1", cluster.namespace)

    async def renewed() -> bool:
        return (await modes(cluster)).get("chat-1") == "fast"

    await eventually("the deleted replica comes back with the new template", renewed)


async def test_scaling_in_ends_the_highest_number(cluster: Cluster) -> None:
    await created(cluster)
    await patched(cluster, {"spec": {"replicas": 2}}, MERGE_PATCH)
    await settled(cluster)
    assert sorted(await modes(cluster)) == ["chat-0", "chat-1"]


async def test_a_field_that_may_not_change_is_refused(cluster: Cluster) -> None:
    await created(cluster)
    async with refused(422) as refusal:
        await patched(cluster, {"spec": {"serviceName": "other"}}, MERGE_PATCH)
    assert "fields other than 'replicas'" in refusal.body["message"]


@pytest.fixture
async def groups(own_stand_in: Callable[..., Running]) -> Obj:
    """A LeaderWorkerSet of two groups of two, settled, in a cluster of its own."""
    running = own_stand_in("--seed-world", "plain", "--with-kubelet")
    return {"url": running.url}


async def test_a_worker_that_ends_takes_its_group_along(groups: Obj) -> None:
    async with connect(groups["url"]) as cluster:
        template = {"spec": cluster.pod_spec()}
        body = {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "big"},
            "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
        }
        path = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{cluster.namespace}/leaderworkersets"
        await cluster.raw("POST", path, body)
        selector = "leaderworkerset.sigs.k8s.io/name=big"

        async def whole() -> dict[str, str] | None:
            status = (await cluster.raw("GET", f"{path}/big"))[2].get("status", {})
            pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await cluster.pods(selector)}
            return pods if status.get("readyReplicas") == 2 and len(pods) == 4 else None

        before = await eventually("both groups are whole", whole)
        assert sorted(before) == ["big-0", "big-0-1", "big-1", "big-1-1"]
        await cluster.core.delete_namespaced_pod("big-1-1", cluster.namespace)

        async def renewed() -> dict[str, str] | None:
            pods = await whole()
            return pods if pods and all(pods.get(name) != before[name] for name in ("big-1", "big-1-1")) else None

        after = await eventually("the group is renewed as one", renewed)
        assert {name for name in after if after[name] == before[name]} == {"big-0", "big-0-1"}
