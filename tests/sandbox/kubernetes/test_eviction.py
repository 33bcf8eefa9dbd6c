"""Eviction: each row is an observed answer of a real API server."""

from tests.sandbox.kubernetes.cluster import (
    BAD_IMAGE,
    STRATEGIC,
    Cluster,
    eventually,
    is_ready,
    refused,
    waiting_reason,
)


async def some_pod(cluster: Cluster) -> str:
    return str((await cluster.pods())[0]["metadata"]["name"])


async def test_an_allowed_eviction_answers_201_with_a_status_and_deletes_the_pod(cluster: Cluster) -> None:
    await cluster.running_pod()
    code, body = await cluster.evict("lone")
    assert (code, body["kind"], body["status"]) == (201, "Status", "Success")
    await cluster.gone("lone")


async def test_an_exhausted_budget_answers_429_with_a_cause_and_no_retry_after(cluster: Cluster) -> None:
    await cluster.create_deployment()
    await cluster.create_budget(minAvailable=2)
    async with refused(429) as refusal:
        await cluster.evict(await some_pod(cluster))
    assert refusal.body["reason"] == "TooManyRequests"
    assert refusal.causes[0]["reason"] == "DisruptionBudget"
    assert "needs 2 healthy pods and has 2 currently" in refusal.causes[0]["message"]
    assert "Retry-After" not in refusal.headers


async def test_a_budget_that_its_controller_has_not_seen_answers_429_with_retry_after(own_cluster: Cluster) -> None:
    cluster = own_cluster
    await cluster.create_deployment()
    await cluster.create_budget(minAvailable=1)
    await cluster.sandbox("PUT", "paused-controllers", ["disruption"])
    await cluster.policy.patch_namespaced_pod_disruption_budget(
        "budget", cluster.namespace, {"spec": {"minAvailable": 0}}, _content_type=STRATEGIC
    )
    async with refused(429) as refusal:
        await cluster.evict(await some_pod(cluster))
    assert refusal.headers["Retry-After"] == "10"
    assert "still being processed by the server" in refusal.causes[0]["message"]

    await cluster.sandbox("PUT", "paused-controllers", [])
    await cluster.budget_where("two may go", lambda status: status["disruptionsAllowed"] == 2)
    assert (await cluster.evict(await some_pod(cluster)))[0] == 201


async def test_two_budgets_on_one_pod_are_an_error_500_without_a_reason(cluster: Cluster) -> None:
    await cluster.create_deployment()
    await cluster.create_budget("first", minAvailable=0)
    await cluster.create_budget("second", minAvailable=0)
    async with refused(500) as refusal:
        await cluster.evict(await some_pod(cluster))
    assert not refusal.body.get("reason")
    assert "more than one PodDisruptionBudget" in refusal.body["message"]


async def test_a_pod_that_cannot_pull_its_image_is_evicted_whatever_the_budget_says(cluster: Cluster) -> None:
    containers = [{"name": "main", "image": BAD_IMAGE}]
    await cluster.create_pod("stuck", containers=containers)
    await cluster.create_budget(app="stuck", minAvailable=1)
    await cluster.pod_where(
        "the image cannot be pulled", "stuck", lambda pod: waiting_reason(pod) in ("ErrImagePull", "ImagePullBackOff")
    )
    assert (await cluster.evict("stuck"))[0] == 201


async def unready_pod(cluster: Cluster) -> str:
    # The stand-in's kubelet runs no probes and reads the annotation; a real one finds nobody on port 9.
    body = cluster.deployment_body(replicas=1)
    body["spec"]["template"]["metadata"]["annotations"] = {"sandbox/ready": "false"}
    probe = {"tcpSocket": {"port": 9}, "periodSeconds": 1}
    body["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe
    await cluster.create_deployment(body, settled=False)

    async def look() -> str | None:
        pods = [pod for pod in await cluster.pods() if pod["status"]["phase"] == "Running"]
        return pods[0]["metadata"]["name"] if pods and not is_ready(pods[0]) else None

    return await eventually("a pod runs and is not ready", look)


async def test_an_unready_pod_stays_while_its_budget_is_not_met(cluster: Cluster) -> None:
    name = await unready_pod(cluster)
    await cluster.create_budget(minAvailable=1)
    async with refused(429):
        await cluster.evict(name)


async def test_an_unready_pod_may_go_where_its_budget_always_allows_that(cluster: Cluster) -> None:
    name = await unready_pod(cluster)
    await cluster.create_budget(minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await cluster.evict(name))[0] == 201


async def test_an_unready_pod_may_go_while_its_budget_is_met(cluster: Cluster) -> None:
    await cluster.create_deployment()
    await cluster.create_pod("odd", {"app": "web", "lone": "yes"}, nodeSelector={"no": "such-node"})
    await cluster.create_budget(minAvailable=2)
    assert (await cluster.evict("odd"))[0] == 201


async def test_an_eviction_meant_for_an_earlier_pod_of_that_name_answers_409(cluster: Cluster) -> None:
    await cluster.running_pod()
    async with refused(409) as refusal:
        await cluster.evict("lone", uid="00000000-0000-0000-0000-000000000000")
    assert refusal.body["reason"] == "Conflict"
    assert await cluster.pod("lone") is not None


async def test_an_eviction_with_the_right_uid_passes(cluster: Cluster) -> None:
    pod = await cluster.running_pod()
    assert (await cluster.evict("lone", uid=pod["metadata"]["uid"]))[0] == 201


async def test_a_dry_run_eviction_answers_201_and_deletes_nothing(cluster: Cluster) -> None:
    await cluster.running_pod()
    await cluster.create_budget(app="lone", minAvailable=0)
    assert (await cluster.evict("lone", dry_run="All"))[0] == 201
    pod = await cluster.pod("lone")
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]
    await cluster.budget_where("nothing of the budget was spent", lambda status: status["disruptionsAllowed"] == 1)


async def test_a_dry_run_eviction_is_still_refused_by_an_exhausted_budget(cluster: Cluster) -> None:
    await cluster.running_pod()
    await cluster.create_budget(app="lone", minAvailable=1)
    async with refused(429):
        await cluster.evict("lone", dry_run="All")


async def test_evicting_a_missing_pod_answers_404(cluster: Cluster) -> None:
    async with refused(404) as refusal:
        await cluster.evict("nobody")
    assert refusal.body["message"] == 'pods "nobody" not found'


async def test_an_eviction_spends_the_budget_before_its_pod_is_gone(cluster: Cluster) -> None:
    await cluster.create_deployment()
    await cluster.create_budget(minAvailable=1)
    await cluster.budget_where("one may go", lambda status: status["disruptionsAllowed"] == 1)
    first, second = [pod["metadata"]["name"] for pod in await cluster.pods()]
    assert (await cluster.evict(first))[0] == 201
    async with refused(429):
        await cluster.evict(second)


async def test_an_evicted_pod_is_replaced_from_the_same_template(cluster: Cluster) -> None:
    await cluster.create_deployment()
    before = {pod["metadata"]["uid"]: pod for pod in await cluster.pods()}
    victim = next(iter(before.values()))
    await cluster.evict(victim["metadata"]["name"])
    await cluster.gone(victim["metadata"]["name"])
    await cluster.settled()
    after = await cluster.pods()
    (new,) = [pod for pod in after if pod["metadata"]["uid"] not in before]
    assert new["spec"]["containers"][0]["env"] == victim["spec"]["containers"][0]["env"]


async def test_a_surge_pod_counts_as_healthy_so_two_evictions_may_pass(own_cluster: Cluster) -> None:
    cluster = own_cluster
    await cluster.create_deployment()
    await cluster.create_budget(minAvailable=2)
    await cluster.create_pod("surge", {"app": "web"})
    await cluster.budget_where("one may go", lambda status: status["disruptionsAllowed"] == 1)
    assert (await cluster.evict(await some_pod(cluster), dry_run="All"))[0] == 201
