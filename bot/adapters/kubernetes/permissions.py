"""The permissions that the bot needs, and a check with the API server whether it has them.

`doctor` checks everything that the playbooks may need; planning checks the calls of a plan, so that people are not
asked to approve calls that would then be refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.paths import KINDS
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Call
from bot.domain.cluster.node_autoscaler import STATUS_NAME
from bot.domain.cluster.workload import KINDS as WORKLOADS
from bot.domain.kernel.errors import ClusterError

REMEMBERED_SECONDS = 60.0
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Permission:
    verb: str
    group: str
    resource: str
    subresource: str = ""
    is_cluster_wide: bool = False
    name: str = ""
    """The only object that it is needed for; empty: all."""

    @property
    def changes(self) -> bool:
        """Whether it is for changing something."""
        return self.verb not in ("get", "list")

    def __str__(self) -> str:
        resource = self.resource + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {resource}{'.' + self.group if self.group else ''}{f' {self.name}' if self.name else ''}"


@dataclass(frozen=True)
class Checked:
    permission: Permission
    is_allowed: bool
    reason: str = ""


def _reading(group: str, *resources: str, is_cluster_wide: bool = False) -> tuple[Permission, ...]:
    verbs = ("get", "list")
    return tuple(Permission(v, group, r, is_cluster_wide=is_cluster_wide) for r in resources for v in verbs)


READING = (
    *_reading("apps", "deployments", "replicasets", "statefulsets", "controllerrevisions"),
    *_reading("leaderworkerset.x-k8s.io", "leaderworkersets"),
    *_reading("", "pods", is_cluster_wide=True),
    *_reading("", "nodes", is_cluster_wide=True),
    Permission("list", "", "events", is_cluster_wide=True),
    # The bot reads its own pods and their events even if it may not read those of the cluster.
    *_reading("", "pods", "services", "resourcequotas"),
    Permission("list", "", "events"),
    *_reading("discovery.k8s.io", "endpointslices"),
    *_reading("policy", "poddisruptionbudgets"),
    *_reading("autoscaling", "horizontalpodautoscalers"),
    *_reading("keda.sh", "scaledobjects"),
    *_reading("inference.networking.k8s.io", "inferencepools"),
    *_reading("inference.networking.x-k8s.io", "inferencepools"),
    Permission("get", "", "configmaps", is_cluster_wide=True, name=STATUS_NAME),
    Permission("list", "argoproj.io", "applications", is_cluster_wide=True),
    Permission("get", "helm.toolkit.fluxcd.io", "helmreleases", is_cluster_wide=True),
    Permission("get", "kustomize.toolkit.fluxcd.io", "kustomizations", is_cluster_wide=True),
    Permission("get", "", "pods", "log"),
    Permission("get", "", "configmaps"),
    Permission("get", "", "persistentvolumeclaims"),
)


def _on(verb: str, kind: str, subresource: str = "") -> Permission:
    resource = KINDS[kind]
    is_cluster_wide = not resource.is_namespaced
    return Permission(verb, resource.group, resource.plural, subresource, is_cluster_wide=is_cluster_wide)


OPTIONAL: dict[str, tuple[Permission, ...]] = {
    "proxy": (Permission("get", "", "pods", "proxy"),),
    "exec": (Permission("get", "", "pods", "exec"), Permission("create", "", "pods", "exec")),
}
"""Needed only for a setting: `sampling.through: proxy`, and `gpu.exec`, whose GET needs `create` too since 1.35."""


def needed(
    verbs: Iterable[str], kinds: Iterable[str] = WORKLOADS, *, options: Iterable[str] = ()
) -> tuple[Permission, ...]:
    """Everything that playbooks with these verbs need on workloads of these kinds, each once."""
    kinds = tuple(kinds)
    besides = (each for verb in verbs for kind in kinds for each in changing(verb, kind))
    chosen = (each for option in options for each in OPTIONAL[option])
    return tuple(dict.fromkeys((*READING, *chosen, *besides)))


def changing(verb: str, kind: str) -> tuple[Permission, ...]:
    """What a verb needs on a workload of this kind besides the common read permissions."""
    return tuple(_on(each.verb, each.kind, each.subresource) for each in VERBS[verb].access.get(kind, ()))


def permission_of(call: Call) -> Permission:
    """The permission that this call needs."""
    if call.method == "evict":
        return _on("create", "Pod", "eviction")
    return _on(call.method, call.target.kind, call.subresource)


class Permissions:
    """Whether the calls of a plan are allowed, according to the API server; remembered for a minute."""

    def __init__(self, client: KubernetesClient, *, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        self._known: dict[tuple[Permission, str], tuple[float, Checked]] = {}

    async def lacking(self, calls: Iterable[Call]) -> str:
        """The permissions that these calls and their undo need and the bot lacks; empty if none.

        Raises `ClusterError` if the API server does not answer.
        """
        wanted: dict[tuple[Permission, str], None] = {}
        for call in calls:
            for each in (call, *call.undo):
                wanted[permission_of(each), each.target.namespace] = None
        checked = await asyncio.gather(*(self._checked(*each) for each in wanted))
        refused: dict[str, list[Checked]] = {}
        for (_, namespace), answer in zip(wanted, checked, strict=True):
            if not answer.is_allowed:
                refused.setdefault(namespace, []).append(answer)
        return "; ".join(_refusal(namespace, answers) for namespace, answers in refused.items())

    async def _checked(self, permission: Permission, namespace: str) -> Checked:
        asked_at, known = self._known.get((permission, namespace), (float("-inf"), None))
        if known is not None and self._now() - asked_at < REMEMBERED_SECONDS:
            return known
        answer = await _check(self._client, permission, namespace)
        self._known[permission, namespace] = (self._now(), answer)
        return answer


def _refusal(namespace: str, refused: Sequence[Checked]) -> str:
    where = f"in {namespace}" if namespace else "in the cluster"
    reasons = ", ".join(dict.fromkeys(each.reason for each in refused if each.reason)) or "no role grants it"
    return f"the bot may not {', '.join(str(each.permission) for each in refused)} {where}: {reasons}"


async def check(client: KubernetesClient, permissions: Iterable[Permission], *, namespace: str) -> tuple[Checked, ...]:
    """Asks the API server about each. Raises `ClusterError` if it does not answer."""
    return tuple(await asyncio.gather(*(_check(client, permission, namespace) for permission in permissions)))


async def _check(client: KubernetesClient, permission: Permission, namespace: str) -> Checked:
    attributes = {
        "namespace": "" if permission.is_cluster_wide else namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
        **({"name": permission.name} if permission.name else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await client.request("POST", REVIEWS, body=review)
    except (NotSentError, NoAnswerError) as error:
        raise ClusterError(str(error)) from error
    if not answer.is_ok or not answer.is_of_server:
        raise ClusterError(answer.message)
    status = answer.body["status"]
    return Checked(permission, bool(status.get("allowed")), str(status.get("reason") or ""))
