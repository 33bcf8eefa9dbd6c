"""Finds the object of a call in a snapshot: by kind and name, a pod by its uid.

An object whose list could not be read is not reported absent: `unread` gives the reason first.
"""

from __future__ import annotations

from bot.domain.cluster.objects import ObjectRef, name_of, uid_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS

SOURCES = {
    "Pod": "pods",
    "Node": "nodes",
    "HorizontalPodAutoscaler": "autoscalers",
    "ScaledObject": "scaled_objects",
    "ConfigMap": "config_maps",
    "Job": "jobs",
}
"""The field of the snapshot that holds a kind; workloads and the canary have their own fields."""


def unread(target: ObjectRef, snapshot: ClusterSnapshot) -> str:
    """Returns why the part of the snapshot for this object could not be read; empty if it could."""
    if target.kind == "Deployment":
        # Without the list of canaries, a missing canary may still exist.
        is_workload = snapshot.workload is not None and name_of(snapshot.workload) == target.name
        return "" if is_workload else snapshot.unreadable.get("canary", "")
    return snapshot.unreadable.get(SOURCES.get(target.kind, ""), "")


def object_of(target: ObjectRef, snapshot: ClusterSnapshot) -> Obj | None:
    """Returns the object in the snapshot; None if it is not there."""
    if target.kind == "Pod":
        return next((pod for pod in snapshot.pods if uid_of(pod) == target.uid), None)
    if target.kind in KINDS:
        known = tuple(obj for obj in (snapshot.workload, snapshot.canary) if obj is not None)
    elif target.kind == "ConfigMap":
        known = tuple(snapshot.config_maps.values())
    else:
        known = getattr(snapshot, SOURCES[target.kind]) if target.kind in SOURCES else ()
    return next((obj for obj in known if name_of(obj) == target.name), None)
