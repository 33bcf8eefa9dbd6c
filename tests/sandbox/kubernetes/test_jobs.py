"""Jobs: pods by the server's own selector, an end that is a condition, and refusals."""

from __future__ import annotations

from typing import Any

from kubernetes.aio import client

from tests.sandbox.kubernetes.cluster import Cluster, Obj, condition, eventually, refused


def job(cluster: Cluster, *, restart: str = "Never", **spec: Any) -> Obj:
    template = {"metadata": {"labels": {"app": "eval"}}, "spec": cluster.pod_spec(restartPolicy=restart)}
    return {"metadata": {"name": "eval"}, "spec": {"template": template, **spec}}


def batch(cluster: Cluster) -> client.BatchV1Api:
    return client.BatchV1Api(cluster.api)


async def created(cluster: Cluster, **spec: Any) -> Obj:
    body: Any = job(cluster, **spec)
    return cluster.plain(await batch(cluster).create_namespaced_job(cluster.namespace, body))


async def test_a_job_finds_its_pods_by_a_label_that_the_server_made_up(cluster: Cluster) -> None:
    made = await created(cluster)
    own = {"batch.kubernetes.io/controller-uid": made["metadata"]["uid"]}
    assert made["spec"]["selector"] == {"matchLabels": own}
    pod = await eventually("a pod of the Job", lambda: first_pod(cluster))
    assert own.items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "eval"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def first_pod(cluster: Cluster) -> Obj | None:
    found = await cluster.core.list_namespaced_pod(cluster.namespace, label_selector="app=eval")
    return next((cluster.plain(pod) for pod in found.items), None)


async def test_a_job_that_outlives_its_deadline_has_failed(cluster: Cluster) -> None:
    made = await created(cluster, activeDeadlineSeconds=1, **unending(cluster))
    assert made["spec"]["activeDeadlineSeconds"] == 1
    ended = await eventually("the Job has ended", lambda: end_of(cluster))
    assert condition(ended, "Failed")["reason"] == "DeadlineExceeded"


def unending(cluster: Cluster) -> Obj:
    """The stand-in's pods end by themselves: one whose image cannot be pulled does not."""
    if not cluster.is_stand_in:
        return {}
    container = {"name": "main", "image": "bad:1"}
    return {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}


async def end_of(cluster: Cluster) -> Obj | None:
    found = cluster.plain(await batch(cluster).read_namespaced_job("eval", cluster.namespace))
    over = {one["type"] for one in found.get("status", {}).get("conditions") or []} & {"Complete", "Failed"}
    return found if over else None


async def test_a_jobs_pods_must_not_be_restarted_for_ever(cluster: Cluster) -> None:
    body: Any = job(cluster, restart="Always")
    async with refused(422) as answer:
        await batch(cluster).create_namespaced_job(cluster.namespace, body)
    assert answer.causes[0]["field"] == "spec.template.spec.restartPolicy"


async def test_a_job_can_be_made_from_a_cron_jobs_template(cluster: Cluster) -> None:
    template = {"spec": job(cluster)["spec"]}
    cron: Any = {
        "metadata": {"name": "eval"}, "spec": {"schedule": "0 0 31 2 *", "suspend": True, "jobTemplate": template},
    }  # fmt: skip
    kept = cluster.plain(await batch(cluster).create_namespaced_cron_job(cluster.namespace, cron))
    body: Any = {"metadata": {"name": "eval"}, "spec": kept["spec"]["jobTemplate"]["spec"]}
    made = cluster.plain(await batch(cluster).create_namespaced_job(cluster.namespace, body))
    assert made["spec"]["completions"] == 1
