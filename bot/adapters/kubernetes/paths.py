"""Paths of objects in the API. Names are validated before they go into a path, so text from alerts cannot change it."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.objects import ObjectRef
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.target import is_name


@dataclass(frozen=True)
class Resource:
    group: str
    version: str
    plural: str
    is_namespaced: bool = True

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


OLDER_POOL = "InferencePool v1alpha2"
"""An InferencePool of the group before v1. A cluster may have both groups, one, or neither."""
KINDS: dict[str, Resource] = {
    "Deployment": Resource("apps", "v1", "deployments"),
    "ReplicaSet": Resource("apps", "v1", "replicasets"),
    "StatefulSet": Resource("apps", "v1", "statefulsets"),
    "ControllerRevision": Resource("apps", "v1", "controllerrevisions"),
    "LeaderWorkerSet": Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
    "Pod": Resource("", "v1", "pods"),
    "Service": Resource("", "v1", "services"),
    "EndpointSlice": Resource("discovery.k8s.io", "v1", "endpointslices"),
    "PodDisruptionBudget": Resource("policy", "v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": Resource("autoscaling", "v2", "horizontalpodautoscalers"),
    "ConfigMap": Resource("", "v1", "configmaps"),
    "PersistentVolumeClaim": Resource("", "v1", "persistentvolumeclaims"),
    "Event": Resource("", "v1", "events"),
    "ResourceQuota": Resource("", "v1", "resourcequotas"),
    "ScaledObject": Resource("keda.sh", "v1alpha1", "scaledobjects"),
    "InferencePool": Resource("inference.networking.k8s.io", "v1", "inferencepools"),
    OLDER_POOL: Resource("inference.networking.x-k8s.io", "v1alpha2", "inferencepools"),
    "Application": Resource("argoproj.io", "v1alpha1", "applications"),
    "HelmRelease": Resource("helm.toolkit.fluxcd.io", "v2", "helmreleases"),
    "Kustomization": Resource("kustomize.toolkit.fluxcd.io", "v1", "kustomizations"),
    "CronJob": Resource("batch", "v1", "cronjobs"),
    "Job": Resource("batch", "v1", "jobs"),
    "Node": Resource("", "v1", "nodes", is_namespaced=False),
}


def is_built_in(kind: str) -> bool:
    """Whether every cluster has this API."""
    return KINDS[kind].group in ("", "apps", "batch", "autoscaling", "policy", "discovery.k8s.io")


def path_of(kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of one object, or of a list without a name. Without a namespace, the list covers all namespaces."""
    resource = KINDS[kind]
    if not all(is_name(part) for part in (namespace, name) if part):
        raise ClusterError(f"not a Kubernetes name: {namespace!r} {name!r}")
    parts = [resource.root]
    if namespace and resource.is_namespaced:
        parts.append(f"namespaces/{namespace}")
    parts += [part for part in (resource.plural, name, subresource) if part]
    return "/".join(parts)


def path_of_ref(target: ObjectRef, subresource: str = "") -> str:
    return path_of(target.kind, target.namespace, target.name, subresource)
