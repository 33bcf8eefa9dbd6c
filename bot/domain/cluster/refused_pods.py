"""Pods that a controller wants and the API server refuses, such as beyond a ResourceQuota: no pod shows the reason."""

from __future__ import annotations

from bot.domain.cluster.objects import condition, dig, name_of, seconds_of, uid_of
from bot.domain.cluster.pod_state import PENDING_SECONDS
from bot.domain.cluster.rollout import rollout_state
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import kind_of

FRESH_SECONDS = 120.0
"""A refusal not repeated for this long is over: the controllers retry at least this often."""


def not_created(workload: Obj, snapshot: ClusterSnapshot) -> str:
    """Returns why pods of the workload have been refused for so long that waiting does not help; empty otherwise."""
    state = rollout_state(workload)
    if not state.is_observed or min(state.updated, state.total) >= state.wanted:
        return ""
    said = condition(workload, "ReplicaFailure")
    if said.get("status") == "True":
        return _lasting(said.get("lastTransitionTime"), said.get("message"), snapshot.at)
    return refused_by_events(workload, snapshot)


def refused_replicas(workload: Obj, snapshot: ClusterSnapshot) -> int:
    """Returns how many replicas do not run the workload's template while pods of it are refused."""
    state = rollout_state(workload)
    return state.wanted - min(state.updated, state.total) if not_created(workload, snapshot) else 0


def refused_by_events(owner: Obj, snapshot: ClusterSnapshot) -> str:
    """Returns the reason from events about a StatefulSet, a LeaderWorkerSet's parts or a Job."""
    for event in snapshot.failed_creates:
        last = event.get("lastTimestamp") or event.get("eventTime")
        is_fresh = snapshot.at - (seconds_of(last) or 0.0) < FRESH_SECONDS
        reason = _lasting(event.get("firstTimestamp") or last, event.get("message"), snapshot.at)
        if is_fresh and reason and _is_about(event, owner):
            return reason
    return ""


def _lasting(since: str | None, message: object, at: float) -> str:
    began = seconds_of(since)
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
