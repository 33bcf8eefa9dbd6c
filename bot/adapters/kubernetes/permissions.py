"""What the bot must be allowed to do, and a question to the API server whether it is (`doctor` asks it)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError, NotSentError
from bot.domain.errors import ClusterError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Permission:
    verb: str
    group: str
    resource: str
    subresource: str = ""
    is_cluster_wide: bool = False

    def __str__(self) -> str:
        name = self.resource + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {name}{'.' + self.group if self.group else ''}"


@dataclass(frozen=True)
class Checked:
    permission: Permission
    is_allowed: bool
    reason: str = ""


def _reading(group: str, *resources: str, is_cluster_wide: bool = False) -> tuple[Permission, ...]:
    verbs = ("get", "list")
    return tuple(Permission(v, group, r, is_cluster_wide=is_cluster_wide) for r in resources for v in verbs)


READING = (
    *_reading("apps", "deployments", "replicasets"),
    *_reading("", "pods", is_cluster_wide=True),
    *_reading("", "nodes", is_cluster_wide=True),
    *_reading("", "services"),
    *_reading("discovery.k8s.io", "endpointslices"),
    *_reading("policy", "poddisruptionbudgets"),
    *_reading("autoscaling", "horizontalpodautoscalers"),
    Permission("get", "", "pods", "log"),
    Permission("get", "", "configmaps"),
)
_PATCH_DEPLOYMENT = Permission("patch", "apps", "deployments")
_PATCH_CONFIG_MAP = Permission("patch", "", "configmaps")
_PATCH_POD = Permission("patch", "", "pods")
_CREATE, _DELETE = Permission("create", "apps", "deployments"), Permission("delete", "apps", "deployments")
_SCALE, _EVICT = Permission("patch", "apps", "deployments", "scale"), Permission("create", "", "pods", "eviction")
_CORDON = Permission("patch", "", "nodes", is_cluster_wide=True)
CHANGING: dict[str, tuple[Permission, ...]] = {
    "scale": (_SCALE, _PATCH_POD),
    "canary": (_CREATE, _DELETE),
    "rotate_canary": (_PATCH_POD,),
    "promote": (_PATCH_DEPLOYMENT, _PATCH_POD),
    "remove_canary": (_DELETE, _PATCH_POD),
    "set_flags": (_PATCH_DEPLOYMENT, _PATCH_CONFIG_MAP, _PATCH_POD),
    "isolate_replica": (_PATCH_POD,),
    "replace_replica": (_EVICT,),
    "return_replica": (_PATCH_POD,),
    "rollback": (_PATCH_DEPLOYMENT, _PATCH_POD),
    "restart": (_PATCH_DEPLOYMENT, _PATCH_POD),
    "cordon_node": (_CORDON,),
    "uncordon_node": (_CORDON,),
    "drain_node": (_CORDON, _PATCH_POD, _EVICT),
    "undo": (_PATCH_DEPLOYMENT, _PATCH_CONFIG_MAP, _PATCH_POD, _SCALE, _DELETE),
}
"""What each verb needs besides reading."""


def needed(verbs: Iterable[str]) -> tuple[Permission, ...]:
    """Everything that playbooks with these verbs need, each once."""
    return tuple(dict.fromkeys((*READING, *(p for verb in verbs for p in CHANGING[verb]))))


async def check(client: KubernetesClient, permissions: Iterable[Permission], *, namespace: str) -> tuple[Checked, ...]:
    """Ask the API server about each. Raise `ClusterError` when it does not answer."""
    return tuple(await asyncio.gather(*(_check(client, permission, namespace) for permission in permissions)))


async def _check(client: KubernetesClient, permission: Permission, namespace: str) -> Checked:
    attributes = {
        "namespace": "" if permission.is_cluster_wide else namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
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
    if not answer.is_ok:
        raise ClusterError(answer.message)
    status = answer.body["status"]
    return Checked(permission, bool(status.get("allowed")), str(status.get("reason") or ""))
