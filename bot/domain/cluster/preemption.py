"""Pods of lower priority: where a new pod finds no room, the scheduler ends them to make it, before a node is added."""

from __future__ import annotations

from collections import defaultdict

from bot.domain.cluster.capacity import Capacity, accelerators_of
from bot.domain.cluster.objects import dig, is_staying, name_of, namespace_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj


def ended_for(snapshot: ClusterSnapshot, template: Obj, room: Capacity) -> list[str]:
    """Returns the pods of which the scheduler may end some for such a pod; none if its priority is not known.

    A priority is a number only in pods: it is read from one of the workload with the same class.
    """
    named = dig(template, "spec", "priorityClassName")
    alike = [pod for pod in pods_of_workload(snapshot) if dig(pod, "spec", "priorityClassName") == named]
    own = dig(alike[0], "spec", "priority") if alike else None
    wanted = accelerators_of(template)
    if own is None or not wanted or dig(alike[0], "spec", "preemptionPolicy") == "Never":
        return []
    lower: dict[str, list[Obj]] = defaultdict(list)
    for pod in snapshot.all_pods:
        if (dig(pod, "spec", "priority") or 0) < own and is_staying(pod) and accelerators_of(pod).keys() & wanted:
            lower[str(dig(pod, "spec", "nodeName"))].append(pod)
    ended = []
    for node, free in room.free.items():
        gain = [sum(accelerators_of(pod).get(kind, 0) for pod in lower[node]) for kind in wanted]
        if free + min(gain) >= max(wanted.values()):
            ended += [f"{namespace_of(pod)}/{name_of(pod)}" for pod in lower[node]]
    return sorted(ended)
