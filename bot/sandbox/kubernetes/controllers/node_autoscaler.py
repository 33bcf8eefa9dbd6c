"""A node autoscaler with one group of GPU nodes, in the words of Cluster Autoscaler.

A pod that only a new node would take triggers a scale-up, and the node joins some time later. A pod that no new node
would help, or that comes at the group's maximum, gets the reason. Both are events about the pod, as
cluster-autoscaler/processors/status/eventing_scale_up_processor.go writes them.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from bot.sandbox.kubernetes import clock, worlds
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.pods import is_terminal
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.controllers.scheduler import why_not
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import CONFIG_MAPS, NODES, PODS
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, uid_of

Obj = dict[str, Any]
GROUP = "gpu-nodes"
STATUS_NAMESPACE, STATUS_NAME = "kube-system", "cluster-autoscaler-status"
LOOK_SECONDS = 1.0
STATUS_SECONDS = 10.0
_ALL: Key = ("", "*")


@dataclass(frozen=True)
class NodeGroup:
    most: int
    seconds: float
    """How long a node takes from its request until it is Ready."""

    @classmethod
    def parse(cls, text: str) -> Self:
        most, separator, seconds = text.partition(":")
        if not separator:
            raise ValueError(f"{text!r} is not MAX:SECONDS; example: 4:25")
        return cls(int(most), float(seconds))


class NodeAutoscaler:
    name = "node-autoscaler"

    def __init__(self, registry: Registry, group: NodeGroup) -> None:
        self._registry = registry
        self._store = registry.store
        self._group = group
        self._events = Recorder(registry, "cluster-autoscaler")
        self._ready_at: float | None = None
        """When the requested node joins; None while none is requested."""
        self._status_at = 0.0
        self._answered: set[tuple[str, str]] = set()

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource in (NODES, PODS):
            yield _ALL

    def reconcile(self, key: Key) -> float | None:
        now = time.monotonic()
        self._write_status(now)
        if self._ready_at is not None and now >= self._ready_at:
            self._registry.create(NODES, "", self._new_node())
            self._ready_at = None
        for pod in self._store.list(PODS):
            if _is_unschedulable(pod) and self._ready_at is None:
                self._consider(pod, now)
        return LOOK_SECONDS

    def _consider(self, pod: Obj, now: float) -> None:
        size = len(self._store.list(NODES))
        obstacles = why_not(self._store, pod, self._new_node())
        if not obstacles and size < self._group.most:
            self._ready_at = now + self._group.seconds
            plan = f"[{{{GROUP} {size}->{size + 1} (max: {self._group.most})}}]"
            self._record(pod, "TriggeredScaleUp", f"pod triggered scale-up: {plan}")
            return
        reason = f"1 {obstacles[0]}" if obstacles else "1 max node group size reached"
        self._record(pod, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reason}")

    def _record(self, pod: Obj, reason: str, message: str) -> None:
        if (uid_of(pod), message) not in self._answered:
            self._answered.add((uid_of(pod), message))
            self._events.record(PODS, pod, "Normal", reason, message)

    def _new_node(self) -> Obj:
        names = {name_of(node) for node in self._store.list(NODES)}
        number = next(number for number in range(1, len(names) + 2) if f"gpu-node-{number}" not in names)
        return worlds.node(f"gpu-node-{number}", gpus=worlds.GPUS_PER_NODE)

    def _write_status(self, now: float) -> None:
        if self._status_at and now - self._status_at < STATUS_SECONDS:
            return
        self._status_at = now
        stamp = clock.now().strftime("%Y-%m-%d %H:%M:%S.%f +0000 UTC")
        notes = {"cluster-autoscaler.kubernetes.io/last-updated": stamp}
        present = self._store.find(CONFIG_MAPS, STATUS_NAMESPACE, STATUS_NAME)
        if present is not None:
            self._registry.edit(CONFIG_MAPS, present, lambda one: one["metadata"].update(annotations=notes))
            return
        data = {"status": "autoscalerStatus: Running\n"}
        body = {"metadata": {"name": STATUS_NAME, "annotations": notes}, "data": data}
        self._registry.create(CONFIG_MAPS, STATUS_NAMESPACE, body)


def _is_unschedulable(pod: Obj) -> bool:
    if pod["spec"].get("nodeName") or is_terminal(pod) or is_terminating(pod):
        return False
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
