"""Which replicas get traffic now, and which label takes one out. Unreadable is None.

A Service sends requests to the ready endpoints of its EndpointSlices. The endpoint picker of an InferencePool sends
them to the Ready pods that the pool selects (gateway-api-inference-extension, pkg/epp/controller/pod_reconciler.go).
Routers that find pods in another way, such as that of vLLM's production-stack, or Ray Serve's, cannot be read.

A headless Service that also publishes addresses of pods that are not Ready sends no requests: pods find each other by
it. The controllers of LeaderWorkerSets and RayClusters make one, and many StatefulSets have one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bot.domain.cluster.objects import (
    CANARY_LABEL,
    TAKEN_FROM_LABEL,
    TEMPLATE_HASH_LABEL,
    controller_of,
    dig,
    is_finished,
    is_going_away,
    is_owned_by,
    is_ready,
    keys_of,
    labels_of,
    name_of,
    selects,
    selects_plainly,
    uid_of,
)
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import (
    LEADER_WORKER_SET_PREFIX,
    SET_NAME_LABEL,
    STATEFUL_SET_LABELS,
    kind_of,
    number_of,
    pods_in_a_replica,
    serves,
    template_of,
)

OUT_VALUE = "out-of-rotation"
"""The label's value while a replica is out; no Service and no InferencePool selects it."""
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""On an EndpointSlice."""


@dataclass(frozen=True)
class Rotation:
    in_rotation: tuple[str, ...]
    """Names of the workload's pods that get requests; where the router cannot be read, the Ready ones, which may."""
    ready: tuple[str, ...]
    wanted: int
    unread: str = ""
    """Why nobody can say which pods the router sends requests to; empty if that is read."""


def pods_of_workload(snapshot: ClusterSnapshot) -> tuple[Obj, ...]:
    """Returns the workload's own pods: not our canary's, not relabelled strays, not ended ones."""
    return tuple(pod for pod in pods_of_workload_with_finished(snapshot) if not is_finished(pod))


def pods_of_workload_with_finished(snapshot: ClusterSnapshot) -> tuple[Obj, ...]:
    """As `pods_of_workload`, and pods that have finished but are not deleted yet."""
    workload, pods = snapshot.workload, snapshot.pods
    if workload is None:
        return ()
    match kind_of(workload):
        case "StatefulSet":
            return tuple(pod for pod in pods if is_owned_by(pod, workload))
        case "LeaderWorkerSet":
            # Leaders belong to one StatefulSet, workers to one per leader; this label is on all of them.
            return tuple(pod for pod in pods if labels_of(pod).get(SET_NAME_LABEL) == name_of(workload))
    owned = {uid_of(rs) for rs in snapshot.replica_sets if is_owned_by(rs, workload)}
    return tuple(pod for pod in pods if (controller_of(pod) or {}).get("uid") in owned)


def replicas_present(snapshot: ClusterSnapshot) -> tuple[Obj, ...]:
    """Returns the serving pod of each replica: the pod itself, or the leader of its group."""
    return tuple(pod for pod in pods_of_workload(snapshot) if serves(pod))


def whole_replica(snapshot: ClusterSnapshot, pod: Obj) -> tuple[Obj, ...]:
    """Returns the pods that start and end with this one, including itself; in a group the leader comes first."""
    if kind_of(snapshot.workload) != "LeaderWorkerSet":
        return (pod,)
    same = [one for one in pods_of_workload(snapshot) if number_of(one) == number_of(pod)]
    return tuple(sorted(same, key=lambda one: (not serves(one), name_of(one)))) or (pod,)


def is_replica_ready(snapshot: ClusterSnapshot, pod: Obj) -> bool:
    """A group is Ready if all of its pods are."""
    together = whole_replica(snapshot, pod)
    return all(map(is_ready, together)) and len(together) >= pods_in_a_replica(snapshot.workload)


def ready_replicas(snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas are Ready and are not ending."""
    return sum(is_replica_ready(snapshot, pod) and not is_going_away(pod) for pod in replicas_present(snapshot))


def pods_of_canary(snapshot: ClusterSnapshot) -> tuple[Obj, ...]:
    """Returns the pods of this incident's canary: a snapshot holds those of no other."""
    return tuple(pod for pod in snapshot.pods if CANARY_LABEL in labels_of(pod) and not is_finished(pod))


def in_order_of_leaving(pods: Iterable[Obj], snapshot: ClusterSnapshot) -> list[Obj]:
    """Sorts broken ones first, then those out of rotation, then the newest, as Kubernetes does, then by name.

    Of the broken ones, a ReplicaSet ends those without a node first, then those that have not started, whatever their
    deletion costs. What was added last has the coldest cache and the fewest requests, and a new plan equals the last
    one.
    """
    newest_first = sorted(sorted(pods, key=name_of), key=_created_at, reverse=True)
    return sorted(
        newest_first,
        key=lambda pod: (
            is_ready(pod),
            bool(dig(pod, "spec", "nodeName")),
            dig(pod, "status", "phase") != "Pending",
            is_in_rotation(pod, snapshot),
        ),
    )


def ends_first(pod: Obj, other: Obj) -> bool:
    """Whether a ReplicaSet that needs one pod fewer ends `pod` before `other`, whatever their deletion costs."""
    return _rank(pod) < _rank(other)


def _rank(pod: Obj) -> tuple[bool, bool, bool]:
    return bool(dig(pod, "spec", "nodeName")), dig(pod, "status", "phase") != "Pending", is_ready(pod)


def _created_at(pod: Obj) -> str:
    return str(dig(pod, "metadata", "creationTimestamp") or "")


def pod_named(snapshot: ClusterSnapshot, name_or_uid: str) -> Obj | None:
    return next((pod for pod in snapshot.pods if name_or_uid in (name_of(pod), uid_of(pod))), None)


@dataclass(frozen=True)
class _Router:
    """A Service or an InferencePool: it sends requests to the pods that it selects."""

    name: str
    selector: dict[str, str]


def routers_of(snapshot: ClusterSnapshot, labels: dict[str, str]) -> tuple[_Router, ...]:
    """Returns the Services and InferencePools that would send traffic to a pod with these labels."""
    services = [
        _Router(f"Service {name_of(one)}", dig(one, "spec", "selector") or {})
        for one in snapshot.services
        if not _is_for_peers(one)
    ]
    pools = [_Router(f"InferencePool {name_of(one)}", _pool_selector(one)) for one in snapshot.inference_pools]
    return tuple(one for one in (*services, *pools) if selects_plainly(one.selector, labels))


def _is_for_peers(service: Obj) -> bool:
    spec = service.get("spec") or {}
    return spec.get("clusterIP") == "None" and spec.get("publishNotReadyAddresses") is True


def _beside_peers(snapshot: ClusterSnapshot, labels: dict[str, str]) -> str:
    """Names the Services that select such a pod and send it no requests: people see them."""
    selecting = (one for one in snapshot.services if selects_plainly(dig(one, "spec", "selector"), labels))
    names = ", ".join(name_of(one) for one in selecting if _is_for_peers(one))
    return f" (Service {names} only lets pods find each other)" if names else ""


def _pool_selector(pool: Obj) -> dict[str, str]:
    """Returns the labels of `spec.selector.matchLabels` (v1), or of `spec.selector` itself (v1alpha2)."""
    selector: dict[str, Any] = dig(pool, "spec", "selector") or {}
    labels = selector.get("matchLabels", selector)
    # In v1alpha2 a label may have the name `matchLabels`; its value is a text.
    return labels if isinstance(labels, dict) else selector


def router_unread(snapshot: ClusterSnapshot) -> str:
    """Returns why nobody can say which replicas get requests; empty if a Service or an InferencePool selects them."""
    labels = labels_of(template_of(snapshot.workload))
    if routers_of(snapshot, labels) or any(_is_listed(pod, snapshot) for pod in replicas_present(snapshot)):
        return ""
    failed = [snapshot.unreadable[name] for name in ("services", "inference_pools") if name in snapshot.unreadable]
    if failed:
        return f"Services or InferencePools could not be listed: {'; '.join(failed)}"
    peers = _beside_peers(snapshot, labels)
    return f"no Service and no InferencePool selects its pods{peers}, so another router finds them"


def is_in_rotation(pod: Obj, snapshot: ClusterSnapshot) -> bool:
    """Whether the pod gets new requests. Also true while a proxy has yet to catch up.

    If nobody can say which pods the router chooses, each Ready one may get requests, and counts.
    """
    if _is_listed(pod, snapshot):
        return True
    takes = is_ready(pod) and not is_going_away(pod)
    if takes and any(selects_plainly(_pool_selector(pool), labels_of(pod)) for pool in snapshot.inference_pools):
        return True
    return takes and bool(router_unread(snapshot))


def _is_listed(pod: Obj, snapshot: ClusterSnapshot) -> bool:
    """Whether any EndpointSlice lists the pod as ready, other than for its peers."""
    for_peers = {name_of(service) for service in snapshot.services if _is_for_peers(service)}
    return any(
        dig(endpoint, "targetRef", "uid") == uid_of(pod) and dig(endpoint, "conditions", "ready") is not False
        for endpoint_slice in snapshot.endpoint_slices
        if labels_of(endpoint_slice).get(SERVICE_NAME_LABEL) not in for_peers
        for endpoint in endpoint_slice.get("endpoints") or []
    )


def rotation_of(snapshot: ClusterSnapshot) -> Rotation | None:
    """Returns None if pods or EndpointSlices could not be read."""
    if snapshot.workload is None or {"pods", "endpoint_slices", "replica_sets"} & snapshot.unreadable.keys():
        return None
    pods = replicas_present(snapshot)
    return Rotation(
        in_rotation=tuple(name_of(pod) for pod in pods if is_in_rotation(pod, snapshot)),
        ready=tuple(name_of(pod) for pod in pods if is_replica_ready(snapshot, pod)),
        wanted=int(dig(snapshot.workload, "spec", "replicas") or 0),
        unread=router_unread(snapshot),
    )


@dataclass(frozen=True)
class RotationKey:
    """The label that takes a pod out of every Service and InferencePool when changed, while its ReplicaSet keeps it."""

    key: str
    value: str


def rotation_key(snapshot: ClusterSnapshot, labels: dict[str, str]) -> RotationKey | str:
    """Returns the label to change on a pod with these labels, or why there is none."""
    routers = routers_of(snapshot, labels)
    if not routers:
        return f"no Service and no InferencePool selects it{_beside_peers(snapshot, labels)}"
    shared = frozenset.intersection(*(frozenset(one.selector) for one in routers))
    held_by_owner = _owner_keys(snapshot, labels)
    # A canary may change any of them; dashboards and scrapers identify a workload by its own labels.
    known_by = keys_of(dig(snapshot.workload, "spec", "selector"))
    usable = sorted(shared - held_by_owner, key=lambda key: (key in known_by, key))
    if usable:
        return RotationKey(usable[0], labels[usable[0]])
    names = ", ".join(sorted(one.name for one in routers))
    return (
        f"every label that {names} selects by is also in the {_owner_kind(snapshot)}'s selector"
        f" ({', '.join(sorted(shared & held_by_owner)) or 'no label is shared by all of them'}):"
        " without one of them it belongs to nothing any more"
    )


def releasing_key(snapshot: ClusterSnapshot, labels: dict[str, str]) -> RotationKey | str:
    """Returns the label that takes a Deployment's pod out of rotation and out of its ReplicaSet, or why none does.

    The ReplicaSet then creates a replacement at once, and the pod runs on until it is deleted.
    """
    kind = kind_of(snapshot.workload)
    if kind != "Deployment" or CANARY_LABEL in labels:
        return f"a {kind} names its pods, so it waits for a pod that was released instead of replacing it"
    routers = routers_of(snapshot, labels)
    if not routers:
        return f"no Service and no InferencePool selects it{_beside_peers(snapshot, labels)}"
    shared = frozenset.intersection(*(frozenset(one.selector) for one in routers))
    usable = sorted(shared & _owner_keys(snapshot, labels) - {TEMPLATE_HASH_LABEL})
    return (
        RotationKey(usable[0], labels[usable[0]])
        if usable
        else "the Services and InferencePools that select it share no label"
    )


def is_released(snapshot: ClusterSnapshot, pod: Obj) -> bool:
    """Whether it was a replica of the workload until the bot released it; it then runs on until somebody deletes it."""
    return labels_of(pod).get(TAKEN_FROM_LABEL) == uid_of(snapshot.workload or {})


def _owner_kind(snapshot: ClusterSnapshot) -> str:
    return "ReplicaSet" if kind_of(snapshot.workload) == "Deployment" else kind_of(snapshot.workload)


def _owner_keys(snapshot: ClusterSnapshot, labels: dict[str, str]) -> frozenset[str]:
    if CANARY_LABEL in labels:
        return frozenset({CANARY_LABEL, TEMPLATE_HASH_LABEL})
    kind = kind_of(snapshot.workload)
    if kind == "LeaderWorkerSet":
        return frozenset(key for key in labels if key.startswith(LEADER_WORKER_SET_PREFIX)) | STATEFUL_SET_LABELS
    keys = keys_of(dig(snapshot.workload, "spec", "selector")) | {TEMPLATE_HASH_LABEL}
    if kind == "StatefulSet":
        return keys | STATEFUL_SET_LABELS
    for replica_set in snapshot.replica_sets:
        if selects(dig(replica_set, "spec", "selector"), labels):
            keys |= keys_of(dig(replica_set, "spec", "selector"))
    return keys
