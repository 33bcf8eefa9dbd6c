"""Everything that the bot reads from a cluster is in the roles of the manifests, also where it only observes."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.kubernetes.client import Answer, KubernetesClient
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.permissions import Permission, needed
from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.targets import TargetFinder
from bot.domain.changes.catalogue import VERBS
from bot.domain.cluster.node_autoscaler import STATUS_NAME, STATUS_NAMESPACE
from bot.domain.cluster.workload import KINDS
from bot.domain.kernel.target import Target
from tests import builders
from tests.adapters.kubernetes.lab import LLM, Lab

READS = {each for each in needed(VERBS) if not each.changes}
TRACKED = {"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:serving/llm"}}}
BY_FLUX = (
    {"helm.toolkit.fluxcd.io/name": "llm", "helm.toolkit.fluxcd.io/namespace": "flux-system"},
    {
        "helm.toolkit.fluxcd.io/name": None,
        "kustomize.toolkit.fluxcd.io/name": "llm",
        "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
    },
)


WITH_A_CLAIM = {
    "spec": {"template": {"spec": {"volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}]}}}
}


class Recorded(KubernetesClient):
    """The bot's client, which keeps the permission that each of its requests needs."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, reads_only=True)
        self.needed: set[Permission] = set()

    async def request(self, method: str, path: str, **how: Any) -> Answer:
        if method == "GET" and path.startswith("/api"):
            self.needed.add(permission_for(path))
        return await super().request(method, path, **how)


def permission_for(path: str) -> Permission:
    """The permission that a GET of this path needs, as the API server derives it."""
    parts = path.strip("/").split("/")
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else ""
    plural, name, subresource, *_ = [*(rest[2:] if namespace else rest), "", ""]
    is_named = namespace == STATUS_NAMESPACE and name == STATUS_NAME
    return Permission(
        "get" if name else "list", group, plural, subresource,
        is_cluster_wide=namespace != "serving", name=name if is_named else "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "permission"),
    [
        ("/api/v1/nodes", "list nodes"),
        ("/apis/apps/v1/namespaces/serving/deployments/llm", "get deployments.apps"),
        ("/api/v1/namespaces/serving/pods/llm-1/log", "get pods/log"),
        (
            "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status",
            "get configmaps cluster-autoscaler-status",
        ),
    ],
)
def test_a_request_needs_what_the_api_server_asks_for(path: str, permission: str) -> None:
    assert str(permission_for(path)) == permission


async def test_each_request_of_the_bot_is_granted(lab: Lab) -> None:
    await lab.somebody_patches(LLM, TRACKED)
    await lab.somebody_patches(LLM, WITH_A_CLAIM)
    client = Recorded(Connection(url=lab.url))
    async with client:
        reader = KubernetesReader(client)
        for kind in KINDS:
            await reader.snapshot(Target(namespace="serving", kind=kind, name="llm"), incident_id="INC-1")
        for labels in BY_FLUX:
            await lab.somebody_patches(LLM, {"metadata": {"labels": labels}})
            seen = await reader.snapshot(
                Target(namespace="serving", kind="Deployment", name="llm"), incident_id="INC-1"
            )
            assert "flux" not in seen.unreadable
        pod = (await lab.snapshot()).pods[0]["metadata"]["name"]
        finder = TargetFinder(reader, cluster="test")
        for labels in ({"pod": pod}, {"service": "llm"}, {"statefulset": "llm"}, {"leaderworkerset": "llm"}):
            await finder.resolve(builders.alert(namespace="serving", deployment="", **labels))
        await KubernetesPodLogs(reader).read("serving", pod)
        await reader.node_events()
        await reader.pods_labelled({"app": "router"})
    assert client.needed <= READS
    read = {str(each) for each in client.needed}
    assert read >= {
        "list inferencepools.inference.networking.k8s.io",
        "list inferencepools.inference.networking.x-k8s.io",
        "list applications.argoproj.io",
        "get persistentvolumeclaims",
        "get helmreleases.helm.toolkit.fluxcd.io",
        "get kustomizations.kustomize.toolkit.fluxcd.io",
        "get configmaps cluster-autoscaler-status",
    }
