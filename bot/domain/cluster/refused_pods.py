"""Pods that a controller wants and the API server refuses, such as beyond a ResourceQuota: no pod shows the reason.

A kubelet refuses pods too, as for an accelerator that is broken or not free after all. Such a pod has failed for good,
and its controller makes the next one at once, often for the same node.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from bot.domain.cluster.objects import (
    condition,
    controller_of,
    created_at,
    dig,
    last_seen_of,
    name_of,
    seconds_of,
    uid_of,
)
from bot.domain.cluster.pod_state import PENDING_SECONDS
from bot.domain.cluster.quota import QuotaRoom, quota_room
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.rotation import pods_of_workload_with_finished
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import kind_of, pod_templates
from bot.domain.kernel.quantity import parse_quantity

RETRY_SECONDS = 1100.0
"""A refusal not repeated for this long is over: after many attempts a controller pauses for 1000 s (client-go)."""
BY_KUBELET = re.compile("UnexpectedAdmissionError|OutOf.+")
"""Why a kubelet refuses a pod for want of a resource."""
BY_KUBELET_SECONDS = 600.0
EXCEEDED = re.compile(r"exceeded quota: ([a-z0-9.-]+)(?:, requested: (\S+), used: )?")
"""The quota's name, and what exceeded it (`pods=1,requests.cpu=4`)."""


def not_created(workload: Obj, snapshot: ClusterSnapshot) -> str:
    """Returns why pods of the workload have been refused for so long that waiting does not help; empty otherwise."""
    state = rollout_state(workload)
    if not state.is_observed or min(state.updated, state.total) >= state.wanted:
        return ""
    failure = condition(workload, "ReplicaFailure")
    if failure.get("status") == "True":
        message = str(failure.get("message") or "")
        is_over = _has_room_now(message, workload, snapshot)
        return "" if is_over else _lasting(seconds_of(failure.get("lastTransitionTime")), message, snapshot.at)
    return refused_by_events(workload, snapshot)


def refused_replicas(workload: Obj, snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas do not run the workload's template while pods of it are refused."""
    state = rollout_state(workload)
    return state.wanted - min(state.updated, state.total) if not_created(workload, snapshot) else 0


def refused_by_kubelets(snapshot: ClusterSnapshot) -> str:
    """Describes the workload's pods that kubelets have refused lately; empty without any."""
    since = snapshot.at - BY_KUBELET_SECONDS
    refused = [
        pod
        for pod in pods_of_workload_with_finished(snapshot)
        if dig(pod, "status", "phase") == "Failed"
        and BY_KUBELET.fullmatch(dig(pod, "status", "reason") or "")
        and (created_at(pod) or 0.0) >= since
    ]
    if not refused:
        return ""
    newest = max(refused, key=lambda pod: created_at(pod) or 0.0)
    node, message = dig(newest, "spec", "nodeName"), dig(newest, "status", "message")
    pods = "1 new pod was" if len(refused) == 1 else f"{len(refused)} new pods were"
    last = "" if len(refused) == 1 else "the last one "
    minutes = f"{BY_KUBELET_SECONDS / 60:.0f} minutes"
    return f"{pods} refused by a kubelet in the last {minutes}, {last}by that of {node}: {message}"


def refused_by_events(owner: Obj, snapshot: ClusterSnapshot) -> str:
    """Returns the reason from events about a StatefulSet, a LeaderWorkerSet's parts or a Job."""
    about = [event for event in snapshot.failed_creates if _is_about(event, owner)]
    made_at = _newest_pods(snapshot, {_maker_of(event) for event in about}) if about else {}
    lasting = [event for event in about if not _is_over(event, owner, snapshot, made_at.get(_maker_of(event), 0.0))]
    if not lasting:
        return ""
    newest = max(lasting, key=last_seen_of)
    return _lasting(min(map(_first_seen, lasting)), str(newest.get("message") or ""), snapshot.at)


def _is_over(event: Obj, owner: Obj, snapshot: ClusterSnapshot, made_at: float) -> bool:
    """Whether the controller would have tried again since, has made a pod since, or would succeed with the next one."""
    last = last_seen_of(event)
    if snapshot.at - last >= RETRY_SECONDS or made_at > last:
        return True
    return _has_room_now(str(event.get("message") or ""), owner, snapshot)


def _maker_of(event: Obj) -> str:
    return str(dig(event, "involvedObject", "uid") or "")


def _newest_pods(snapshot: ClusterSnapshot, makers: Collection[str]) -> dict[str, float]:
    """Returns when each of these controllers made its newest pod. A cluster has thousands of others."""
    newest: dict[str, float] = {}
    for pod in (*snapshot.pods, *snapshot.all_pods):
        if (maker := str((controller_of(pod) or {}).get("uid"))) in makers:
            newest[maker] = max(created_at(pod) or 0.0, newest.get(maker, 0.0))
    return newest


def _has_room_now(message: str, owner: Obj, snapshot: ClusterSnapshot) -> bool:
    """Whether the quota that refused a pod is known to admit one more by now: the controller has yet to try again."""
    exceeded = EXCEEDED.search(message)
    quota = next((one for one in snapshot.quotas if exceeded and name_of(one) == exceeded[1]), None)
    if exceeded is None or quota is None or not _is_left(quota, exceeded[2] or ""):
        return False
    rooms = [quota_room(snapshot, [(each.template, 1)]) for each in pod_templates(owner)]
    return all(isinstance(room, QuotaRoom) and room.replicas >= 1 for room in rooms)


def _is_left(quota: Obj, asked: str) -> bool:
    """Also of what the template does not say: a LimitRange or a webhook may have added it."""
    hard, used = dig(quota, "spec", "hard") or {}, dig(quota, "status", "used") or {}
    amounts = [(name, amount) for name, _, amount in (one.partition("=") for one in asked.split(",")) if name in hard]
    try:
        left = {name: parse_quantity(hard[name]) - parse_quantity(used[name]) for name, _ in amounts}
        return all(parse_quantity(amount) <= left[name] for name, amount in amounts)
    except (KeyError, ValueError):
        # What cannot be compared is not known to be left.
        return False


def _first_seen(event: Obj) -> float:
    return seconds_of(event.get("firstTimestamp") or event.get("eventTime")) or last_seen_of(event)


def _lasting(began: float | None, message: str, at: float) -> str:
    is_lasting = began is None or at - began >= PENDING_SECONDS
    return f"a pod cannot be created: {message or 'the API server refuses it'}" if is_lasting else ""


def _is_about(event: Obj, workload: Obj) -> bool:
    """A Deployment has its own condition; a LeaderWorkerSet's pods are created by StatefulSets named after it."""
    about = event.get("involvedObject") or {}
    if about.get("uid") == uid_of(workload):
        return True
    if kind_of(workload) != "LeaderWorkerSet" or about.get("kind") != "StatefulSet":
        return False
    own, number = name_of(workload), str(about.get("name", "")).removeprefix(f"{name_of(workload)}-")
    same_namespace = dig(event, "metadata", "namespace") == dig(workload, "metadata", "namespace")
    return same_namespace and (about.get("name") == own or number.isdigit())
