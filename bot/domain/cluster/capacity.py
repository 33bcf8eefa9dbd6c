"""How many more replicas could be scheduled now: free accelerators on nodes that would accept such a pod.

Terminating pods still hold theirs, and pending pods take theirs first. Pods that must not share a node, or need the
same port of it, are kept apart; those that share a volume of one node stay there. CPU and memory are ignored:
accelerators run out first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.domain.cluster.anti_affinity import nodes_shunned, not_worked_out, shuns_its_like
from bot.domain.cluster.host_ports import host_ports, nodes_without_port
from bot.domain.cluster.node_autoscaler import Growth, growth_of
from bot.domain.cluster.objects import (
    condition,
    dig,
    holds,
    is_cordoned,
    is_finished,
    is_staying,
    labels_of,
    name_of,
    namespace_of,
)
from bot.domain.cluster.pod_resources import containers_of, of_whole_pod
from bot.domain.cluster.quota import QuotaRoom, quota_room
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.volumes import nodes_without_claim, unread_claims
from bot.domain.cluster.workload import pod_templates
from bot.domain.kernel.quantity import whole

NODE_SOURCES = ("nodes", "all_pods")
MAX_GROUPS = 100
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class Capacity:
    replicas_that_fit: int
    free: Mapping[str, int] = field(default_factory=dict)
    """Schedulable node to its free accelerators of the kind that the workload requests."""
    kept_out: Mapping[str, str] = field(default_factory=dict)
    """Node with such accelerators that would reject the pod, to the reason."""
    waiting: int = 0
    """Pending pods that will take some of the free accelerators before a new one does."""
    quota: str = ""
    """The ResourceQuota that admits fewer than the nodes can hold, or why that is unknown."""
    is_quota_unknown: bool = False
    growth: Growth = field(default_factory=Growth)
    """Whether a Pending pod would get a node that is not there yet."""
    unread: tuple[str, ...] = ()
    """Pods, nodes and kinds of accelerators that cannot be counted, with reasons: the real capacity may be lower."""

    @property
    def free_total(self) -> int:
        return sum(self.free.values())

    @property
    def explanation(self) -> str:
        """Returns what is not free and why, for people."""
        parts = [f"{node}: {why}" for node, why in sorted(self.kept_out.items())]
        if self.waiting:
            parts.append(f"{self.waiting} waiting pod{'s' if self.waiting > 1 else ''} will take some of it first")
        if self.quota:
            parts.append(self.quota)
        if self.growth.text and self.replicas_that_fit < 1:
            parts.append(self.growth.text)
        if self.unread:
            others = f" and {len(self.unread) - 1} more" if len(self.unread) > 1 else ""
            parts.append(f"not counted, so there may be less: {self.unread[0]}{others}")
        return "; ".join(parts)


def capacity_of(snapshot: ClusterSnapshot) -> Capacity | str:
    """Returns the capacity for whole replicas of the workload, or why it is unknown."""
    templates = pod_templates(snapshot.workload)
    queue = labels_of(snapshot.workload or {}).get(QUEUE_LABEL, "")
    return _capacity(snapshot, [(each.template, each.pods) for each in templates], queue=queue)


def capacity_for(snapshot: ClusterSnapshot, template: Obj) -> Capacity | str:
    """Returns the capacity for pods of `template`, or why it is unknown."""
    return _capacity(snapshot, [(template, 1)])


def _capacity(snapshot: ClusterSnapshot, replica: Sequence[tuple[Obj, int]], *, queue: str = "") -> Capacity | str:
    """`replica`: the templates that make up one replica, each with its number of pods."""
    key = f"capacity {json.dumps([queue, *replica], sort_keys=True)}"
    if key not in snapshot.worked_out:
        snapshot.worked_out[key] = _counted(snapshot, replica, queue)
    found: Capacity | str = snapshot.worked_out[key]
    return found


def _counted(snapshot: ClusterSnapshot, replica: Sequence[tuple[Obj, int]], queue: str) -> Capacity | str:
    for source in NODE_SOURCES:
        if source in snapshot.unreadable:
            return snapshot.unreadable[source]
    if bad := next(filter(None, (uncountable(template) for template, _ in replica)), ""):
        return f"its pods ask for {bad}, so its room is not known"
    if any(claims_devices(template) for template, _ in replica):
        return "its pods claim devices (resourceClaims), which are not counted, so its room is not known"
    kinds = {kind for template, _ in replica for kind in accelerators_of(template)}
    if not kinds:
        return "the workload asks for no accelerator, so its room is not known"
    unlisted = _unlisted(snapshot, kinds)
    if unlisted.keys() == kinds:
        return f"{next(iter(unlisted.values()))}, so its room is not known"
    kinds -= unlisted.keys()
    # The rules that are not evaluated can only lower the count: without a free accelerator it is 0 all the same.
    beyond = next(filter(None, (not_worked_out(template) for template, _ in replica)), "")
    if beyond and _Room(snapshot, unlisted).count(replica, is_plain=True):
        return f"{beyond}, so its room is not known"
    room = _Room(snapshot, unlisted)
    waiting = sum(1 for pod in _waiting(snapshot, kinds) if room.place(pod))
    first = replica[0][0]
    shut = room.shut(first)
    free = {
        name_of(node): max(0, min(room.left(node, kind) for kind in room.wanted(first) or kinds))
        for node in snapshot.nodes
        if name_of(node) not in shut
    }
    having = {name_of(node) for node in snapshot.nodes if any(allocatable(node, kind) for kind in kinds)}
    kept_out = {node: why for node, why in shut.items() if node in having}
    unread_volumes = filter(None, (unread_claims(snapshot, template) for template, _ in replica))
    unread = (*_queued(replica, queue), *unlisted.values(), *unread_volumes, *_unread(snapshot, kinds))
    # On a node that is added, a volume that is attached elsewhere is missing too.
    growth = Growth() if nodes_without_claim(snapshot, first) else growth_of(snapshot)
    found = Capacity(room.count(replica), free, kept_out, waiting, growth=growth, unread=unread)
    return _within_quota(found, quota_room(snapshot, replica))


def _queued(replica: Sequence[tuple[Obj, int]], queue: str) -> Iterator[str]:
    """Yields that Kueue holds new pods until their queue admits them: free accelerators alone start none."""
    queue = queue or next(filter(None, (labels_of(template).get(QUEUE_LABEL) for template, _ in replica)), "")
    if queue:
        yield f"Kueue's queue {queue} decides when a new pod may start"


def _within_quota(found: Capacity, quota: QuotaRoom | str | None) -> Capacity:
    if isinstance(quota, str):
        return replace(found, quota=f"what a quota admits is not known: {quota}", is_quota_unknown=True)
    if quota is not None and quota.replicas < 1:
        # A pod that the quota refuses is never Pending, so no node is added for it.
        return replace(found, replicas_that_fit=0, quota=quota.text, growth=Growth())
    if quota is None or quota.replicas >= found.replicas_that_fit:
        return found
    return replace(found, replicas_that_fit=quota.replicas, quota=quota.text)


def _unlisted(snapshot: ClusterSnapshot, kinds: Collection[str]) -> dict[str, str]:
    """Maps each kind that no node lists although running pods hold it to this reason.

    A custom scheduler counts it, as HAMi counts `nvidia.com/gpumem`.
    """
    nodes = {name_of(node): dig(node, "status", "allocatable") or {} for node in snapshot.nodes}
    listed = {kind for amounts in nodes.values() for kind in amounts}
    running = [pod for pod in snapshot.all_pods if dig(pod, "status", "phase") == "Running"]
    held = {kind for pod in running if dig(pod, "spec", "nodeName") in nodes for kind in accelerators_of(pod)}
    found = sorted(kind for kind in kinds if kind in held - listed)
    return {kind: f"no node lists {kind}, although running pods hold it" for kind in found}


def _unread(snapshot: ClusterSnapshot, kinds: Collection[str]) -> tuple[str, ...]:
    pods = [pod for pod in snapshot.all_pods if not is_finished(pod)]
    wrong = [f"{namespace_of(pod)}/{name_of(pod)} asks for {bad}" for pod in pods if (bad := uncountable(pod, kinds))]
    sizes = [
        (name_of(node), kind, dig(node, "status", "allocatable", kind) or 0)
        for node in snapshot.nodes
        for kind in kinds
    ]
    return (*wrong, *(f"{node} has {kind} {size!r}" for node, kind, size in sizes if _count(size) is None))


class _Room:
    """Free accelerators by node. Places each pod on the node with the smallest sufficient rest."""

    def __init__(self, snapshot: ClusterSnapshot, uncounted: Collection[str]) -> None:
        """`uncounted`: kinds of accelerators that are left out."""
        self._world, self._nodes = snapshot, snapshot.nodes
        self._taken, self._uncounted = _taken(snapshot), uncounted

    def wanted(self, pod: Obj) -> dict[str, int]:
        return {kind: count for kind, count in accelerators_of(pod).items() if kind not in self._uncounted}

    def left(self, node: Obj, kind: str) -> int:
        return allocatable(node, kind) - self._taken[name_of(node), kind]

    def place(self, pod: Obj) -> bool:
        """Places a pending pod wherever the plain rules allow it, so that no accelerator is claimed twice."""
        return self._place(self.wanted(pod), [node for node in self._nodes if not why_not(node, pod)])

    def shut(self, template: Obj, *, is_plain: bool = False) -> dict[str, str]:
        """Maps each node to why it would reject such a pod, for its own reasons or because of pods there.

        `is_plain`: without the affinity rules.
        """
        shunned = {} if is_plain else nodes_shunned(self._world, template)
        apart = {node: f"its pods must be apart from {other}" for node, other in shunned.items()}
        plain = {name_of(node): why for node in self._nodes if (why := why_not(node, template))}
        bound = nodes_without_claim(self._world, template)
        return apart | nodes_without_port(self._world, template) | bound | plain

    def _nodes_for(self, template: Obj, *, is_plain: bool) -> list[Obj]:
        shut = self.shut(template, is_plain=is_plain)
        return [node for node in self._nodes if name_of(node) not in shut]

    def _place(self, wanted: Mapping[str, int], nodes: list[Obj], *, alone: bool = False) -> bool:
        """`alone`: the node accepts no other pod of this template, and is removed from `nodes`."""
        fitting = [node for node in nodes if all(self.left(node, kind) >= count for kind, count in wanted.items())]
        if not fitting:
            return False
        chosen = min(fitting, key=lambda node: (sum(self.left(node, kind) for kind in wanted), name_of(node)))
        self._taken.update({(name_of(chosen), kind): count for kind, count in wanted.items()})
        if alone:
            nodes.remove(chosen)
        return True

    def count(self, replica: Sequence[tuple[Obj, int]], *, is_plain: bool = False) -> int:
        """Returns how many replicas have a place for all of their pods; groups are counted up to one hundred.

        `is_plain`: without the affinity rules.
        """
        asked = [
            (
                self.wanted(template),
                self._nodes_for(template, is_plain=is_plain),
                bool(host_ports(template)) or (not is_plain and shuns_its_like(template)),
                count,
            )
            for template, count in replica
        ]
        pods = [(wanted, nodes, alone) for wanted, nodes, alone, count in asked for _ in range(count)]
        if len(pods) == 1:
            ((wanted, nodes, alone),) = pods
            room = [max(0, min(self.left(node, kind) // count for kind, count in wanted.items())) for node in nodes]
            return sum(min(each, 1) if alone else each for each in room)
        fit = 0
        while fit < MAX_GROUPS and all(self._place(wanted, nodes, alone=alone) for wanted, nodes, alone in pods):
            fit += 1
        return fit


def _waiting(snapshot: ClusterSnapshot, kinds: Collection[str]) -> list[Obj]:
    """Returns the pending pods that request the same accelerators, by name: those that no scheduling gate holds."""
    waiting = [pod for pod in snapshot.all_pods if not dig(pod, "spec", "nodeName") and is_staying(pod)]
    wanting = [pod for pod in waiting if accelerators_of(pod).keys() & kinds]
    return sorted((pod for pod in wanting if not dig(pod, "spec", "schedulingGates")), key=name_of)


def accelerators_of(template: Obj) -> dict[str, int]:
    """Returns the extended resources that one pod requests (`nvidia.com/gpu` and its like), over its containers.

    Amounts that cannot be parsed are left out; `uncountable` names them.
    """
    wanted = of_whole_pod(template, lambda container: {kind: _count(amount) or 0 for kind, amount in _asked(container)})
    return {kind: count for kind, count in wanted.items() if count > 0}


def claims_devices(template: Obj) -> bool:
    """Whether such a pod gets devices by dynamic resource allocation."""
    return bool(dig(template, "spec", "resourceClaims"))


def uncountable(template: Obj, kinds: Collection[str] = ()) -> str:
    """Returns the first extended resource (of `kinds`, if given) whose amount is not a quantity; empty without one."""
    asked = (each for container in containers_of(template) for each in _asked(container))
    bad = (f"{kind} {amount!r}" for kind, amount in asked if _count(amount) is None)
    return next((one for one in bad if not kinds or one.split()[0] in kinds), "")


def _asked(container: Obj) -> Iterator[tuple[str, Any]]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    yield from ((kind, amount) for kind, amount in asked.items() if _is_accelerator(kind))


def _count(amount: Any) -> int | None:
    try:
        return whole(amount)
    except ValueError:
        return None


def _is_accelerator(kind: str) -> bool:
    return "/" in kind and not kind.startswith(("kubernetes.io/", "hugepages-"))


def _taken(snapshot: ClusterSnapshot) -> Counter[tuple[str, str]]:
    taken: Counter[tuple[str, str]] = Counter()
    for pod in snapshot.all_pods:
        node = dig(pod, "spec", "nodeName")
        if node and not is_finished(pod):
            taken.update({(node, kind): count for kind, count in accelerators_of(pod).items()})
    return taken


def allocatable(node: Obj, kind: str) -> int:
    """Returns 0 if it cannot be counted: nothing is then free there."""
    return _count(dig(node, "status", "allocatable", kind) or 0) or 0


def why_not(node: Obj, template: Obj) -> str:
    """Returns why the scheduler may not put such a pod on the node, from state, taints and node selection."""
    spec = dig(template, "spec") or {}
    if is_cordoned(node):
        return "cordoned"
    if condition(node, "Ready").get("status") != "True":
        return "not Ready"
    for taint in dig(node, "spec", "taints") or []:
        if not _tolerated(taint, spec.get("tolerations") or []):
            return f"taint {taint.get('key')}:{taint.get('effect')}"
    selector = spec.get("nodeSelector") or {}
    if not (selector.items() <= labels_of(node).items() and _affinity_allows(node, spec)):
        return "its labels do not fit"
    return ""


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
