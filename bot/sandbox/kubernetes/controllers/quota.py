"""Keeps the status of each ResourceQuota: the limits, and the use by its namespace's pods."""

from collections.abc import Iterable

from bot.sandbox.kubernetes import quota
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import PODS, RESOURCE_QUOTAS
from bot.sandbox.kubernetes.store import Change, name_of, namespace_of


class QuotaController:
    name = "resourcequota"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is RESOURCE_QUOTAS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is PODS:
            for one in self._store.list(RESOURCE_QUOTAS, namespace_of(change.obj)):
                yield namespace_of(one), name_of(one)

    def reconcile(self, key: Key) -> float | None:
        found = self._store.find(RESOURCE_QUOTAS, *key)
        if found is not None:
            status = {"hard": found["spec"].get("hard") or {}, "used": quota.used_of(self._store, found)}
            self._registry.edit(RESOURCE_QUOTAS, found, lambda new: new.update(status=status), "status")
        return None
