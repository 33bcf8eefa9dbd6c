"""Writes: conflicts, the patch languages, dry runs and refusals."""

import json
from typing import Any

import pytest
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tests.sandbox.kubernetes.cluster import (
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC,
    Cluster,
    Obj,
    refused,
)


def deployments_path(cluster: Cluster, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments" + (f"/{name}" if name else "")


async def test_a_put_with_a_stale_version_answers_409(cluster: Cluster) -> None:
    old = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    await cluster.patch_deployment({"metadata": {"labels": {"team": "serving"}}})
    with pytest.raises(ApiException) as raised:
        await cluster.raw("PUT", deployments_path(cluster, "web"), old)
    assert (raised.value.status, json.loads(raised.value.body or "")["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC])
async def test_a_patch_with_a_stale_version_answers_409(cluster: Cluster, kind: str) -> None:
    old = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    await cluster.patch_deployment({"metadata": {"labels": {"team": "serving"}}})
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {"paused": True}}
    async with refused(409) as refusal:
        await cluster.patch_deployment(patch, kind)
    assert "the object has been modified" in refusal.body["message"]


async def test_a_patch_of_another_uid_answers_422_and_a_put_409(cluster: Cluster) -> None:
    made = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}
    async with refused(422) as refusal:
        await cluster.patch_deployment(other)
    assert (refusal.causes[0]["field"], refusal.body["reason"]) == ("metadata.uid", "Invalid")
    assert "field is immutable" in refusal.causes[0]["message"]
    made["metadata"] |= other["metadata"]
    with pytest.raises(ApiException) as raised:
        await cluster.raw("PUT", deployments_path(cluster, "web"), made)
    assert raised.value.status == 409


async def test_a_null_in_a_merge_patch_deletes_the_key(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=0)
    body["metadata"]["annotations"] = {"keep": "1", "drop": "1"}
    await cluster.create_deployment(body)
    patched = await cluster.patch_deployment({"metadata": {"annotations": {"drop": None}}}, MERGE_PATCH)
    assert "drop" not in patched["metadata"]["annotations"]
    assert patched["metadata"]["annotations"]["keep"] == "1"


async def test_a_strategic_patch_merges_containers_and_env_by_name(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    change = {"name": "main", "env": [{"name": "EXTRA", "value": "1"}], "args": ["--flag=2"]}
    added = {"name": "side", "image": cluster.image}
    patch = {"spec": {"template": {"spec": {"containers": [change, added]}}}}
    containers = (await cluster.patch_deployment(patch))["spec"]["template"]["spec"]["containers"]
    by_name = {one["name"]: one for one in containers}
    assert set(by_name) == {"main", "side"}
    assert by_name["main"]["image"] == cluster.image
    assert {one["name"]: one["value"] for one in by_name["main"]["env"]} == {"MODE": "slow", "EXTRA": "1"}
    assert by_name["main"]["args"] == ["--flag=2"]


async def test_a_strategic_patch_deletes_a_container_by_name(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=0)
    body["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": cluster.image})
    await cluster.create_deployment(body)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    containers = (await cluster.patch_deployment(patch))["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in containers] == ["main"]


async def test_a_json_patch_is_a_list_of_operations_and_all_or_nothing(cluster: Cluster) -> None:
    before = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    uid = before["metadata"]["uid"]
    operations: list[Obj] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/template/spec/containers/0/env/0/value", "value": "slow"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "fast"},
        {"op": "add", "path": "/metadata/annotations/bot~1call", "value": "INC-1/c1/1"},
    ]
    after = await cluster.patch_deployment(operations, JSON_PATCH)
    assert after["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "fast"
    assert after["metadata"]["annotations"]["bot/call"] == "INC-1/c1/1"


async def test_a_json_patch_whose_test_fails_answers_422_and_changes_nothing(cluster: Cluster) -> None:
    before = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    operations = [
        {"op": "add", "path": "/metadata/labels", "value": {"team": "serving"}},
        {"op": "test", "path": "/spec/replicas", "value": 7},
    ]
    async with refused(422) as refusal:
        await cluster.patch_deployment(operations, JSON_PATCH)
    assert refusal.body["reason"] == "Invalid"
    assert refusal.body["message"] == "the server rejected our request due to an error in our request"
    assert await cluster.deployment() == before


async def test_the_same_guarded_patch_wins_only_once(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    operations = [
        {"op": "test", "path": "/spec/template/spec/containers/0/env/0/value", "value": "slow"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "fast"},
    ]
    await cluster.patch_deployment(operations, JSON_PATCH)
    async with refused(422):
        await cluster.patch_deployment(operations, JSON_PATCH)


async def test_a_json_patch_that_removes_what_is_not_there_answers_422(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    async with refused(422):
        await cluster.patch_deployment([{"op": "remove", "path": "/metadata/labels/none"}], JSON_PATCH)


async def test_a_json_patch_can_test_that_an_annotation_is_absent(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    operations = [
        {"op": "test", "path": "/metadata/annotations/bot~1call", "value": None},
        {"op": "add", "path": "/metadata/annotations/bot~1call", "value": "INC-1/c1/1"},
    ]
    await cluster.patch_deployment(operations, JSON_PATCH)
    async with refused(422):
        await cluster.patch_deployment(operations, JSON_PATCH)


async def test_a_json_patch_replaces_even_a_key_that_is_absent(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    operations = [{"op": "replace", "path": "/metadata/annotations/note", "value": "1"}]
    after = await cluster.patch_deployment(operations, JSON_PATCH)
    assert after["metadata"]["annotations"]["note"] == "1"


async def test_an_unknown_patch_type_answers_415(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    async with refused(415) as refusal:
        await cluster.patch_deployment({"spec": {"paused": True}}, "application/json")
    assert refusal.body["reason"] == "UnsupportedMediaType"


async def test_a_dry_run_create_is_filled_in_and_persists_nothing(cluster: Cluster) -> None:
    body: Any = cluster.deployment_body()
    made = cluster.plain(await cluster.apps.create_namespaced_deployment(cluster.namespace, body, dry_run="All"))
    assert made["spec"]["progressDeadlineSeconds"] == 600
    async with refused(404):
        await cluster.deployment()


async def test_a_dry_run_create_of_what_exists_answers_409(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    body: Any = cluster.deployment_body()
    async with refused(409) as refusal:
        await cluster.apps.create_namespaced_deployment(cluster.namespace, body, dry_run="All")
    assert refusal.body["reason"] == "AlreadyExists"


async def test_a_dry_run_patch_shows_the_result_and_persists_nothing(cluster: Cluster) -> None:
    before = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    patch = {"spec": {"replicas": 5}}
    shown = await cluster.patch_deployment(patch, dry_run="All")
    assert shown["spec"]["replicas"] == 5
    assert shown["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert (await cluster.deployment())["spec"]["replicas"] == 0


async def test_a_dry_run_patch_is_validated(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    async with refused(422) as refusal:
        await cluster.patch_deployment({"spec": {"replicas": -1}}, dry_run="All")
    assert refusal.causes[0]["field"] == "spec.replicas"


async def test_a_dry_run_delete_persists_nothing(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    await cluster.apps.delete_namespaced_deployment("web", cluster.namespace, dry_run="All")
    assert "deletionTimestamp" not in (await cluster.deployment())["metadata"]


async def test_a_delete_with_the_wrong_uid_answers_409(cluster: Cluster) -> None:
    await cluster.create_pod()
    body: Any = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    async with refused(409):
        await cluster.core.delete_namespaced_pod("lone", cluster.namespace, body=body)


async def test_a_strict_create_with_an_unknown_field_answers_400(cluster: Cluster) -> None:
    body = cluster.deployment_body()
    body["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    async with refused(400) as refusal:
        await cluster.raw("POST", deployments_path(cluster), body, {"fieldValidation": "Strict"})
    assert 'unknown field "spec.template.spec.containers[0].imagePolicy"' in refusal.body["message"]


async def test_a_strict_patch_with_an_unknown_field_answers_422(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    async with refused(422) as refusal:
        await cluster.patch_deployment({"spec": {"replica": 3}}, MERGE_PATCH, field_validation="Strict")
    assert 'unknown field "spec.replica"' in refusal.body["message"]


async def test_an_unknown_field_is_dropped_with_a_warning_unless_asked_otherwise(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=0)
    body["spec"]["replica"] = 3
    headers, code, made = await cluster.raw("POST", deployments_path(cluster), body)
    assert code == 201
    assert "replica" not in made["spec"]
    assert 'unknown field \\"spec.replica\\"' in headers["Warning"]


async def test_a_value_of_the_wrong_type_is_refused(cluster: Cluster) -> None:
    body = cluster.deployment_body()
    body["spec"]["replicas"] = "three"
    async with refused(400) as refusal:
        await cluster.raw("POST", deployments_path(cluster), body)
    assert "cannot unmarshal string" in refusal.body["message"]


async def test_quantities_are_stored_in_their_canonical_form(cluster: Cluster) -> None:
    amounts = {"example.com/memory": "3000", "cpu": "0.5", "memory": "1024Mi", "ephemeral-storage": "1e3"}
    body = cluster.deployment_body(replicas=0)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": amounts}
    created = await cluster.create_deployment(body, settled=False)
    stored = created["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    canonical = {"example.com/memory": "3k", "cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1e3"}
    assert stored == canonical


async def test_what_is_no_quantity_answers_400(cluster: Cluster) -> None:
    body = cluster.deployment_body(replicas=0)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "lots"}}
    async with refused(400) as refusal:
        await cluster.create_deployment(body, settled=False)
    assert "quantities must match the regular expression" in refusal.body["message"]


async def test_the_selector_of_a_deployment_cannot_change(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    patch = {
        "spec": {
            "selector": {"matchLabels": {"app": "other"}},
            "template": {"metadata": {"labels": {"app": "other"}}},
        }
    }
    async with refused(422) as refusal:
        await cluster.patch_deployment(patch, MERGE_PATCH)
    assert [cause["field"] for cause in refusal.causes] == ["spec.selector"]
    assert "field is immutable" in refusal.body["message"]


async def test_a_template_that_its_selector_does_not_match_is_refused(cluster: Cluster) -> None:
    body = cluster.deployment_body()
    body["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    async with refused(422) as refusal:
        await cluster.create_deployment(body, settled=False)
    assert refusal.causes[0]["field"] == "spec.template.metadata.labels"


async def test_no_pod_can_get_other_arguments_than_it_was_born_with(cluster: Cluster) -> None:
    await cluster.create_pod()
    patch = {"spec": {"containers": [{"name": "main", "args": ["--flag"]}]}}
    async with refused(422) as refusal:
        await cluster.core.patch_namespaced_pod("lone", cluster.namespace, patch, _content_type=STRATEGIC)
    assert "pod updates may not change fields other than" in refusal.body["message"]


async def test_an_apply_of_a_field_that_somebody_else_owns_answers_409(cluster: Cluster) -> None:
    mine = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"mode": "fast"},
    }
    theirs = {**mine, "data": {"mode": "slow"}}
    patch = cluster.core.patch_namespaced_config_map
    await patch("settings", cluster.namespace, mine, field_manager="argo", _content_type=APPLY)
    async with refused(409) as refusal:
        await patch("settings", cluster.namespace, theirs, field_manager="bot", _content_type=APPLY)
    assert refusal.causes[0]["reason"] == "FieldManagerConflict"
    forced = await patch("settings", cluster.namespace, theirs, field_manager="bot", force=True, _content_type=APPLY)
    assert forced.data == {"mode": "slow"}


async def test_an_object_says_who_set_which_field(cluster: Cluster) -> None:
    data = {"mode": "fast", "size": "2"}
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="settings"), data=data)
    await cluster.core.create_namespaced_config_map(cluster.namespace, body, field_manager="pipeline")

    async def write(mode: str) -> dict[str, tuple[str, Obj]]:
        operations = [{"op": "add", "path": "/data/mode", "value": mode}]
        written = await cluster.core.patch_namespaced_config_map(
            "settings", cluster.namespace, operations, field_manager="bot", _content_type=JSON_PATCH
        )
        assert written.metadata is not None
        return {str(one.manager): (str(one.time), one.fields_v1 or {}) for one in written.metadata.managed_fields or []}

    same = await write("fast")
    assert list(same) == ["pipeline"]
    after = await write("slow")
    # A real server also lists the map itself, as `.`, with who made it.
    owned = {manager: set(fields["f:data"]) - {"."} for manager, (_, fields) in after.items()}
    assert owned == {"pipeline": {"f:size"}, "bot": {"f:mode"}}
    assert await write("slow") == after


async def test_scale_reads_as_its_own_kind_and_changes_only_the_size(cluster: Cluster) -> None:
    before = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    read = await cluster.apps.read_namespaced_deployment_scale("web", cluster.namespace)
    assert (read.kind, read.api_version) == ("Scale", "autoscaling/v1")
    assert read.status is not None
    assert read.status.selector == "app=web"
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": before["metadata"]["uid"]},
        {"op": "test", "path": "/spec/replicas", "value": None},
        {"op": "add", "path": "/spec/replicas", "value": 1},
    ]
    scaled = await cluster.apps.patch_namespaced_deployment_scale(
        "web", cluster.namespace, operations, _content_type=JSON_PATCH
    )
    assert scaled.spec is not None
    assert scaled.spec.replicas == 1
    after = await cluster.settled()
    assert {**after["spec"], "replicas": 0} == before["spec"]


async def test_a_scale_of_zero_replicas_leaves_the_number_out(cluster: Cluster) -> None:
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    path = f"{deployments_path(cluster, 'web')}/scale"
    _, _, scale = await cluster.raw("GET", path)
    assert (scale["spec"], scale["status"]["replicas"]) == ({}, 0)
    operations = [{"op": "test", "path": "/spec/replicas", "value": 0}]
    with pytest.raises(ApiException) as raised:
        await cluster.raw("PATCH", path, operations, kind=JSON_PATCH)
    assert raised.value.status == 422


async def test_a_scale_patch_with_a_stale_version_answers_409(cluster: Cluster) -> None:
    old = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    await cluster.patch_deployment({"metadata": {"labels": {"team": "serving"}}})
    version = old["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}}
    async with refused(409):
        await cluster.apps.patch_namespaced_deployment_scale("web", cluster.namespace, patch, _content_type=MERGE_PATCH)


async def test_a_spec_change_raises_the_generation_and_a_label_does_not(cluster: Cluster) -> None:
    first = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    labelled = await cluster.patch_deployment({"metadata": {"labels": {"team": "serving"}}})
    edited = await cluster.patch_deployment({"spec": {"minReadySeconds": 1}})
    generations = [one["metadata"]["generation"] for one in (first, labelled, edited)]
    assert generations == [generations[0], generations[0], generations[0] + 1]


async def test_an_annotation_raises_the_generation_of_a_deployment(cluster: Cluster) -> None:
    first = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    stamped = await cluster.patch_deployment({"metadata": {"annotations": {"bot/call": "INC-1/c1/1"}}})
    assert stamped["metadata"]["generation"] == first["metadata"]["generation"] + 1


async def test_a_write_that_changes_nothing_makes_no_new_version(cluster: Cluster) -> None:
    before = await cluster.create_deployment(cluster.deployment_body(replicas=0))
    after = await cluster.patch_deployment({"spec": {"replicas": 0}})
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_generated_name_starts_with_what_was_asked_for(cluster: Cluster) -> None:
    body: Any = {"metadata": {"generateName": "note-"}, "data": {"a": "1"}}
    made = await cluster.core.create_namespaced_config_map(cluster.namespace, body)
    assert made.metadata is not None
    assert made.metadata.name is not None
    assert made.metadata.name.startswith("note-")
    assert len(made.metadata.name) == len("note-") + 5


async def test_creating_a_fixed_name_twice_answers_409(cluster: Cluster) -> None:
    body: Any = {"metadata": {"name": "note"}}
    await cluster.core.create_namespaced_config_map(cluster.namespace, body)
    async with refused(409) as refusal:
        await cluster.core.create_namespaced_config_map(cluster.namespace, body)
    assert refusal.body["reason"] == "AlreadyExists"


async def test_an_autoscaler_names_the_workload_whose_size_it_owns(cluster: Cluster) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body: Any = {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    api = client.AutoscalingV2Api(cluster.api)
    await api.create_namespaced_horizontal_pod_autoscaler(cluster.namespace, body)
    (found,) = (await api.list_namespaced_horizontal_pod_autoscaler(cluster.namespace)).items
    assert cluster.plain(found)["spec"]["scaleTargetRef"] == target


async def test_cordoning_sets_unschedulable_and_nothing_else(cluster: Cluster) -> None:
    nodes = await cluster.core.list_node()
    name = next(one.metadata.name for one in nodes.items if one.metadata is not None)
    assert name is not None
    cordoned = await cluster.core.patch_node(name, {"spec": {"unschedulable": True}}, dry_run="All")
    assert cordoned.spec is not None
    assert cordoned.spec.unschedulable is True
    read = await cluster.core.read_node(name)
    assert read.spec is not None
    assert not read.spec.unschedulable


async def test_the_class_of_a_pod_cannot_change(cluster: Cluster) -> None:
    pod = await cluster.create_pod()
    assert pod["status"]["qosClass"] == "BestEffort"
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/lone/status"
    with pytest.raises(ApiException) as raised:
        await cluster.raw("PATCH", path, {"status": {"qosClass": "Guaranteed"}}, kind=MERGE_PATCH)
    assert raised.value.status == 422
    assert "status.qosClass" in (raised.value.body or "")
    _, status, _ = await cluster.raw("PATCH", path, {"status": {"reason": "Seen"}}, kind=MERGE_PATCH)
    assert status == 200
    unclassified = {name: value for name, value in pod["status"].items() if name != "qosClass"}
    body = {"metadata": {"name": "lone", "uid": pod["metadata"]["uid"]}, "status": unclassified}
    _, status, whole = await cluster.raw("PUT", path, {"apiVersion": "v1", "kind": "Pod", **body})
    assert (status, whole["status"]["qosClass"]) == (200, "BestEffort")


async def test_an_endpoint_on_loopback_is_refused(cluster: Cluster) -> None:
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "local"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [],
    }
    path = f"/apis/discovery.k8s.io/v1/namespaces/{cluster.namespace}/endpointslices"
    with pytest.raises(ApiException) as raised:
        await cluster.raw("POST", path, body)
    assert (raised.value.status, "loopback range" in (raised.value.body or "")) == (422, True)
