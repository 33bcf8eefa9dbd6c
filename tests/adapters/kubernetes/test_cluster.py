"""Reading: a snapshot with its gaps, an alert's workload, dry runs that change nothing, permissions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.adapters.kubernetes import permissions
from bot.adapters.kubernetes.client import Answer, KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection, NotSentError
from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.targets import TargetFinder
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.planning import plan_change
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import ClusterError, NotServingError, RefusedError
from bot.domain.kernel.target import Target
from tests.adapters.kubernetes.lab import CONTEXT, LLM, PODS, TARGET, Lab
from tests.builders import alert
from tests.processes import start

CAP = [{"flag": "--max-num-seqs", "value": 6.0}]


async def test_the_world_holds_the_objects_as_the_server_gave_them(lab: Lab) -> None:
    snapshot = await lab.snapshot()
    assert snapshot.workload is not None
    assert snapshot.workload["metadata"]["name"] == "llm"
    assert (len(snapshot.pods), len(snapshot.nodes), len(snapshot.all_pods)) == (4, 3, 4)
    assert (len(snapshot.services), len(snapshot.pdbs), snapshot.unreadable) == (1, 1, {})


async def test_what_cannot_be_read_is_named_with_its_reason(lab: Lab) -> None:
    await lab.fault("list nodes", "403")
    snapshot = await lab.snapshot()
    assert snapshot.nodes == ()
    assert snapshot.unreadable["nodes"].startswith("403")


async def test_events_on_nodes_are_read_from_every_namespace_and_those_of_pods_are_not(lab: Lab) -> None:
    about = {"apiVersion": "v1", "kind": "Node", "name": "gpu-node-1"}
    event = {
        "metadata": {"name": "gpu-node-1.1"},
        "involvedObject": about,
        "reason": "NodeProblem",
        "type": "Warning",
        "message": "GPU 3 is unhealthy",
    }
    made = await lab.door.post("/api/v1/namespaces/serving/events", json=event)
    assert made.status_code == 201, made.text
    found = await lab.reader.node_events()
    assert [one["message"] for one in found if one["reason"] == "NodeProblem"] == ["GPU 3 is unhealthy"]
    assert {one["involvedObject"]["kind"] for one in found} == {"Node"}
    await lab.fault("list events", "403")
    with pytest.raises(ClusterError, match="403"):
        await lab.reader.node_events()


@pytest.mark.parametrize(
    ("reason", "source"),
    [
        ("TriggeredScaleUp", "cluster-autoscaler"),
        ("NotTriggerScaleUp", "cluster-autoscaler"),
        ("Nominated", "karpenter"),
        ("FailedScheduling", "karpenter"),
    ],
)
async def test_what_an_autoscaler_says_about_a_pod_is_in_the_snapshot(lab: Lab, reason: str, source: str) -> None:
    others = [("Scheduled", "default-scheduler"), ("FailedScheduling", "default-scheduler")]
    for index, (why, who) in enumerate([(reason, source), *others]):
        about = {"apiVersion": "v1", "kind": "Pod", "name": f"llm-{index}", "namespace": "serving", "uid": f"u{index}"}
        event = {
            "metadata": {"name": f"llm.{index}"}, "involvedObject": about, "reason": why, "message": "said",
            "source": {"component": who},
        }  # fmt: skip
        made = await lab.door.post("/api/v1/namespaces/serving/events", json=event)
        assert made.status_code == 201, made.text
    assert [one["involvedObject"]["uid"] for one in (await lab.snapshot()).scale_up_events] == ["u0"]


async def test_cluster_autoscalers_status_is_read_by_name_and_may_be_forbidden(lab: Lab) -> None:
    assert (await lab.snapshot()).autoscaler_status is None
    path = "/api/v1/namespaces/kube-system/configmaps"
    made = await lab.door.post(path, json={"metadata": {"name": "cluster-autoscaler-status"}, "data": {"status": "x"}})
    assert made.status_code == 201, made.text
    lab.reader._kept.clear()
    found = (await lab.snapshot()).autoscaler_status
    assert found is not None
    assert found["data"] == {"status": "x"}
    lab.reader._kept.clear()
    await lab.fault("get configmaps", "403")
    assert (await lab.snapshot()).unreadable["autoscaler_status"].startswith("403")


async def test_the_workloads_annotations_name_its_slo(lab: Lab) -> None:
    annotations = {"incident-bot/ttft-target": "2s", "incident-bot/slo-objective": "0.95", "other": "x"}
    await lab.somebody_patches(LLM, {"metadata": {"annotations": annotations}})
    found = await lab.cluster.resolve(alert())
    assert found is not None
    assert found.slo == (("ttft_target", "2s"), ("objective", "0.95"))
    assert found.key == TARGET.key


async def test_without_the_workload_there_is_no_world(lab: Lab) -> None:
    await lab.fault("get deployments", "403")
    with pytest.raises(ClusterError, match="403"):
        await lab.snapshot()


async def test_a_forbidden_read_is_distinguished_from_a_server_that_does_not_answer(lab: Lab) -> None:
    await lab.fault("get deployments", "403")
    with pytest.raises(RefusedError, match="403"):
        await lab.cluster.resolve(alert())


async def test_a_workload_that_does_not_exist_is_none(lab: Lab) -> None:
    gone = Target(cluster="sandbox", namespace="serving", name="gone")
    snapshot = await lab.cluster.snapshot(gone, incident_id="INC-42")
    assert (snapshot.workload, snapshot.pods) == (None, ())


async def test_a_server_that_does_not_answer_is_reported_as_such(unused_tcp_port: int) -> None:
    async with KubernetesClient(Connection(url=f"http://127.0.0.1:{unused_tcp_port}")) as nowhere:
        cluster = KubernetesCluster(nowhere, name="sandbox")
        with pytest.raises(ClusterError, match="cannot be reached"):
            await cluster.snapshot(TARGET, incident_id="INC-42")
        with pytest.raises(ClusterError, match="cannot be reached"):
            await cluster.resolve(alert())


def labelled(labels: dict[str, str]) -> Alert:
    firing = alert()
    return firing.model_copy(update={"labels": firing.labels | labels})


async def pod_name(lab: Lab) -> str:
    return str((await lab.snapshot()).pods[0]["metadata"]["name"])


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"deployment": "llm"}, id="deployment"),
        pytest.param({"deployment": "", "pod": "<pod>"}, id="pod"),
        pytest.param({"deployment": "", "exported_pod": "<pod>", "pod": "kube-state-metrics-0"}, id="exported-pod"),
        pytest.param({"deployment": "", "service": "llm"}, id="service"),
        pytest.param({"deployment": "", "job": "llm"}, id="job"),
        pytest.param({"cluster": "sandbox"}, id="our-own-cluster"),
    ],
)
async def test_an_alert_leads_to_its_workload(lab: Lab, labels: dict[str, str]) -> None:
    given = {key: await pod_name(lab) if value == "<pod>" else value for key, value in labels.items()}
    assert await lab.cluster.resolve(labelled(given)) == TARGET


async def test_an_alert_about_a_pod_that_has_been_replaced_leads_to_its_workload(lab: Lab) -> None:
    replaced = f"{(await pod_name(lab)).rpartition('-')[0]}-gone1"
    assert (
        await lab.cluster.resolve(labelled({"deployment": "", "exported_pod": replaced, "pod": "exporter-0"})) == TARGET
    )


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"cluster": "elsewhere"}, id="another-cluster"),
        pytest.param({"deployment": "gone"}, id="no-such-workload"),
        pytest.param({"deployment": "../../../nodes"}, id="not-a-name"),
        pytest.param({"namespace": ""}, id="no-namespace"),
        pytest.param({"deployment": "", "service": "gone", "pod": "gone"}, id="nothing-leads-anywhere"),
    ],
)
async def test_an_alert_that_leads_nowhere_gives_none(lab: Lab, labels: dict[str, str]) -> None:
    assert await lab.cluster.resolve(labelled(labels)) is None


@pytest.mark.parametrize("cluster", ["", "prod"])
async def test_a_bot_whose_only_cluster_has_no_name_takes_alerts_of_every_cluster(lab: Lab, cluster: str) -> None:
    labels = {"deployment": "", "pod": await pod_name(lab)} | ({"cluster": cluster} if cluster else {})
    found = await TargetFinder(lab.reader, cluster="").resolve(labelled(labels))
    # As `named_by` calls it, for alerts that come while the cluster does not answer.
    assert found == TARGET.model_copy(update={"cluster": cluster})


def workload_of(container: Obj, **metadata: Any) -> Obj:
    template = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "app", **container}]}}
    return {
        "metadata": {"name": "shop", **metadata},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "shop"}}, "template": template},
    }


DEPLOYMENTS = "/apis/apps/v1/namespaces/serving/deployments"
PLAIN: Obj = {"image": "shop:3", "resources": {"limits": {"cpu": "1"}}}


def crash_of(**labels: str) -> Alert:
    return alert().model_copy(update={"labels": {"alertname": "KubePodCrashLooping", "namespace": "serving"} | labels})


async def test_a_crash_of_a_workload_that_serves_no_models_is_not_for_the_bot(lab: Lab) -> None:
    await lab.somebody_creates(DEPLOYMENTS, workload_of(PLAIN))
    with pytest.raises(
        NotServingError, match="its Deployment in namespace serving asks for no GPU, and neither it nor the alert"
    ):
        await lab.cluster.resolve(crash_of(deployment="shop"))
    assert await lab.cluster.resolve(crash_of(deployment="shop", model_name="m")), "the alert says what it is about"
    assert await lab.cluster.workload("serving", "shop"), "a person may open an incident for anything"


async def test_a_crash_of_a_pod_of_no_workload_that_serves_no_models_is_not_for_the_bot(lab: Lab) -> None:
    pod = {"metadata": {"name": "exporter-x7"}, "spec": {"containers": [{"name": "app", **PLAIN}]}}
    await lab.somebody_creates(PODS, pod)
    with pytest.raises(NotServingError, match="its Pod in namespace serving asks"):
        await lab.cluster.resolve(crash_of(pod="exporter-x7", job="kube-state-metrics"))


@pytest.mark.parametrize(
    ("container", "metadata"),
    [
        ({"image": "shop:3", "resources": {"limits": {"nvidia.com/gpu": "1"}}}, {}),
        ({"image": "shop:3", "resources": {"requests": {"amd.com/gpu": "1"}, "limits": {"amd.com/gpu": "1"}}}, {}),
        ({"image": "registry/vllm-openai:v0.32.0"}, {}),
        ({"image": "engine:1", "args": ["--served-model-name=shop"]}, {}),
        ({"image": "engine:1", "env": [{"name": "HF_TOKEN", "value": "x"}]}, {}),
        ({"image": "shop:3"}, {"annotations": {"incident-bot/ttft-target": "2s"}}),
    ],
)
async def test_a_crash_of_a_workload_that_may_serve_models_is_for_the_bot(
    lab: Lab, container: Obj, metadata: dict[str, Any]
) -> None:
    await lab.somebody_creates(DEPLOYMENTS, workload_of(container, **metadata))
    found = await lab.cluster.resolve(crash_of(deployment="shop"))
    assert found is not None
    assert found.name == "shop"


async def test_a_workload_is_found_by_its_name_alone(lab: Lab) -> None:
    assert await lab.cluster.workload("serving", "llm") == TARGET
    assert await lab.cluster.workload("serving", "ghost") is None


async def test_an_alert_about_our_own_canary_is_about_its_workload(lab: Lab) -> None:
    plan = await lab.plan("canary", edits=CAP)
    await lab.carry_out(plan)
    assert await lab.cluster.resolve(alert(deployment=plan.calls[0].target.name)) == TARGET


async def test_a_rehearsal_changes_nothing(lab: Lab) -> None:
    plans = [
        await lab.plan("set_flags", edits=CAP),
        await lab.plan("scale", by=1),
        await lab.plan("canary", edits=CAP),
        await lab.plan("isolate_replica", replica=await pod_name(lab)),
        await lab.plan("replace_replica", replica=await pod_name(lab)),
    ]
    before = [pod["metadata"]["resourceVersion"] for pod in (await lab.snapshot()).pods]
    for plan in plans:
        assert await lab.cluster.dry_run(plan.calls[0]) == ""
    assert [pod["metadata"]["resourceVersion"] for pod in (await lab.snapshot()).pods] == before
    assert await lab.mutations() == []


async def test_the_rehearsal_of_a_delete_deletes_nothing(lab: Lab) -> None:
    await lab.carry_out(await lab.plan("canary", edits=CAP))
    assert await lab.cluster.dry_run((await lab.plan("remove_canary")).calls[0]) == ""
    assert (await lab.snapshot()).canary is not None


async def test_a_rehearsal_says_what_the_server_has_against_it(lab: Lab) -> None:
    plan = await lab.plan("scale", by=1)
    call = plan.calls[0]
    wrong = [*call.body[:-1], {**call.body[-1], "value": -1}]
    assert "must be greater than or equal to 0" in await lab.cluster.dry_run(call.model_copy(update={"body": wrong}))


async def test_a_budget_that_is_used_up_is_no_reason_against_an_eviction(lab: Lab) -> None:
    plan = await lab.plan("replace_replica", replica=await pod_name(lab))
    budget = "/apis/policy/v1/namespaces/serving/poddisruptionbudgets/llm"
    await lab.somebody_patches(budget, {"spec": {"minAvailable": 4}})
    await lab.until_seen("the budget is used up", lambda w: w.pdbs[0]["status"].get("disruptionsAllowed") == 0)
    assert await lab.cluster.dry_run(plan.calls[0]) == ""


async def test_every_write_that_a_rehearsal_sends_is_marked_as_a_dry_run(lab: Lab) -> None:
    undo = (await lab.plan("canary", edits=CAP)).calls[0].undo[0]
    pod = (await lab.snapshot()).pods[0]["metadata"]
    target = undo.target.model_copy(update={"kind": "Pod", "name": pod["name"], "uid": pod["uid"]})
    assert await lab.cluster.dry_run(undo.model_copy(update={"target": target})) == ""
    assert (await lab.get(f"{PODS}/{pod['name']}"))["metadata"].get("deletionTimestamp") is None


async def test_permissions_are_asked_of_the_server() -> None:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--deny", "create:pods/eviction") as running:
        async with KubernetesClient(Connection(url=running.url)) as client:
            checked = await permissions.check(client, permissions.needed(VERBS), namespace="serving")
    refused = [str(one.permission) for one in checked if not one.is_allowed]
    assert refused == ["create pods/eviction"]


def test_every_verb_says_what_it_needs() -> None:
    silent = [name for name, verb in VERBS.items() if not any(verb.access.values())]
    assert silent == ["probe_request"]


async def test_a_token_is_sent_and_a_wrong_one_is_reported() -> None:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--token", "secret") as running:
        async with KubernetesClient(Connection(url=running.url, token="secret")) as right:
            snapshot = await KubernetesCluster(right, name="sandbox").snapshot(TARGET, incident_id="INC-42")
            assert snapshot.workload is not None
        async with KubernetesClient(Connection(url=running.url, token="wrong")) as wrong:
            with pytest.raises(ClusterError, match="401"):
                await KubernetesCluster(wrong, name="sandbox").snapshot(TARGET, incident_id="INC-42")


def kubeconfig(folder: Path, url: str) -> str:
    """A file with two clusters, of which the context names the second."""
    elsewhere = {"name": "elsewhere", "cluster": {"server": "http://127.0.0.1:1"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "elsewhere",
        "clusters": [elsewhere, {"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "bot", "user": {"token": "secret"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "bot"}} for name in ("elsewhere", "here")],
    }
    path = folder / "config"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


async def test_a_kubeconfig_leads_to_the_cluster_of_its_context(tmp_path: Path) -> None:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--token", "secret") as running:
        where = Connection(kubeconfig=kubeconfig(tmp_path, running.url), context="here")
        async with KubernetesClient(where) as client:
            snapshot = await KubernetesCluster(client, name="sandbox").snapshot(TARGET, incident_id="INC-42")
    assert snapshot.workload is not None


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(Connection(kubeconfig="/no/such/kubeconfig"), id="no-such-file"),
        pytest.param(Connection(), id="not-in-a-pod"),
    ],
)
async def test_without_a_way_to_the_cluster_the_reason_is_reported(where: Connection) -> None:
    async with KubernetesClient(where) as client:
        with pytest.raises(ClusterError, match="no way to the cluster"):
            await KubernetesCluster(client, name="sandbox").snapshot(TARGET, incident_id="INC-42")


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("clusters: [\ntoken: s3cret", id="not-yaml"),
        pytest.param("- s3cret", id="a-list"),
        pytest.param("s3cret", id="a-word"),
        pytest.param("current-context: here\ncontexts: s3cret", id="no-list-of-contexts"),
        pytest.param("", id="empty"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_no_way_to_the_cluster_and_is_not_quoted(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    async with KubernetesClient(Connection(kubeconfig=str(path))) as client:
        with pytest.raises(NotSentError, match="no way to the cluster") as refused:
            await client.open()
    assert "s3cret" not in str(refused.value)


async def test_logs_that_do_not_exist_are_none(lab: Lab) -> None:
    logs = KubernetesPodLogs(lab.reader)
    assert await logs.read("serving", "gone") is None
    assert await logs.read("serving", await pod_name(lab), previous=True) is None


async def test_a_log_is_read_from_its_end_or_from_a_moment_on(lab: Lab) -> None:
    asked: list[Mapping[str, str]] = []

    class Asked(KubernetesReader):
        async def read_text(self, path: str, query: Mapping[str, str]) -> Answer:
            asked.append(query)
            return await super().read_text(path, query)

    logs, pod = KubernetesPodLogs(Asked(lab.client)), await pod_name(lab)
    await logs.read("serving", pod, tail_lines=7)
    await logs.read("serving", pod, since=1_790_000_000.5)
    assert [one.get("tailLines") for one in asked] == ["7", None]
    assert [one.get("sinceTime") for one in asked] == [None, "2026-09-21T14:13:20Z"]


async def test_a_controller_that_has_not_seen_the_last_change_is_not_waited_for_longer_than_a_second(lab: Lab) -> None:
    (await lab.door.put("/__sandbox__/paused-controllers", json=["deployment"])).raise_for_status()
    await lab.somebody_patches(LLM, {"metadata": {"annotations": {"team/note": "looked at"}}})
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    reader = KubernetesReader(lab.client, pause=pause)
    snapshot = await reader.snapshot(TARGET, incident_id="INC-42")
    assert sum(paused) == pytest.approx(0.9)
    result = plan_change("set_flags", {"edits": CAP}, snapshot, CONTEXT)
    assert (result.outcome, result.reason) == (
        "impossible",
        "a rollout of llm is not finished (the Deployment controller has not seen its last change yet)",
    )
