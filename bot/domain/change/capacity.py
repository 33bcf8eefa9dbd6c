"""How many more replicas would be scheduled now: accelerators that are free on nodes that would take such a pod.

Pods that are terminating still hold theirs. CPU and memory are not looked at: an accelerator is what runs out first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.domain.change.objects import condition, dig, holds, is_finished, labels_of, name_of
from bot.domain.change.world import Obj, World

NODE_SOURCES = ("nodes", "all_pods")


@dataclass(frozen=True)
class Capacity:
    replicas_that_fit: int
    free: Mapping[str, int] = field(default_factory=dict)
    """Schedulable node to its free accelerators of the kind that the workload asks for."""

    @property
    def free_total(self) -> int:
        return sum(self.free.values())


def capacity_for(world: World, template: Obj) -> Capacity | str:
    """Room for pods of `template`, or why it is not known."""
    for source in NODE_SOURCES:
        if source in world.unreadable:
            return world.unreadable[source]
    wanted = accelerators_of(template)
    if not wanted:
        return "the workload asks for no accelerator, so its room is not known"
    taken = _taken(world)
    fit, free = 0, {}
    for node in world.nodes:
        if not would_take(node, template):
            continue
        left = {kind: allocatable(node, kind) - taken[name_of(node), kind] for kind in wanted}
        free[name_of(node)] = max(0, min(left.values()))
        fit += max(0, min(left[kind] // count for kind, count in wanted.items()))
    return Capacity(fit, free)


def accelerators_of(template: Obj) -> dict[str, int]:
    """Extended resources that one pod asks for (`nvidia.com/gpu` and its like), over its containers."""
    wanted: Counter[str] = Counter()
    for container in dig(template, "spec", "containers") or []:
        resources = container.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        wanted.update({kind: int(count) for kind, count in asked.items() if _is_accelerator(kind)})
    return {kind: count for kind, count in wanted.items() if count > 0}


def _is_accelerator(kind: str) -> bool:
    return "/" in kind and not kind.startswith(("kubernetes.io/", "hugepages-"))


def _taken(world: World) -> Counter[tuple[str, str]]:
    taken: Counter[tuple[str, str]] = Counter()
    for pod in world.all_pods:
        node = dig(pod, "spec", "nodeName")
        if node and not is_finished(pod):
            taken.update({(node, kind): count for kind, count in accelerators_of(pod).items()})
    return taken


def allocatable(node: Obj, kind: str) -> int:
    return int(dig(node, "status", "allocatable", kind) or 0)


def would_take(node: Obj, template: Obj) -> bool:
    """Whether the scheduler may put such a pod on the node, as far as state, taints and node selection go."""
    spec = dig(template, "spec") or {}
    if dig(node, "spec", "unschedulable") or condition(node, "Ready").get("status") != "True":
        return False
    taints = dig(node, "spec", "taints") or []
    if any(not _tolerated(taint, spec.get("tolerations") or []) for taint in taints):
        return False
    selector = spec.get("nodeSelector") or {}
    return selector.items() <= labels_of(node).items() and _affinity_allows(node, spec)


def _tolerated(taint: Obj, tolerations: list[Obj]) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    return any(
        toleration.get("key") in (None, "", taint.get("key"))
        and toleration.get("effect") in (None, "", taint.get("effect"))
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in tolerations
    )


def _affinity_allows(node: Obj, spec: Obj) -> bool:
    required = dig(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    terms = required.get("nodeSelectorTerms") or []
    return any(
        all(holds(term, labels_of(node)) for term in choice.get("matchExpressions") or [])
        and all(holds(term, {"metadata.name": name_of(node)}) for term in choice.get("matchFields") or [])
        for choice in terms
    )
