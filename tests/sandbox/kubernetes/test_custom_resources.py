"""Custom resources that others install: KEDA's ScaledObject and the Gateway API's InferencePool.

A real cluster without their CustomResourceDefinitions answers 404, and the tests that need them are skipped there.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.cluster.objects import name_of
from bot.domain.cluster.rotation import OUT_VALUE, rotation_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.target import Target
from tests.processes import Running
from tests.sandbox.kubernetes.bench import NAME, REPLICAS, SELECTOR, Bench
from tests.sandbox.kubernetes.cluster import MERGE_PATCH, Cluster, Obj, refused

OLDER_POOLS = "inference.networking.x-k8s.io/v1alpha2"
POOLS, SCALED_OBJECTS = "inference.networking.k8s.io/v1", "keda.sh/v1alpha1"
PICKER = {"name": "llm-epp", "port": {"number": 9002}}


def pool(**selector: str) -> Obj:
    spec = {
        "selector": {"matchLabels": selector},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": PICKER,
    }
    return {"apiVersion": POOLS, "kind": "InferencePool", "metadata": {"name": NAME}, "spec": spec}


def scaled_object(**spec: object) -> Obj:
    body = {"scaleTargetRef": {"name": "web"}, "maxReplicaCount": 4, "triggers": [{"type": "cpu", "metadata": {}}]}
    return {"apiVersion": SCALED_OBJECTS, "kind": "ScaledObject", "metadata": {"name": "web"}, "spec": body | spec}


def older_pool(**selector: str) -> Obj:
    spec = {"selector": selector, "targetPortNumber": 8000, "extensionRef": {"name": "llm-epp"}}
    return {"apiVersion": OLDER_POOLS, "kind": "InferencePool", "metadata": {"name": NAME}, "spec": spec}


async def test_an_inference_pool_is_served_with_its_generation(cluster: Cluster) -> None:
    path = await cluster.custom_path(POOLS, "inferencepools")
    await cluster.raw("POST", path, pool(app=NAME))
    change = {"spec": {"selector": {"matchLabels": {"app": NAME, "serving": "active"}}}}
    await cluster.raw("PATCH", f"{path}/{NAME}", change, kind=MERGE_PATCH)
    _, _, found = await cluster.raw("GET", f"{path}/{NAME}")
    assert (found["metadata"]["generation"], found["spec"]["selector"]) == (2, change["spec"]["selector"])
    _, _, listed = await cluster.raw("GET", path)
    assert (listed["kind"], [name_of(one) for one in listed["items"]]) == ("InferencePoolList", [NAME])


@pytest.mark.parametrize("field", ["selector", "targetPorts", "endpointPickerRef"])
async def test_an_inference_pool_without_a_required_field_answers_422(cluster: Cluster, field: str) -> None:
    path = await cluster.custom_path(POOLS, "inferencepools")
    body = pool(app=NAME)
    del body["spec"][field]
    async with refused(422):
        await cluster.raw("POST", path, body)


@pytest.mark.parametrize("field", ["selector", "targetPortNumber", "extensionRef"])
async def test_an_older_inference_pool_without_a_required_field_answers_422(cluster: Cluster, field: str) -> None:
    path = await cluster.custom_path(OLDER_POOLS, "inferencepools")
    body = older_pool(app=NAME)
    del body["spec"][field]
    async with refused(422):
        await cluster.raw("POST", path, body)


@pytest.mark.parametrize("port", [0, 65536])
async def test_an_older_inference_pool_with_a_strange_port_answers_422(cluster: Cluster, port: int) -> None:
    path = await cluster.custom_path(OLDER_POOLS, "inferencepools")
    body = older_pool(app=NAME)
    body["spec"]["targetPortNumber"] = port
    async with refused(422):
        await cluster.raw("POST", path, body)


async def test_a_scaled_object_is_served_and_its_bounds_are_patched(cluster: Cluster) -> None:
    path = await cluster.custom_path(SCALED_OBJECTS, "scaledobjects")
    await cluster.raw("POST", path, scaled_object())
    change = [
        {"op": "test", "path": "/spec/maxReplicaCount", "value": 4},
        {"op": "replace", "path": "/spec/maxReplicaCount", "value": 5},
        {"op": "add", "path": "/spec/minReplicaCount", "value": 5},
    ]
    _, _, found = await cluster.raw("PATCH", f"{path}/web", change, kind="application/json-patch+json")
    assert (found["spec"]["minReplicaCount"], found["spec"]["maxReplicaCount"]) == (5, 5)
    async with refused(422):
        await cluster.raw("PATCH", f"{path}/web", change, kind="application/json-patch+json")


async def test_a_kind_that_is_not_installed_answers_404(own_stand_in: Callable[..., Running]) -> None:
    without = ("--without-crds", "keda.sh", "--without-crds", "inference.networking.k8s.io")
    running = own_stand_in("--seed-world", "plain", *without)
    async with httpx.AsyncClient(base_url=running.url) as http:
        groups = {one["name"] for one in (await http.get("/apis")).json()["groups"]}
        assert "apps" in groups
        assert groups.isdisjoint({"keda.sh", "inference.networking.k8s.io"})
        for path in (SCALED_OBJECTS, f"{POOLS}/namespaces/default/inferencepools", "keda.sh"):
            answer = await http.get(f"/apis/{path}")
            assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")


async def behind_a_pool(bench: Bench, body: Obj) -> None:
    """No Service selects the replicas any more; a pool does."""
    path = await bench.somebody.custom_path(body["apiVersion"], "inferencepools")
    await bench.somebody.raw("POST", path, body)
    nobody = {"spec": {"selector": {"app": NAME, "serving": "nobody"}}}
    await bench.somebody.raw("PATCH", f"{bench.path('services')}/{NAME}", nobody, kind=MERGE_PATCH)
    await bench.until_seen("no EndpointSlice lists a replica", is_unlisted)


@pytest.mark.parametrize(
    ("absent", "found"),
    [
        pytest.param((), [POOLS, OLDER_POOLS], id="both"),
        pytest.param((OLDER_POOLS,), [POOLS], id="v1"),
        pytest.param((POOLS,), [OLDER_POOLS], id="v1alpha2"),
        pytest.param((POOLS, OLDER_POOLS), [], id="neither"),
    ],
)
async def test_the_pools_of_whichever_group_is_served_are_read_without_an_error(
    own_stand_in: Callable[..., Running], absent: tuple[str, ...], found: list[str]
) -> None:
    without = [word for group in absent for word in ("--without-crds", group.partition("/")[0])]
    running = own_stand_in("--seed-world", "demo", *without)
    async with httpx.AsyncClient(base_url=running.url) as http:
        for body in (pool(app=NAME), older_pool(app=NAME)):
            path = f"/apis/{body['apiVersion']}/namespaces/serving/inferencepools"
            assert (await http.post(path, json=body)).status_code == (201 if body["apiVersion"] in found else 404)
    async with KubernetesClient(Connection(url=running.url)) as client:
        seen = await KubernetesReader(client).snapshot(Target(namespace="serving", name=NAME), incident_id="INC-1")
    of_spec = {"targetPorts": POOLS, "targetPortNumber": OLDER_POOLS}
    read = {group for one in seen.inference_pools for key, group in of_spec.items() if key in one["spec"]}
    assert read == set(found)
    assert "inference_pools" not in seen.unreadable


def is_unlisted(world: ClusterSnapshot) -> bool:
    return not any(one.get("endpoints") for one in world.endpoint_slices)


def in_rotation(world: ClusterSnapshot) -> set[str]:
    rotation = rotation_of(world)
    assert rotation is not None
    return set(rotation.in_rotation)


@pytest.mark.parametrize("made", [pytest.param(pool, id="v1"), pytest.param(older_pool, id="v1alpha2")])
async def test_behind_a_pool_a_relabelled_replica_leaves_rotation_and_returns(
    bench: Bench, made: Callable[..., Obj]
) -> None:
    await behind_a_pool(bench, made(**SELECTOR))
    world = await bench.snapshot()
    assert len(in_rotation(world)) == REPLICAS
    chosen = sorted(in_rotation(world))[0]
    plan = await bench.plan("isolate_replica", replica=chosen)
    assert any(op.get("value") == OUT_VALUE for op in plan.calls[0].body)
    await bench.carry_out(plan)
    assert chosen not in in_rotation(await bench.snapshot())
    await bench.carry_out(await bench.plan("return_replica", replica=chosen))
    assert chosen in in_rotation(await bench.snapshot())


async def test_without_a_service_or_a_pool_rotation_is_reported_as_unknown(bench: Bench) -> None:
    await behind_a_pool(bench, pool(**SELECTOR))
    path = await bench.somebody.custom_path(POOLS, "inferencepools")
    await bench.somebody.raw("DELETE", f"{path}/{NAME}")
    rotation = rotation_of(await bench.snapshot())
    assert rotation is not None
    assert "another router finds them" in rotation.unread
    assert len(rotation.in_rotation) == REPLICAS
