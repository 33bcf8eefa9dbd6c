"""Reading: selectors, watches, logs and access reviews."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kubernetes.aio import client, watch
from kubernetes.aio.client.exceptions import ApiException

from tests.sandbox.kubernetes.cluster import BAD_IMAGE, Cluster, Obj, eventually, refused, waiting_reason

DEADLINE_SECONDS = 30.0


def watching() -> Any:
    make: Callable[[], Any] = watch.Watch
    return make()


async def write_note(cluster: Cluster, name: str, **data: str) -> Obj:
    body: Any = {"metadata": {"name": name, "labels": {"note": name}}, "data": data}
    return cluster.plain(await cluster.core.create_namespaced_config_map(cluster.namespace, body))


async def change_note(cluster: Cluster, name: str, patch: Obj) -> Obj:
    changed = await cluster.core.patch_namespaced_config_map(name, cluster.namespace, patch)
    return cluster.plain(changed)


async def events(cluster: Cluster, count: int, **options: Any) -> list[tuple[str, str]]:
    """Type and name of the next `count` events about notes; clusters put ConfigMaps of their own into a namespace."""
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(DEADLINE_SECONDS), watching() as watcher:
        stream: AsyncIterator[Any] = watcher.stream(
            cluster.core.list_namespaced_config_map,
            cluster.namespace,
            timeout_seconds=int(DEADLINE_SECONDS),
            **options,
        )
        async for event in stream:
            metadata = event["raw_object"]["metadata"]
            if "note" in metadata.get("labels", {}):
                seen.append((event["type"], metadata["name"]))
            if len(seen) == count:
                break
    return seen


async def test_a_watch_without_a_version_starts_with_what_exists(cluster: Cluster) -> None:
    await write_note(cluster, "first")
    await write_note(cluster, "second")
    assert sorted(await events(cluster, 2)) == [("ADDED", "first"), ("ADDED", "second")]


async def test_a_watch_from_a_version_reports_only_what_came_after(cluster: Cluster) -> None:
    made = await write_note(cluster, "first")
    await change_note(cluster, "first", {"data": {"a": "1"}})
    await cluster.core.delete_namespaced_config_map("first", cluster.namespace)
    version = made["metadata"]["resourceVersion"]
    assert await events(cluster, 2, resource_version=version) == [("MODIFIED", "first"), ("DELETED", "first")]


async def test_a_list_gives_the_version_to_watch_from(cluster: Cluster) -> None:
    await write_note(cluster, "before")
    listed = await cluster.core.list_namespaced_config_map(cluster.namespace)
    assert listed.metadata is not None
    version = listed.metadata.resource_version
    await write_note(cluster, "after")
    assert await events(cluster, 1, resource_version=version) == [("ADDED", "after")]


async def test_an_object_that_leaves_the_selector_is_deleted_for_that_watch(cluster: Cluster) -> None:
    made = await write_note(cluster, "first")
    await change_note(cluster, "first", {"metadata": {"labels": {"note": "other"}}})
    await change_note(cluster, "first", {"metadata": {"labels": {"note": "first"}}})
    version = made["metadata"]["resourceVersion"]
    seen = await events(cluster, 2, resource_version=version, label_selector="note=first")
    assert seen == [("DELETED", "first"), ("ADDED", "first")]


async def test_a_watch_from_too_old_a_version_says_410(cluster: Cluster) -> None:
    with pytest.raises(ApiException) as raised:
        await events(cluster, 1, resource_version="1")
    assert raised.value.status == 410


async def test_a_watch_ends_at_its_own_timeout(cluster: Cluster) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), watching() as watcher:
        stream: AsyncIterator[Any] = watcher.stream(
            cluster.core.list_namespaced_config_map,
            cluster.namespace,
            timeout_seconds=1,
            label_selector="note=none",
        )
        assert [event async for event in stream] == []


async def test_lists_select_by_label(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        await write_note(cluster, name)

    async def names(selector: str) -> list[str]:
        listed = await cluster.core.list_namespaced_config_map(cluster.namespace, label_selector=selector)
        return [cluster.plain(one)["metadata"]["name"] for one in listed.items]

    assert await names("note in (a, b)") == ["a", "b"]
    assert await names("note,note notin (a)") == ["b", "c"]
    assert await names("note!=a,note=b") == ["b"]


async def test_every_namespace_gets_the_clusters_root_certificate(cluster: Cluster) -> None:
    async def look() -> bool:
        listed = await cluster.core.list_namespaced_config_map(cluster.namespace)
        return "kube-root-ca.crt" in {cluster.plain(one)["metadata"]["name"] for one in listed.items}

    await eventually("the root certificate is published", look)


async def test_pods_are_selected_by_name_phase_and_node(cluster: Cluster) -> None:
    pod = await cluster.running_pod()
    node = pod["spec"]["nodeName"]
    selector = f"metadata.name=lone,status.phase=Running,spec.nodeName={node}"
    found = await cluster.core.list_namespaced_pod(cluster.namespace, field_selector=selector)
    none = await cluster.core.list_namespaced_pod(cluster.namespace, field_selector="status.phase=Failed")
    assert (len(found.items), len(none.items)) == (1, 0)


async def test_an_unknown_field_selector_answers_400(cluster: Cluster) -> None:
    async with refused(400) as refusal:
        await cluster.core.list_namespaced_pod(cluster.namespace, field_selector="spec.colour=red")
    assert "field label not supported: spec.colour" in refusal.body["message"]


async def test_events_are_found_by_the_object_they_are_about(cluster: Cluster) -> None:
    pod = await cluster.running_pod()

    async def scheduled() -> Obj | None:
        found = await cluster.core.list_namespaced_event(
            cluster.namespace, field_selector=f"involvedObject.uid={pod['metadata']['uid']}"
        )
        listed = [cluster.plain(one) for one in found.items]
        return next((one for one in listed if one["reason"] == "Scheduled"), None)

    event = await eventually("the scheduler told where the pod went", scheduled)
    assert event["involvedObject"]["name"] == "lone"
    assert "eventTime" in event
    assert "firstTimestamp" not in event


async def test_the_log_of_a_running_container_is_text(cluster: Cluster) -> None:
    await cluster.running_pod()
    assert isinstance(await cluster.core.read_namespaced_pod_log("lone", cluster.namespace), str)


async def test_the_log_of_an_absent_previous_container_answers_400(cluster: Cluster) -> None:
    await cluster.running_pod()
    async with refused(400) as refusal:
        await cluster.core.read_namespaced_pod_log("lone", cluster.namespace, previous=True)
    assert "previous terminated container" in refusal.body["message"]


async def test_the_log_of_an_unknown_container_answers_400(cluster: Cluster) -> None:
    await cluster.running_pod()
    async with refused(400) as refusal:
        await cluster.core.read_namespaced_pod_log("lone", cluster.namespace, container="nobody")
    assert refusal.body["message"] == "container nobody is not valid for pod lone"


async def test_the_log_of_a_container_that_waits_to_start_answers_400(cluster: Cluster) -> None:
    await cluster.create_pod("stuck", containers=[{"name": "main", "image": BAD_IMAGE}])
    await cluster.pod_where(
        "the image cannot be pulled", "stuck", lambda pod: waiting_reason(pod) in ("ErrImagePull", "ImagePullBackOff")
    )
    async with refused(400) as refusal:
        await cluster.core.read_namespaced_pod_log("stuck", cluster.namespace)
    assert "waiting to start" in refusal.body["message"]


async def test_the_log_of_a_missing_pod_answers_404(cluster: Cluster) -> None:
    async with refused(404):
        await cluster.core.read_namespaced_pod_log("nobody", cluster.namespace)


async def test_an_access_review_says_what_is_allowed(cluster: Cluster) -> None:
    attributes = {"verb": "list", "resource": "pods", "namespace": cluster.namespace}
    body: Any = {"spec": {"resourceAttributes": attributes}}
    review = await client.AuthorizationV1Api(cluster.api).create_self_subject_access_review(body)
    assert review.status is not None
    assert review.status.allowed is True


async def test_a_resource_that_the_cluster_does_not_have_answers_404(cluster: Cluster) -> None:
    custom = client.CustomObjectsApi(cluster.api)
    with pytest.raises(ApiException) as raised:
        await custom.list_namespaced_custom_object("no.such.group", "v1", cluster.namespace, "things")
    assert raised.value.status == 404


async def test_the_version_is_reported(cluster: Cluster) -> None:
    assert (await client.VersionApi(cluster.api).get_code()).major == "1"


async def test_discovery_lists_the_workloads(cluster: Cluster) -> None:
    listed = await client.AppsV1Api(cluster.api).get_api_resources()
    assert {"deployments", "deployments/scale", "replicasets"} <= {one.name for one in listed.resources}
