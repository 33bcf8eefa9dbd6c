"""Features of the simulator only: faults on demand, the journal of mutations, tokens, denials, its own life."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import pytest
from kubernetes.aio import client

from tests.processes import Running, start
from tests.sandbox.kubernetes.cluster import JSON_PATCH, Cluster, Obj, connect, eventually, refused
from tests.sandbox.kubernetes.conftest import STAND_IN


@pytest.fixture
async def quiet(cluster: Cluster) -> Cluster:
    """A cluster with a deployment of no pods, an empty journal and no faults."""
    if not cluster.is_stand_in:
        pytest.skip("asks for what only the stand-in can do")
    await cluster.create_deployment(cluster.deployment_body(replicas=0))
    await cluster.sandbox("DELETE", "faults")
    await cluster.sandbox("DELETE", "mutations")
    return cluster


async def fault(cluster: Cluster, match: str, kind: str, **more: Any) -> None:
    await cluster.sandbox("POST", "faults", [{"match": match, "kind": kind, **more}])


async def replicas(cluster: Cluster) -> int:
    return int((await cluster.deployment())["spec"]["replicas"])


async def test_a_lost_reply_has_been_carried_out(quiet: Cluster) -> None:
    await fault(quiet, "PATCH deployments", "lost_reply")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await quiet.patch_deployment({"spec": {"minReadySeconds": 7}})
    assert (await quiet.deployment())["spec"]["minReadySeconds"] == 7


async def test_a_dropped_request_has_not_been_carried_out(quiet: Cluster) -> None:
    await fault(quiet, "PATCH deployments", "drop")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await quiet.patch_deployment({"spec": {"minReadySeconds": 7}})
    assert "minReadySeconds" not in (await quiet.deployment())["spec"]


@pytest.mark.parametrize("code", [500, 403])
async def test_a_fault_answers_as_often_as_it_was_asked_for(quiet: Cluster, code: int) -> None:
    await fault(quiet, "patch deployments", str(code), count=2)
    for _ in range(2):
        async with refused(code):
            await quiet.patch_deployment({"spec": {"minReadySeconds": 7}})
    await quiet.patch_deployment({"spec": {"minReadySeconds": 7}})
    assert await quiet.sandbox("GET", "faults") == []


async def test_a_delayed_request_is_carried_out_all_the_same(quiet: Cluster) -> None:
    await fault(quiet, "PATCH deployments", "delay", seconds=0.01)
    await quiet.patch_deployment({"spec": {"minReadySeconds": 7}})
    assert await quiet.sandbox("GET", "faults") == []


async def test_a_fault_never_meets_the_fleet(quiet: Cluster) -> None:
    await fault(quiet, "list pods", "500")
    async with httpx.AsyncClient(trust_env=False, headers={"User-Agent": "sandbox-kubelet"}) as fleet:
        assert (await fleet.get(f"{quiet.url}/api/v1/pods")).status_code == 200
    async with refused(500):
        await quiet.pods()


async def test_a_fault_that_cannot_be_read_is_refused(quiet: Cluster) -> None:
    with pytest.raises(httpx.HTTPStatusError):
        await fault(quiet, "PATCH deployments", "gremlins")


async def test_the_journal_holds_every_mutation_that_succeeded(quiet: Cluster) -> None:
    patch = [{"op": "add", "path": "/spec/minReadySeconds", "value": 7}]
    await quiet.patch_deployment(patch, JSON_PATCH)
    await quiet.patch_deployment({"spec": {"minReadySeconds": 8}}, dry_run="All")
    async with refused(422):
        await quiet.patch_deployment([{"op": "test", "path": "/spec/replicas", "value": 9}], JSON_PATCH)
    await quiet.deployment()
    noted = await quiet.sandbox("GET", "mutations")
    assert [(one["verb"], one["dryRun"]) for one in noted] == [("patch", False), ("patch", True)]
    assert noted[0]["path"].endswith("/deployments/web")
    assert noted[0]["body"] == patch


async def test_the_journal_knows_a_dry_run_that_is_named_in_the_body_of_an_eviction(quiet: Cluster) -> None:
    await quiet.running_pod()
    await quiet.sandbox("DELETE", "mutations")
    body = {"metadata": {"name": "lone"}, "deleteOptions": {"dryRun": ["All"]}}
    await quiet.raw("POST", f"/api/v1/namespaces/{quiet.namespace}/pods/lone/eviction", body)
    assert [one["dryRun"] for one in await quiet.sandbox("GET", "mutations")] == [True]


async def test_a_log_cannot_be_written(quiet: Cluster) -> None:
    await quiet.running_pod()
    async with refused(405):
        await quiet.raw("PUT", f"/api/v1/namespaces/{quiet.namespace}/pods/lone/log", {"metadata": {"name": "lone"}})


async def test_the_journal_leaves_the_fleet_out(quiet: Cluster) -> None:
    async with httpx.AsyncClient(trust_env=False, headers={"User-Agent": "sandbox-kubelet"}) as fleet:
        url = f"{quiet.url}/apis/apps/v1/namespaces/{quiet.namespace}/deployments/web"
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = await fleet.patch(url, json={"spec": {"minReadySeconds": 9}}, headers=headers)
    assert answer.status_code == 200
    assert await quiet.sandbox("GET", "mutations") == []


async def test_a_compaction_makes_older_versions_too_old(quiet: Cluster) -> None:
    listed = await quiet.core.list_namespaced_pod(quiet.namespace)
    assert listed.metadata is not None
    await quiet.sandbox("POST", "compact")
    _, _, event = await quiet.raw(
        "GET",
        f"/api/v1/namespaces/{quiet.namespace}/pods",
        query={"watch": "1", "resourceVersion": str(listed.metadata.resource_version), "timeoutSeconds": "1"},
    )
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_an_open_watch_can_be_ended_from_outside(quiet: Cluster) -> None:
    path = f"/api/v1/namespaces/{quiet.namespace}/services"
    async with (
        httpx.AsyncClient(trust_env=False) as http,
        http.stream("GET", f"{quiet.url}{path}", params={"watch": "1"}) as stream,
    ):
        await quiet.sandbox("POST", "end-watches")
        assert [line async for line in stream.aiter_lines()] == []


async def test_without_the_token_every_answer_is_401(own_stand_in: Callable[..., Running]) -> None:
    running = own_stand_in("--token", "let-me-in")
    settings = client.Configuration(host=running.url)
    async with client.ApiClient(settings) as api, refused(401) as refusal:
        await client.CoreV1Api(api).list_namespace()
    assert refusal.body["reason"] == "Unauthorized"
    async with connect(running.url, token="let-me-in") as cluster:
        assert await cluster.pods() == []


async def test_a_denied_verb_answers_403_with_the_verb_and_the_resource(
    own_stand_in: Callable[..., Running],
) -> None:
    running = own_stand_in("--deny", "patch:deployments", "--deny", "create:pods/eviction")
    async with connect(running.url) as cluster:
        await cluster.create_deployment(cluster.deployment_body(replicas=0))
        async with refused(403) as refusal:
            await cluster.patch_deployment({"spec": {"replicas": 1}})
        assert 'cannot patch resource "deployments" in API group "apps"' in refusal.body["message"]
        async with refused(403) as refusal:
            await cluster.evict("anyone")
        assert 'cannot create resource "pods/eviction"' in refusal.body["message"]
        assert await replicas(cluster) == 0


async def test_an_access_review_foretells_a_denial(own_stand_in: Callable[..., Running]) -> None:
    running = own_stand_in("--deny", "create:pods/eviction")
    async with connect(running.url) as cluster:

        async def is_allowed(**attributes: str) -> bool:
            body: Any = {"spec": {"resourceAttributes": {"namespace": cluster.namespace, **attributes}}}
            api = client.AuthorizationV1Api(cluster.api)
            review = await api.create_self_subject_access_review(body)
            assert review.status is not None
            return review.status.allowed

        assert not await is_allowed(verb="create", resource="pods", subresource="eviction")
        assert await is_allowed(verb="create", resource="pods")


async def test_the_demo_world_serves_behind_its_service_and_budget(own_stand_in: Callable[..., Running]) -> None:
    running = own_stand_in("--seed-world", "demo", "--with-kubelet")
    async with connect(running.url) as cluster:

        async def up() -> Obj | None:
            obj = cluster.plain(await cluster.apps.read_namespaced_deployment("llm", "serving"))
            return obj if obj["status"].get("availableReplicas") == 4 else None

        await eventually("four replicas are available", up)

        async def budget() -> bool:
            read = await cluster.policy.read_namespaced_pod_disruption_budget("llm", "serving")
            return read.status is not None and read.status.disruptions_allowed == 1

        await eventually("the budget lets one go", budget)
        nodes = await cluster.core.list_node()
        assert [one.metadata.name for one in nodes.items if one.metadata] == [
            "gpu-node-1",
            "gpu-node-2",
            "gpu-node-3",
        ]


def test_the_process_ends_cleanly_when_it_is_asked_to() -> None:
    running = start(STAND_IN)
    with httpx.stream("GET", f"{running.url}/api/v1/pods?watch=1", trust_env=False) as watch:
        assert watch.status_code == 200
        assert running.stop(timeout_seconds=30.0) == 0


def orphaned_url() -> str:
    """The URL of a stand-in whose parent was killed as a crash would."""
    script = (
        "import time; from tests.processes import start; "
        f"print(start({STAND_IN!r}, '--die-with-parent').url, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    url = parent.stdout.readline().strip()
    parent.kill()
    parent.wait()
    return url


async def test_the_process_goes_with_its_parent() -> None:
    url = orphaned_url()

    async def is_gone() -> bool:
        async with httpx.AsyncClient(trust_env=False) as http:
            try:
                await http.get(f"{url}/healthz")
            except httpx.TransportError:
                return True
            return False

    await eventually("nobody listens any more", is_gone)
