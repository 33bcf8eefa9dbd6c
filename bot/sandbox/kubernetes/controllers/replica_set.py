"""ReplicaSets: keep the desired number of pods, selected by label, not by origin.

A pod whose labels no longer match is released and replaced at once; it lives on alone.
"""

import copy
from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import (
    controller_of,
    is_controlled_by,
    reference_to,
)
from bot.sandbox.kubernetes.controllers.pods import is_active, is_ready, seconds_until_available
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import PODS, REPLICA_SETS
from bot.sandbox.kubernetes.selectors import labels_of, matches
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]

RETRY_SECONDS = 0.5
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class ReplicaSetController:
    name = "replicaset"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._events = Recorder(registry, "replicaset-controller")

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is REPLICA_SETS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is PODS:
            yield from self._concerned(change)

    def _concerned(self, change: Change) -> Iterable[Key]:
        namespace = namespace_of(change.obj)
        for pod in (change.obj, change.previous):
            if pod is None:
                continue
            owner = controller_of(pod)
            if owner is not None:
                yield namespace, owner["name"]
            else:
                for replica_set in self._store.list(REPLICA_SETS, namespace):
                    if matches(replica_set["spec"]["selector"], labels_of(pod)):
                        yield namespace, name_of(replica_set)

    def reconcile(self, key: Key) -> float | None:
        replica_set = self._store.find(REPLICA_SETS, *key)
        if replica_set is None:
            return None
        pods, failure = self._claim(replica_set), ""
        if not is_terminating(replica_set):
            missing = replica_set["spec"]["replicas"] - sum(map(is_active, pods))
            if missing > 0:
                failure = self._grow(replica_set, missing)
            elif missing < 0:
                self._shrink(replica_set, [pod for pod in pods if is_active(pod)], -missing)
        waits = self._report(replica_set, failure)
        return min(waits or RETRY_SECONDS, RETRY_SECONDS) if failure else waits

    def _claim(self, replica_set: Obj) -> list[Obj]:
        """Adopts orphans that match, releases own pods that do not; returns the own ones."""
        mine: list[Obj] = []
        reference = reference_to(REPLICA_SETS, replica_set)
        for pod in self._store.list(PODS, namespace_of(replica_set)):
            is_match = matches(replica_set["spec"]["selector"], labels_of(pod))
            if is_controlled_by(pod, replica_set):
                if is_match:
                    mine.append(pod)
                elif not is_terminating(pod):
                    self._registry.edit(PODS, pod, lambda new: _release(new, uid_of(replica_set)))
            elif is_match and controller_of(pod) is None and is_active(pod) and not is_terminating(replica_set):
                mine.append(self._registry.edit(PODS, pod, lambda new: _adopt(new, reference)))
        return mine

    def _grow(self, replica_set: Obj, count: int) -> str:
        """Why the first missing pod could not be created; empty if all were."""
        template = replica_set["spec"]["template"]
        body = {
            "metadata": {
                "generateName": f"{name_of(replica_set)}-",
                "labels": dict(template["metadata"].get("labels") or {}),
                "annotations": dict(template["metadata"].get("annotations") or {}),
                "ownerReferences": [reference_to(REPLICA_SETS, replica_set)],
            },
            "spec": template["spec"],
        }
        for _ in range(count):
            try:
                pod = self._registry.create(PODS, namespace_of(replica_set), copy.deepcopy(body))
            except ApiError as refused:
                text = str(refused.body["message"])
                self._events.record(REPLICA_SETS, replica_set, "Warning", "FailedCreate", f"Error creating: {text}")
                return text
            self._events.record(REPLICA_SETS, replica_set, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")
        return ""

    def _shrink(self, replica_set: Obj, active: list[Obj], count: int) -> None:
        for pod in victims(active, count):
            self._registry.delete(PODS, pod)
            self._events.record(REPLICA_SETS, replica_set, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    def _report(self, replica_set: Obj, failure: str) -> float | None:
        spec = replica_set["spec"]
        pods = [pod for pod in self._store.list(PODS, namespace_of(replica_set)) if is_controlled_by(pod, replica_set)]
        active = [pod for pod in pods if is_active(pod)]
        waits = [seconds_until_available(pod, spec.get("minReadySeconds", 0)) for pod in active]
        labels = spec["template"]["metadata"].get("labels") or {}
        status: Obj = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(pod).items() for pod in active),
            "readyReplicas": sum(map(is_ready, active)),
            "availableReplicas": sum(wait == 0 for wait in waits),
            "terminatingReplicas": sum(map(is_terminating, pods)),
            "observedGeneration": replica_set["metadata"]["generation"],
        }
        kept = {key: value for key, value in status.items() if value or key in ("replicas", "observedGeneration")}
        before = replica_set["status"].get("conditions") or []
        if conditions := with_failure(before, "FailedCreate", failure):
            kept["conditions"] = conditions
        self._registry.edit(REPLICA_SETS, replica_set, lambda new: new.update(status=kept), "status")
        return min((wait for wait in waits if wait), default=None)


def with_failure(conditions: list[Obj], reason: str, failure: str) -> list[Obj]:
    """The conditions with `ReplicaFailure` if there is a failure, and without it if there is none."""
    had = next((one for one in conditions if one["type"] == "ReplicaFailure"), None)
    rest = [one for one in conditions if one["type"] != "ReplicaFailure"]
    if not failure:
        return rest
    # Pods get a new name at each attempt: a message that always changes would never settle.
    if had is not None:
        return conditions
    stamp = clock.stamp()
    times = {"lastUpdateTime": stamp, "lastTransitionTime": stamp}
    return [*rest, {"type": "ReplicaFailure", "status": "True", "reason": reason, "message": failure, **times}]


def victims(active: list[Obj], count: int) -> list[Obj]:
    """The pods to delete first: by least service, lowest deletion cost, crowded nodes, then youngest."""
    per_node: dict[str, int] = {}
    for pod in active:
        node = pod["spec"].get("nodeName", "")
        per_node[node] = per_node.get(node, 0) + 1
    return sorted(active, key=lambda pod: _worth(pod, per_node))[:count]


def _worth(pod: Obj, per_node: dict[str, int]) -> tuple[Any, ...]:
    node = pod["spec"].get("nodeName", "")
    phases = {"Pending": 0, "Unknown": 1}
    return (
        bool(node),
        phases.get(pod["status"].get("phase", "Pending"), 2),
        is_ready(pod),
        deletion_cost(pod),
        -per_node[node],
        -_ready_since(pod),
        -clock.parse(pod["metadata"]["creationTimestamp"]).timestamp(),
        name_of(pod),
    )


def _ready_since(pod: Obj) -> float:
    for one in pod["status"].get("conditions") or []:
        if one["type"] == "Ready" and one["status"] == "True" and one.get("lastTransitionTime"):
            return clock.parse(one["lastTransitionTime"]).timestamp()
    return 0.0


def deletion_cost(pod: Obj) -> int:
    """A cost that is not a number counts as 0, as in the real controller."""
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _release(pod: Obj, uid: str) -> None:
    references = pod["metadata"]["ownerReferences"]
    pod["metadata"]["ownerReferences"] = [one for one in references if one["uid"] != uid]


def _adopt(pod: Obj, reference: Obj) -> None:
    pod["metadata"].setdefault("ownerReferences", []).append(reference)
