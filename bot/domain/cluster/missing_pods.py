"""Why replicas that are wanted do not serve yet: each reason has another remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bot.domain.cluster.node_autoscaler import scale_up_answer
from bot.domain.cluster.objects import condition, dig, is_going_away, name_of
from bot.domain.cluster.pod_state import NO_CONTAINER, NO_IMAGE, held_by_gates, is_loading, room_made_for, waiting_text
from bot.domain.cluster.refused_pods import not_created, refused_by_kubelets
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.rotation import pods_of_workload, ready_replicas
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

WaitsFor = Literal["", "image", "config", "quota", "gpu", "node", "start"]
"""In order of precedence: a bad image holds up a rollout, whatever else the other pods wait for."""
PRECEDENCE: tuple[WaitsFor, ...] = ("image", "config", "quota", "gpu", "node", "start")
PULL_FAILED = (*NO_IMAGE, "ErrImagePull")


def pending_pods(snapshot: ClusterSnapshot) -> list[Obj]:
    return [pod for pod in _pods(snapshot) if dig(pod, "status", "phase") == "Pending"]


def _pods(snapshot: ClusterSnapshot) -> list[Obj]:
    return sorted((pod for pod in pods_of_workload(snapshot) if not is_going_away(pod)), key=name_of)


def waits_for(snapshot: ClusterSnapshot) -> tuple[WaitsFor, str]:
    """Returns what the missing replicas wait for, and the sentence for people; empty if none is missing."""
    found = [_of_pod(pod, snapshot) for pod in pending_pods(snapshot)]
    # An engine loads its model for minutes in a pod that is no longer Pending.
    found += [_of_pod(pod, snapshot) for pod in _pods(snapshot) if is_loading(pod)]
    if snapshot.workload is not None and (refused := not_created(snapshot.workload, snapshot)):
        found.append(("quota", refused))
    is_missing = ready_replicas(snapshot) < replicas_of(snapshot.workload or {})
    if is_missing and (turned_away := refused_by_kubelets(snapshot)):
        found.append(("gpu", turned_away))
    return min(found, key=lambda one: PRECEDENCE.index(one[0]), default=("", ""))


def _of_pod(pod: Obj, snapshot: ClusterSnapshot) -> tuple[WaitsFor, str]:
    if held := held_by_gates(pod):
        return "quota", held
    name = name_of(pod)
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and (made := room_made_for(pod)):
        return "start", made
    if scheduled.get("status") == "False":
        answer = scale_up_answer(pod, snapshot)
        if answer is not None and answer.state == "coming":
            return "node", f"{name}: {answer.text}"
        reasons = [str(scheduled.get("message") or "no node takes it"), *([answer.text] if answer else [])]
        return "gpu", f"{name} cannot be scheduled: {'; '.join(reasons)}"
    for status in _statuses(pod):
        reason = dig(status, "state", "waiting", "reason") or ""
        message = dig(status, "state", "waiting", "message") or ""
        if reason in PULL_FAILED:
            return "image", f"{name}: image {status.get('image', '')} cannot be pulled ({reason})"
        if reason in NO_CONTAINER:
            return "config", f"{name}: {reason}: {message}".rstrip(": ")
    return "start", waiting_text(pod)


def _statuses(pod: Obj) -> Sequence[Obj]:
    return [*(dig(pod, "status", "initContainerStatuses") or ()), *(dig(pod, "status", "containerStatuses") or ())]
