"""Resolves an alert's labels to a workload. Labels are text from outside: only valid names are looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bot.adapters.kubernetes.reader import KubernetesReader
from bot.domain.cluster.objects import (
    CANARY_OF_ANNOTATION,
    annotations_of,
    controller_of,
    dig,
    name_of,
    namespace_of,
    selects_plainly,
    uid_of,
)
from bot.domain.cluster.snapshot import Obj
from bot.domain.cluster.workload import KINDS, LEADER, SET_NAME_LABEL, WORKER_LABEL, may_serve_models, template_of
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import ClusterError, NotServingError
from bot.domain.kernel.target import POD_LABELS, SLO_ANNOTATIONS, WORKLOAD_LABELS, Target, is_name, name_in

Found = tuple[str, Obj]
"""A workload with its kind."""
OWNERS = {
    "ReplicaSet": "apps/",
    "Deployment": "apps/",
    "StatefulSet": "apps/",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/",
    "Pod": "v1",
}
"""Owner kinds to follow, with their API group; the StatefulSet of a group's workers belongs to their leader pod."""
MAX_CHAIN_LENGTH = 5

SERVICE_LABELS = ("service", "job")
"""A ServiceMonitor's job is named after its Service."""


class TargetFinder:
    def __init__(self, reader: KubernetesReader, *, cluster: str) -> None:
        self._reader, self._cluster = reader, cluster

    async def resolve(self, alert: Alert) -> Target | None:
        """The workload that a label names; without such a label, that of the pod, or the one behind the Service.

        None for another cluster's alert, and if no label leads anywhere. A cluster without a name takes every alert,
        with the name that the alert gives it. Raises `ClusterError` without an answer, and `NotServingError`.
        """
        labels = alert.labels
        cluster = labels.get("cluster", self._cluster)
        if self._cluster and cluster != self._cluster:
            return None
        for key in ("exported_namespace", "namespace"):
            namespace = labels.get(key, "")
            if is_name(namespace):
                found = await self._workload(namespace, labels, any_kind=alert.names_models)
                if found is not None:
                    return _target(cluster, namespace, *found)
        return None

    async def named(self, namespace: str, name: str) -> Target | None:
        """The workload of that name, of any kind. Raises `ClusterError` without an answer."""
        unanswered: ClusterError | None = None
        for label, _ in WORKLOAD_LABELS:
            try:
                found = await self._workload(namespace, {label: name})
            except ClusterError as error:  # a role that lacks one kind must not hide the others
                unanswered = error
                continue
            if found is not None:
                return _target(self._cluster, namespace, *found)
        if unanswered is not None:
            raise unanswered
        return None

    async def _workload(self, namespace: str, labels: Mapping[str, str], *, any_kind: bool = True) -> Found | None:
        """`any_kind`: also one that serves no models; else such a one raises `NotServingError`."""
        check = _take if any_kind else _must_serve_models
        for key, kind in WORKLOAD_LABELS:
            if name := name_in(labels, key):
                workload = await self._reader.shared_find(kind, namespace, name)
                # The StatefulSets of a LeaderWorkerSet are only parts of it.
                return (await self._topmost(namespace, kind, check(kind, workload))) if workload else None
        for key in POD_LABELS:
            if (name := name_in(labels, key)) and (found := await self._of_pod(namespace, name, check)):
                return found
        for key in SERVICE_LABELS:
            if name := name_in(labels, key):
                found = await self._behind_service(namespace, name)
                if found is not None:
                    check(*found)
                    return found
        return None

    async def _of_pod(self, namespace: str, name: str, check: Callable[[str, Obj], Obj]) -> Found | None:
        """The workload of a pod; of one that is gone, that of the set whose name and a suffix it had."""
        pod = await self._reader.shared_find("Pod", namespace, name)
        if pod is not None:
            return await self._topmost(namespace, "Pod", check("Pod", pod))
        of_set, _, suffix = name.rpartition("-")
        kind = "StatefulSet" if suffix.isdecimal() else "ReplicaSet"
        found = await self._reader.shared_find(kind, namespace, of_set) if of_set else None
        return await self._topmost(namespace, kind, check(kind, found)) if found is not None else None

    async def _topmost(self, namespace: str, kind: str, obj: Obj) -> Found | None:
        """The highest workload in the chain of owners; it may itself have an owner that is not a workload."""
        found: Found | None = (kind, obj) if kind in KINDS else None
        for _ in range(MAX_CHAIN_LENGTH):
            owner = controller_of(obj)
            kind = str(owner.get("kind")) if owner else ""
            if owner is None or kind not in OWNERS or not str(owner.get("apiVersion", "")).startswith(OWNERS[kind]):
                return found
            above = await self._reader.find(kind, namespace, str(owner["name"]))
            if above is None or uid_of(above) != owner.get("uid"):
                return found
            obj = above
            if kind in KINDS:
                found = (kind, obj)
        return found

    async def _behind_service(self, namespace: str, name: str) -> Found | None:
        """The only workload whose pods the Service selects; None if there are several or none."""
        service = await self._reader.find("Service", namespace, name)
        selector: Mapping[str, str] = dig(service, "spec", "selector") or {}
        if not selector:
            return None
        behind: list[Found] = []
        for kind in KINDS:
            listed = self._reader.listed if kind == "Deployment" else self._reader.listed_if_any
            for workload in await listed(kind, namespace):
                if _selects_pods_of(selector, kind, workload):
                    behind.append((kind, workload))
        return _the_only(behind)


def _take(kind: str, obj: Obj) -> Obj:
    return obj


def _must_serve_models(kind: str, obj: Obj) -> Obj:
    """Returns the object. Raises `NotServingError` if it runs no inference engine."""
    # Items of a list do not carry their kind.
    if may_serve_models({**obj, "kind": kind}):
        return obj
    # Without its name: alerts are listed by their reason.
    what = f"its {kind} in namespace {namespace_of(obj)}"
    raise NotServingError(f"{what} asks for no GPU, and neither it nor the alert names models")


def _target(cluster: str, namespace: str, kind: str, workload: Obj) -> Target:
    # An alert about our own canary is about the workload that it represents.
    annotations = annotations_of(workload)
    name = annotations.get(CANARY_OF_ANNOTATION) or name_of(workload)
    slo = tuple((setting, annotations[key]) for setting, key in SLO_ANNOTATIONS.items() if key in annotations)
    return Target(cluster=cluster, namespace=namespace, kind=kind, name=name, slo=slo)


def _selects_pods_of(selector: Mapping[str, str], kind: str, workload: Obj) -> bool:
    # Items of a list do not carry their kind.
    template = template_of({**workload, "kind": kind})
    labels = dict(dig(template, "metadata", "labels") or {})
    if kind == "LeaderWorkerSet":
        # Its controller adds these to the leaders; Services usually select by them.
        labels |= {SET_NAME_LABEL: name_of(workload), WORKER_LABEL: LEADER}
    return selects_plainly(selector, labels)


def _the_only(found: Sequence[Found]) -> Found | None:
    whole = [one for one in found if CANARY_OF_ANNOTATION not in annotations_of(one[1]) and not _is_part(one[1])]
    return whole[0] if len(whole) == 1 else None


def _is_part(workload: Obj) -> bool:
    """Whether it is one of the StatefulSets of a LeaderWorkerSet."""
    return (controller_of(workload) or {}).get("kind") in ("LeaderWorkerSet", "Pod")
