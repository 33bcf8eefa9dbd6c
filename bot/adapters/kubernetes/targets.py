"""From an alert's labels to the workload behind it. Labels are text from outside: only what is a name is looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.adapters.kubernetes.paths import is_name
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.alert import Alert
from bot.domain.change.objects import CANARY_OF_ANNOTATION, annotations_of, controller_of, dig, name_of, selects_plainly
from bot.domain.change.world import Obj
from bot.domain.target import Target

POD_LABELS = ("exported_pod", "pod")
SERVICE_LABELS = ("service", "job")
"""A ServiceMonitor's job is named after its Service."""


class TargetFinder:
    def __init__(self, reader: KubernetesReader, *, cluster: str) -> None:
        self._reader, self._cluster = reader, cluster

    async def resolve(self, alert: Alert) -> Target | None:
        """The first label that leads to a Deployment wins: the workload, one of its pods, a Service before it.

        None for another cluster's alert, and when no label leads anywhere. Raise `ClusterError` on no answer.
        """
        labels = alert.labels
        if labels.get("cluster", self._cluster) != self._cluster:
            return None
        for key in ("exported_namespace", "namespace"):
            namespace = labels.get(key, "")
            if is_name(namespace):
                found = await self._deployment(namespace, labels)
                if found is not None:
                    return self._target(namespace, found)
        return None

    def _target(self, namespace: str, deployment: Obj) -> Target:
        # An alert about our own spare is about the workload that it stands in for.
        name = annotations_of(deployment).get(CANARY_OF_ANNOTATION) or name_of(deployment)
        return Target(cluster=self._cluster, namespace=namespace, kind="Deployment", name=name)

    async def _deployment(self, namespace: str, labels: Mapping[str, str]) -> Obj | None:
        if name := _named(labels, "deployment"):
            return await self._reader.find("Deployment", namespace, name)
        for key in POD_LABELS:
            pod = await self._reader.find("Pod", namespace, name) if (name := _named(labels, key)) else None
            if pod is not None and (deployment := await self._owner(namespace, pod)):
                return deployment
        for key in SERVICE_LABELS:
            if name := _named(labels, key):
                found = await self._behind_service(namespace, name)
                if found is not None:
                    return found
        return None

    async def _owner(self, namespace: str, pod: Obj) -> Obj | None:
        owner = controller_of(pod)
        if owner is None or owner.get("kind") != "ReplicaSet":
            return None
        replica_set = await self._reader.find("ReplicaSet", namespace, str(owner["name"]))
        above = controller_of(replica_set) if replica_set else None
        if above is None or above.get("kind") != "Deployment":
            return None
        return await self._reader.find("Deployment", namespace, str(above["name"]))

    async def _behind_service(self, namespace: str, name: str) -> Obj | None:
        """The only Deployment whose pods the Service selects; None when there are several or none."""
        service = await self._reader.find("Service", namespace, name)
        selector: Mapping[str, str] = dig(service, "spec", "selector") or {}
        if not selector:
            return None
        behind = [
            deployment
            for deployment in await self._reader.listed("Deployment", namespace)
            if selects_plainly(selector, dig(deployment, "spec", "template", "metadata", "labels") or {})
        ]
        return _the_only(behind)


def _the_only(deployments: Sequence[Obj]) -> Obj | None:
    workloads = [one for one in deployments if CANARY_OF_ANNOTATION not in annotations_of(one)]
    return workloads[0] if len(workloads) == 1 else None


def _named(labels: Mapping[str, str], key: str) -> str:
    value = labels.get(key, "")
    return value if is_name(value) else ""
