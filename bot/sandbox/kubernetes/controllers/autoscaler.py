"""Autoscalers without metrics: a workload never has fewer replicas than their minimum nor more than their maximum."""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import (
    AUTOSCALERS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    STATEFUL_SETS,
)
from bot.sandbox.kubernetes.store import Change, name_of, namespace_of

Obj = dict[str, Any]

SCALABLE = {row.kind: row for row in (DEPLOYMENTS, STATEFUL_SETS, LEADER_WORKER_SETS)}


class Autoscaler:
    name = "autoscaler"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is AUTOSCALERS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource in SCALABLE.values():
            for scaler in self._store.list(AUTOSCALERS, namespace_of(change.obj)):
                if scaler["spec"]["scaleTargetRef"]["name"] == name_of(change.obj):
                    yield namespace_of(scaler), name_of(scaler)

    def reconcile(self, key: Key) -> float | None:
        scaler = self._store.find(AUTOSCALERS, *key)
        if scaler is None:
            return None
        target = scaler["spec"]["scaleTargetRef"]
        row = SCALABLE.get(target.get("kind", "Deployment"))
        workload = self._store.find(row, key[0], target["name"]) if row is not None else None
        if row is None or workload is None or workload["spec"]["replicas"] == 0:
            return None
        least, most = scaler["spec"].get("minReplicas", 1), scaler["spec"]["maxReplicas"]
        wanted = min(max(workload["spec"]["replicas"], least), most)
        self._registry.edit(row, workload, lambda one: one["spec"].update(replicas=wanted))
        return None
