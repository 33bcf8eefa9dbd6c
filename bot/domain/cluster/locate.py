"""Where in a world the object of a call stands: found by kind and name, a pod by its uid.

An object whose list could not be read is not called absent: `unread` says so first.
"""

from __future__ import annotations

from bot.domain.cluster.objects import ObjectRef, name_of, uid_of
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.cluster.workload import KINDS

SOURCES = {
    "Pod": "pods",
    "Node": "nodes",
    "HorizontalPodAutoscaler": "autoscalers",
    "ScaledObject": "scaled_objects",
    "ConfigMap": "config_maps",
    "Job": "jobs",
}
"""The part of the world that holds a kind; workloads and the canary stand by themselves."""


def unread(target: ObjectRef, world: World) -> str:
    """Why the part of the world that would hold this object could not be read; empty when it could."""
    if target.kind == "Deployment":
        # Without the list of canaries, a canary that is missing may still be there.
        is_workload = world.workload is not None and name_of(world.workload) == target.name
        return "" if is_workload else world.unreadable.get("canary", "")
    return world.unreadable.get(SOURCES.get(target.kind, ""), "")


def object_of(target: ObjectRef, world: World) -> Obj | None:
    """The object as the world has it; None when it is not there."""
    if target.kind == "Pod":
        return next((pod for pod in world.pods if uid_of(pod) == target.uid), None)
    if target.kind in KINDS:
        known = tuple(obj for obj in (world.workload, world.canary) if obj is not None)
    elif target.kind == "ConfigMap":
        known = tuple(world.config_maps.values())
    else:
        known = getattr(world, SOURCES[target.kind]) if target.kind in SOURCES else ()
    return next((obj for obj in known if name_of(obj) == target.name), None)
