"""Changes of a workload that another tool keeps, or where there is no room for one more pod.

They run on the stand-in, or on a real cluster: `pytest tests/sandbox/kubernetes --kubeconfig FILE`. Argo CD itself is
only in the stand-in.
"""

from __future__ import annotations

import json
from typing import Any

from ruamel.yaml import YAML

from bot.domain.changes.planning import plan_change
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.adapters.kubernetes.lab import CAP, CONTEXT, spec, with_ledger
from tests.sandbox.kubernetes.bench import NAME, REPLICAS, Bench
from tests.sandbox.kubernetes.cluster import Cluster, eventually

TRACKING = "argocd.argoproj.io/tracking-id"
ONE_AT_A_TIME = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


async def test_a_helm_workload_is_scaled_and_the_request_has_the_text_to_commit(bench: Bench) -> None:
    release = {"meta.helm.sh/release-name": "llm"}
    await bench.somebody_patches(
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": release}}
    )
    plan = await bench.plan("scale", by=1)
    drift = next(one for one in plan.circumstances if one.name == "owner")
    assert (drift.grade, "the next helm upgrade reverts it" in drift.text) == ("note", True)
    assert YAML(typ="safe").load(plan.commit)["spec"] == {"replicas": REPLICAS + 1}
    await bench.carry_out(plan)
    assert (await spec(bench))["replicas"] == REPLICAS + 1
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="last"))
    assert (await spec(bench))["replicas"] == REPLICAS


async def test_an_argo_cd_application_that_is_not_here_counts_as_healing_itself(bench: Bench) -> None:
    tracked = f"elsewhere-{bench.target.namespace}:apps/Deployment:{bench.target.namespace}/{NAME}"
    await bench.somebody_patches({"metadata": {"annotations": {TRACKING: tracked}}})
    result = plan_change("scale", {"by": 1}, await bench.snapshot(), CONTEXT)
    assert result.outcome == "impossible"
    assert "is not in this cluster" in result.reason
    assert YAML(typ="safe").load(result.hint)["spec"] == {"replicas": REPLICAS + 1}


async def no_more_pods(bench: Bench) -> None:
    """A quota that admits no pod beside those that run."""
    body: Any = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": str(REPLICAS)}}}
    await bench.somebody.core.create_namespaced_resource_quota(bench.target.namespace, body)
    await bench.until_seen(
        "the quota is counted", lambda world: any(one.get("status", {}).get("used") for one in world.quotas)
    )


async def test_flags_roll_out_in_place_where_a_quota_admits_no_surge_and_back(bench: Bench) -> None:
    await no_more_pods(bench)
    before = await spec(bench)
    plan = await bench.plan("set_flags", edits=CAP)
    room = next(one for one in plan.circumstances if one.name == "room")
    assert "ResourceQuota team admits 0 more" in room.text
    assert f"{REPLICAS - 1} of {REPLICAS} serve meanwhile" in room.text
    seen: list[int] = []

    def is_whole(world: ClusterSnapshot) -> bool:
        seen.append(len(bench.serving(world)))
        return bench.is_whole(world)

    await bench.carry_out(plan)
    await bench.until_seen("all replicas are in rotation again", is_whole)
    now = await spec(bench)
    assert now["strategy"] == before["strategy"]
    assert "--max-num-seqs=6" in now["template"]["spec"]["containers"][0]["args"]
    await bench.carry_out(await bench.plan("undo", with_ledger(plan), of="last"))
    assert await spec(bench) == before
    assert min(seen) >= REPLICAS - 1


async def test_replicas_that_a_label_empties_are_replaced_in_place_one_after_the_other(bench: Bench) -> None:
    container = {"name": "vllm", "lifecycle": None}
    await bench.somebody.patch_deployment(
        {"spec": {"template": {"spec": {"containers": [container]}}}},
        "application/strategic-merge-patch+json",
        NAME,
    )
    await bench.until_seen("all replicas are in rotation again", bench.is_whole)
    await no_more_pods(bench)
    before = await spec(bench)
    plan = await bench.plan("set_flags", edits=CAP)
    assert [call.title for call in plan.calls][-1] == "Let the rollout go"
    await bench.carry_out(plan)
    await bench.until_seen("all replicas are in rotation again", bench.is_whole)
    now = await spec(bench)
    assert {key: value for key, value in now.items() if key != "template"} == {
        key: value for key, value in before.items() if key != "template"
    }


# --- Argo CD, on the stand-in -----------------------------------------------------------------------------------------


async def tracked(cluster: Cluster, *, heals: bool) -> dict[str, Any]:
    """A Deployment that an Application syncs from its manifest; the manifest."""
    await cluster.create_deployment(cluster.deployment_body("web"))
    manifest = {"metadata": {"name": "web", "namespace": cluster.namespace}, "spec": {"replicas": 2}}
    git: Any = {"metadata": {"name": "git"}, "data": {"manifest": json.dumps(manifest)}}
    await cluster.core.create_namespaced_config_map(cluster.namespace, git)
    app = {
        "metadata": {"name": "web"},
        "spec": {"source": {"repoURL": "configmap://git"}, "syncPolicy": {"automated": {"selfHeal": heals}}},
    }
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{cluster.namespace}/applications"
    await cluster.raw("POST", path, app)
    annotations = {TRACKING: f"web:apps/Deployment:{cluster.namespace}/web"}
    await cluster.patch_deployment({"metadata": {"annotations": annotations}}, "application/merge-patch+json", "web")
    await eventually("it is in sync", lambda: is_in(cluster, "Synced"))
    return manifest


async def is_in(cluster: Cluster, state: str) -> bool:
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{cluster.namespace}/applications/web"
    _headers, _code, app = await cluster.raw("GET", path)
    return bool(app.get("status", {}).get("sync", {}).get("status") == state)


async def scale_to(cluster: Cluster, replicas: int) -> None:
    await cluster.patch_deployment({"spec": {"replicas": replicas}}, "application/merge-patch+json", "web")


async def has_replicas(cluster: Cluster, wanted: int) -> bool:
    return bool((await cluster.deployment("web"))["spec"]["replicas"] == wanted)


async def test_argo_cd_with_self_heal_reverts_an_edit(own_cluster: Cluster) -> None:
    await tracked(own_cluster, heals=True)
    await scale_to(own_cluster, 3)
    await eventually("the edit is reverted", lambda: has_replicas(own_cluster, 2))


async def test_argo_cd_without_self_heal_leaves_an_edit_until_the_next_commit(own_cluster: Cluster) -> None:
    manifest = await tracked(own_cluster, heals=False)
    await scale_to(own_cluster, 3)
    await eventually("the drift shows", lambda: is_in(own_cluster, "OutOfSync"))
    assert await has_replicas(own_cluster, 3)
    body: Any = {"data": {"manifest": json.dumps(manifest | {"spec": {"replicas": 4}})}}
    await own_cluster.core.patch_namespaced_config_map("git", own_cluster.namespace, body)
    await eventually("the commit is synced", lambda: has_replicas(own_cluster, 4))
