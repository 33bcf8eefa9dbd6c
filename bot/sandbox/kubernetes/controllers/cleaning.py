"""Clean-up: pods without a kubelet, objects whose owner is gone, terminating namespaces, old events.

It also puts the root certificate into every namespace.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.registry import DeleteOptions, Registry
from bot.sandbox.kubernetes.resources import BY_KIND, CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, STORED, Resource
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
EVENT_SECONDS = 3600.0
ROOT_CERTIFICATE = "kube-root-ca.crt"
AT_ONCE = DeleteOptions(grace_seconds=0)
_NAMESPACED: tuple[Resource, ...] = tuple(row for row in STORED if row.is_namespaced)


class PodCleaner:
    """Removes terminating pods that no kubelet will end: those of a node that does not exist."""

    name = "podgc"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is PODS and change.kind != "DELETED":
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is NODES and change.kind == "DELETED":
            for pod in self._store.list(PODS):
                if pod["spec"].get("nodeName") == name_of(change.obj):
                    yield namespace_of(pod), name_of(pod)

    def reconcile(self, key: Key) -> float | None:
        pod = self._store.find(PODS, *key)
        if pod is None or not is_terminating(pod):
            return None
        if self._store.find(NODES, "", pod["spec"].get("nodeName", "")) is not None:
            return None
        left = -clock.seconds_since(pod["metadata"]["deletionTimestamp"])
        if left > 0:
            return left
        self._registry.delete(PODS, pod, AT_ONCE)
        return None


class GarbageCollector:
    """Deletes dependents of a deleted owner, and completes foreground and orphaning deletes."""

    name = "garbagecollector"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        # Keyed by the owner's uid, to which dependents refer.
        if change.kind == "DELETED" or is_terminating(change.obj):
            yield "", uid_of(change.obj)
        if change.kind != "MODIFIED":
            for reference in change.obj["metadata"].get("ownerReferences") or []:
                yield "", reference["uid"]

    def reconcile(self, key: Key) -> float | None:
        uid = key[1]
        owner = self._owner(uid)
        dependents = self._dependents(uid)
        if owner is None:
            for resource, dependent in dependents:
                self._drop(resource, dependent, uid)
            return None
        resource, obj = owner
        finalizers = obj["metadata"].get("finalizers") or []
        if is_terminating(obj) and ORPHAN in finalizers:
            for kind, dependent in dependents:
                self._registry.edit(kind, dependent, lambda new: _disown(new, uid))
            self._registry.edit(resource, obj, lambda new: new["metadata"]["finalizers"].remove(ORPHAN))
        elif is_terminating(obj) and FOREGROUND in finalizers:
            for kind, dependent in dependents:
                self._drop(kind, dependent, uid)
            if not self._dependents(uid):
                self._registry.edit(resource, obj, lambda new: new["metadata"]["finalizers"].remove(FOREGROUND))
        return None

    def _owner(self, uid: str) -> tuple[Resource, Obj] | None:
        return next(
            (
                (row, one)
                for row in BY_KIND.values()
                if row in STORED
                for one in self._store.list(row)
                if uid_of(one) == uid
            ),
            None,
        )

    def _dependents(self, uid: str) -> list[tuple[Resource, Obj]]:
        return [
            (row, one)
            for row in _NAMESPACED
            for one in self._store.list(row)
            if any(reference["uid"] == uid for reference in one["metadata"].get("ownerReferences") or [])
        ]

    def _drop(self, resource: Resource, dependent: Obj, uid: str) -> None:
        if len(dependent["metadata"]["ownerReferences"]) > 1:
            self._registry.edit(resource, dependent, lambda new: _disown(new, uid))
        elif not is_terminating(dependent):
            self._registry.delete(resource, dependent)


class NamespaceCleaner:
    """Empties a terminating namespace, then removes it."""

    name = "namespace"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is NAMESPACES and change.kind != "DELETED":
            yield "", name_of(change.obj)
        elif change.kind == "DELETED" and change.resource.is_namespaced:
            yield "", namespace_of(change.obj)

    def reconcile(self, key: Key) -> float | None:
        namespace = self._store.find(NAMESPACES, *key)
        if namespace is None or not is_terminating(namespace):
            return None
        for resource in _NAMESPACED:
            for obj in self._store.list(resource, key[1]):
                if not is_terminating(obj):
                    self._registry.delete(resource, obj)
        if not any(self._store.list(resource, key[1]) for resource in _NAMESPACED):
            self._store.remove(NAMESPACES, namespace)
        return None


class RootCertificates:
    """Puts the cluster's root certificate into every namespace, as a real controller manager does."""

    name = "rootcacertpublisher"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is NAMESPACES:
            yield name_of(change.obj), ROOT_CERTIFICATE
        elif change.resource is CONFIG_MAPS and name_of(change.obj) == ROOT_CERTIFICATE:
            yield namespace_of(change.obj), ROOT_CERTIFICATE

    def reconcile(self, key: Key) -> float | None:
        namespace = self._store.find(NAMESPACES, "", key[0])
        if namespace is None or is_terminating(namespace) or self._store.find(CONFIG_MAPS, *key) is not None:
            return None
        body = {"metadata": {"name": key[1]}, "data": {"ca.crt": "of the sandbox, which speaks plain HTTP"}}
        self._registry.create(CONFIG_MAPS, key[0], body)
        return None


class EventCleaner:
    """Removes events an hour after their last occurrence, as a real server does."""

    name = "eventttl"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is EVENTS and change.kind != "DELETED":
            yield namespace_of(change.obj), name_of(change.obj)

    def reconcile(self, key: Key) -> float | None:
        event = self._store.find(EVENTS, *key)
        if event is None:
            return None
        repeated_at = event.get("lastTimestamp") or event.get("series", {}).get("lastObservedTime")
        left = EVENT_SECONDS - clock.seconds_since(repeated_at or event["metadata"]["creationTimestamp"])
        if left > 0:
            return left
        self._registry.delete(EVENTS, event)
        return None


def _disown(obj: Obj, uid: str) -> None:
    references = obj["metadata"]["ownerReferences"]
    obj["metadata"]["ownerReferences"] = [one for one in references if one["uid"] != uid]
