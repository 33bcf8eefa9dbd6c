"""The scheduler: assigns a waiting pod to a node that fits, or reports why none does.

A GPU is free only when the pod that had it is gone: a terminating pod still holds it.
"""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from bot.domain.kernel.quantity import parse_quantity
from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import controller_of
from bot.sandbox.kubernetes.controllers.pods import is_terminal, with_condition
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import NODES, PODS
from bot.sandbox.kubernetes.selectors import labels_of, matches
from bot.sandbox.kubernetes.store import Change, Store, is_terminating, name_of, namespace_of

Obj = dict[str, Any]
Amounts = dict[str, Fraction]

HOSTNAME = "kubernetes.io/hostname"
NOT_SCHEDULABLE = "node(s) were unschedulable"
WRONG_LABELS = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"
APART = "node(s) didn't match pod anti-affinity rules"
# The plugins add this after a failed round: nothing is ever preempted here.
_NO_VICTIM = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"
_EVERY_POD: Key = ("", "*")


class Scheduler:
    name = "scheduler"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._events = Recorder(registry, "default-scheduler", new_style=True)

    def keys(self, change: Change) -> Iterable[Key]:
        # One round checks every waiting pod: any pod or node that changes may make room.
        if change.resource is NODES or (change.resource is PODS and _matters(change)):
            yield _EVERY_POD

    def reconcile(self, key: Key) -> float | None:
        waiting = [pod for pod in self._store.list(PODS) if _is_waiting(pod)]
        for pod in sorted(waiting, key=lambda one: (one["metadata"]["creationTimestamp"], name_of(one))):
            self._place(pod)
        return None

    def _place(self, pod: Obj) -> None:
        nodes = self._store.list(NODES)
        reasons = {name_of(node): why_not(self._store, pod, node) for node in nodes}
        fitting = [node for node in nodes if not reasons[name_of(node)]]
        if not fitting:
            self._refuse(pod, reasons)
            return
        chosen = min(fitting, key=lambda node: self._rank(pod, node))
        self._registry.edit(PODS, pod, lambda new: new["spec"].update(nodeName=name_of(chosen)), "binding")
        self._registry.edit(PODS, pod, lambda new: _set_scheduled(new, {"status": "True"}), "status")
        where = f"{namespace_of(pod)}/{name_of(pod)}"
        text = f"Successfully assigned {where} to {name_of(chosen)}"
        self._events.record(PODS, pod, "Normal", "Scheduled", text)

    def _rank(self, pod: Obj, node: Obj) -> tuple[Any, ...]:
        """Away from its siblings first, then by most free resources."""
        owner = controller_of(pod)
        here = [one for one in self._store.list(PODS) if one["spec"].get("nodeName") == name_of(node)]
        siblings = sum(owner is not None and (controller_of(one) or {}).get("uid") == owner["uid"] for one in here)
        free = _free(self._store, node)
        least_free = min((-free.get(name, Fraction(0)) for name in requests_of(pod)), default=Fraction(0))
        return siblings, least_free, len(here), name_of(node)

    def _refuse(self, pod: Obj, reasons: dict[str, list[str]]) -> None:
        message = unschedulable_message(reasons)
        refusal = {"status": "False", "reason": "Unschedulable", "message": message}
        before = pod["status"].get("conditions") or []
        if any(one["type"] == "PodScheduled" and one.get("message") == message for one in before):
            return
        self._registry.edit(PODS, pod, lambda new: _set_scheduled(new, refusal), "status")
        self._events.record(PODS, pod, "Warning", "FailedScheduling", message)


def unschedulable_message(reasons: dict[str, list[str]]) -> str:
    """`0/3 nodes are available: …` in the wording of the real scheduler."""
    total = len(reasons)
    if not total:
        return "no nodes available to schedule pods"
    counts = Counter(reason for listed in reasons.values() for reason in listed)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    by_room = sum(all(one.startswith("Insufficient") for one in found) for found in reasons.values())
    helps = {_NO_VICTIM: by_room, _NO_HELP: total - by_room}
    after = ", ".join(sorted(f"{count} {text}" for text, count in helps.items() if count))
    return (
        f"0/{total} nodes are available: {listed}. no new claims to deallocate, "
        f"preemption: 0/{total} nodes are available: {after}."
    )


def why_not(store: Store, pod: Obj, node: Obj) -> list[str]:
    """Why this pod cannot run on this node; empty if it can. The first kind of obstacle is reported."""
    if node["spec"].get("unschedulable"):
        return [NOT_SCHEDULABLE]
    if not _selected(pod, node):
        return [WRONG_LABELS]
    if not _tolerated(pod, node):
        return [TAINTED]
    free = _free(store, node)
    lacking = [
        f"Insufficient {name}"
        for name, amount in sorted(requests_of(pod).items())
        if amount > free.get(name, Fraction(0))
    ]
    if "pods" in free and free["pods"] < 1:
        lacking.insert(0, "Too many pods")
    if lacking:
        return lacking
    return [APART] if _is_kept_apart(store, pod, node) else []


def requests_of(pod: Obj) -> Amounts:
    total: Amounts = {}
    for container in pod["spec"]["containers"]:
        for name, text in (container.get("resources", {}).get("requests") or {}).items():
            total[name] = total.get(name, Fraction(0)) + parse_quantity(text)
    return total


def _free(store: Store, node: Obj) -> Amounts:
    free = {name: parse_quantity(text) for name, text in node.get("status", {}).get("allocatable", {}).items()}
    for pod in store.list(PODS):
        if pod["spec"].get("nodeName") == name_of(node) and not is_terminal(pod):
            for name, amount in {**requests_of(pod), "pods": Fraction(1)}.items():
                if name in free:
                    free[name] -= amount
    return free


def _selected(pod: Obj, node: Obj) -> bool:
    labels = labels_of(node)
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = required.get("nodeSelectorTerms") or []
    return any(matches({"matchExpressions": term.get("matchExpressions")}, labels) for term in terms)


def _tolerated(pod: Obj, node: Obj) -> bool:
    tolerations = pod["spec"].get("tolerations") or []
    blocking = [taint for taint in node["spec"].get("taints") or [] if taint["effect"] in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in blocking)


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _is_kept_apart(store: Store, pod: Obj, node: Obj) -> bool:
    """Required anti-affinity by host name, the only topology that this scheduler supports."""
    rules = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    terms = rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []
    here = [
        one
        for one in store.list(PODS, namespace_of(pod))
        if one["spec"].get("nodeName") == name_of(node) and not is_terminal(one)
    ]
    return any(
        term.get("topologyKey") == HOSTNAME and matches(term.get("labelSelector"), labels_of(one))
        for term in terms
        for one in here
    )


def _matters(change: Change) -> bool:
    return change.kind != "MODIFIED" or change.previous is None or _room(change.obj) != _room(change.previous)


def _room(pod: Obj) -> tuple[Any, ...]:
    return pod["spec"].get("nodeName"), is_terminal(pod), pod["spec"].get("tolerations")


def _is_waiting(pod: Obj) -> bool:
    return not pod["spec"].get("nodeName") and not is_terminal(pod) and not is_terminating(pod)


def _set_scheduled(pod: Obj, condition: Obj) -> None:
    scheduled = {"type": "PodScheduled", "lastTransitionTime": clock.stamp(), "lastProbeTime": None, **condition}
    status = pod["status"]
    status["conditions"] = with_condition(status.get("conditions") or [], scheduled)
