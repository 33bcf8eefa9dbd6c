"""KEDA's operator and its webhook: which autoscaler a ScaledObject has, what reverts, and what is refused.

A real cluster without KEDA skips these tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.kubernetes.bench import NAME, REPLICAS, Bench
from tests.sandbox.kubernetes.cluster import MERGE_PATCH, Cluster, Obj, eventually, refused

GROUP = "keda.sh/v1alpha1"
PAUSE = "autoscaling.keda.sh/"
HOURS = {"timezone": "Etc/UTC", "start": "0 6 * * *", "end": "0 20 * * *", "desiredReplicas": "1"}


def scaled_object(name: str = "web", **spec: Any) -> Obj:
    body = {"scaleTargetRef": {"name": name}, "triggers": [{"type": "cron", "metadata": HOURS}]}
    return {"apiVersion": GROUP, "kind": "ScaledObject", "metadata": {"name": name}, "spec": body | spec}


def hpas(cluster: Cluster) -> str:
    return f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers"


async def scaler(cluster: Cluster, name: str = "keda-hpa-web") -> Obj | None:
    """Returns the autoscaler; None if there is none."""
    _, _, listed = await cluster.raw("GET", hpas(cluster))
    return next((one for one in listed["items"] if one["metadata"]["name"] == name), None)


def bounds(found: Obj | None) -> tuple[int, int] | None:
    return None if found is None else (found["spec"]["minReplicas"], found["spec"]["maxReplicas"])


async def until_bounds(cluster: Cluster, wanted: tuple[int, int], name: str = "keda-hpa-web") -> Obj:
    async def there() -> Obj | None:
        found = await scaler(cluster, name)
        return found if bounds(found) == wanted else None

    return await eventually(f"{name} has the bounds {wanted}", there)


async def until_gone(cluster: Cluster) -> None:
    async def gone() -> bool:
        return await scaler(cluster) is None

    await eventually("the autoscaler is deleted", gone)


async def made(cluster: Cluster, **spec: Any) -> str:
    """A Deployment `web` of two replicas and its ScaledObject. Returns the path of the ScaledObject."""
    path = await cluster.custom_path(GROUP, "scaledobjects")
    await cluster.create_deployment(cluster.deployment_body(), settled=False)
    await cluster.raw("POST", path, scaled_object(**spec))
    return f"{path}/web"


async def annotate(cluster: Cluster, path: str, name: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {f"{PAUSE}{name}": value}}}
    await cluster.raw("PATCH", path, patch, kind=MERGE_PATCH)


async def test_a_scaled_object_has_an_autoscaler_of_its_bounds_and_labels(cluster: Cluster) -> None:
    path = await made(cluster, minReplicaCount=2)
    found = await until_bounds(cluster, (2, 100))
    owner = found["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ScaledObject", "web", True)
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "keda-operator"
    _, _, scaled = await cluster.raw("GET", path)
    assert scaled["metadata"]["labels"]["scaledobject.keda.sh/name"] == "web"
    assert scaled["status"]["hpaName"] == "keda-hpa-web"


async def test_an_edit_of_the_autoscaler_is_reverted_and_one_of_the_scaled_object_is_followed(cluster: Cluster) -> None:
    path = await made(cluster, minReplicaCount=1, maxReplicaCount=4)
    await until_bounds(cluster, (1, 4))
    patch = {"spec": {"minReplicas": 3, "maxReplicas": 9}}
    await cluster.raw("PATCH", f"{hpas(cluster)}/keda-hpa-web", patch, kind=MERGE_PATCH)
    await until_bounds(cluster, (1, 4))
    patch = {"spec": {"minReplicaCount": 3, "maxReplicaCount": 5}}
    await cluster.raw("PATCH", path, patch, kind=MERGE_PATCH)
    await until_bounds(cluster, (3, 5))

    async def grown() -> bool:
        return bool((await cluster.deployment("web"))["spec"]["replicas"] == 3)

    await eventually("the workload has as many replicas as its new floor", grown)


async def test_a_deleted_autoscaler_comes_back(cluster: Cluster) -> None:
    await made(cluster, minReplicaCount=1, maxReplicaCount=4)
    uid = (await until_bounds(cluster, (1, 4)))["metadata"]["uid"]
    await cluster.raw("DELETE", f"{hpas(cluster)}/keda-hpa-web")

    async def back() -> bool:
        found = await scaler(cluster)
        return found is not None and found["metadata"]["uid"] != uid

    await eventually("another autoscaler is there", back)


async def test_paused_scale_in_keeps_the_bounds_and_disables_scaling_down(cluster: Cluster) -> None:
    path = await made(cluster, minReplicaCount=1, maxReplicaCount=4)
    await until_bounds(cluster, (1, 4))

    async def has(behavior: Obj | None) -> bool:
        found = await scaler(cluster)
        return found is not None and (found["spec"].get("behavior") or {}).get("scaleDown") == behavior

    async def is_disabled() -> bool:
        found = await scaler(cluster)
        behavior = (found or {}).get("spec", {}).get("behavior") or {}
        return bool(behavior.get("scaleDown", {}).get("selectPolicy") == "Disabled")

    await annotate(cluster, path, "paused-scale-in", "true")
    await eventually("scaling down is disabled", is_disabled)
    assert bounds(await scaler(cluster)) == (1, 4)
    await annotate(cluster, path, "paused-scale-in", "false")
    await eventually("scaling down is as before", lambda: has(None))


async def test_a_paused_scaled_object_has_no_autoscaler_until_it_goes_on(cluster: Cluster) -> None:
    path = await made(cluster, minReplicaCount=1, maxReplicaCount=4)
    await until_bounds(cluster, (1, 4))
    await annotate(cluster, path, "paused", "true")
    await until_gone(cluster)
    assert (await cluster.deployment("web"))["spec"]["replicas"] == 2
    await annotate(cluster, path, "paused", "False")
    await until_bounds(cluster, (1, 4))


async def test_paused_replicas_scales_first_even_beyond_the_maximum(cluster: Cluster) -> None:
    path = await made(cluster, minReplicaCount=1, maxReplicaCount=4)
    await until_bounds(cluster, (1, 4))
    await annotate(cluster, path, "paused-replicas", "5")

    async def scaled() -> bool:
        return bool((await cluster.deployment("web"))["spec"]["replicas"] == 5)

    await eventually("the workload has the replicas of the annotation", scaled)
    await until_gone(cluster)


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_a_floor_above_the_maximum_is_denied_by_the_webhook(cluster: Cluster, query: str) -> None:
    path = await made(cluster, minReplicaCount=1, maxReplicaCount=4)
    async with refused(403) as refusal:
        await cluster.raw("PATCH", f"{path}{query}", {"spec": {"minReplicaCount": 5}}, kind=MERGE_PATCH)
    text = refusal.body["message"]
    assert text.startswith('admission webhook "vscaledobject.kb.io" denied the request: ')
    assert "MinReplicaCount=5 must be less than MaxReplicaCount=4" in text


async def test_a_workload_that_another_autoscaler_scales_gets_no_scaled_object(cluster: Cluster) -> None:
    path = await cluster.custom_path(GROUP, "scaledobjects")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body = {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    await cluster.raw("POST", hpas(cluster), body)
    async with refused(403) as refusal:
        await cluster.raw("POST", path, scaled_object())
    assert "is already managed by the hpa 'web'" in refusal.body["message"]


async def test_keda_keeps_every_replica_during_a_rollout_and_gets_its_floor_back(bench: Bench) -> None:
    path = await bench.somebody.custom_path(GROUP, "scaledobjects")
    await bench.somebody.raw("POST", path, scaled_object(NAME, maxReplicaCount=REPLICAS))
    await until_bounds(bench.somebody, (1, REPLICAS), f"keda-hpa-{NAME}")
    plan = await bench.plan("restart")
    held = [call for call in plan.calls if call.target.kind == "ScaledObject"]
    assert [call.body[-1].get("value") for call in held] == [REPLICAS, None]
    await bench.carry_out(plan)
    _, _, found = await bench.somebody.raw("GET", f"{path}/{NAME}")
    assert "minReplicaCount" not in found["spec"]
    await until_bounds(bench.somebody, (1, REPLICAS), f"keda-hpa-{NAME}")
