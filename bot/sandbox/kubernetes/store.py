"""Objects in memory, with one version counter and a bounded history for watches.

A stored object is never changed in place: every write puts a new one, so that readers may keep their copy. Reads and
writes do not wait, so in one event loop each is atomic.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from bot.sandbox.kubernetes import errors
from bot.sandbox.kubernetes.resources import STORED, Resource

Obj = dict[str, Any]
ChangeKind = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True)
class Change:
    """One write; `previous` is the object before it. A deleted object has the version of its deletion."""

    kind: ChangeKind
    resource: Resource
    version: int
    obj: Obj
    previous: Obj | None

    @cached_property
    def text(self) -> str:
        """The object as JSON, made once for all watchers."""
        return json.dumps(self.obj, separators=(",", ":"))


Listener = Callable[[Change], None]


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace", ""))


def uid_of(obj: Obj) -> str:
    return str(obj["metadata"]["uid"])


def is_terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


class Store:
    def __init__(self, history: int = 5000) -> None:
        self._objects: dict[Resource, dict[tuple[str, str], Obj]] = {row: {} for row in STORED}
        self._history: deque[Change] = deque(maxlen=history)
        self._listeners: list[Listener] = []
        # Above all versions of an earlier run of this server: a client that returns with one of those must be told that
        # it is too old, instead of waiting for versions that it has already seen.
        self._version = int(time.time() * 100)

    @property
    def version(self) -> int:
        return self._version

    def find(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        return self._objects[resource].get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Obj:
        """Raises `ApiError` 404 if it does not exist."""
        found = self.find(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource, name)
        return found

    def list(self, resource: Resource, namespace: str | None = None) -> "list[Obj]":
        """Ordered by namespace and name; `None` means every namespace."""
        rows = self._objects[resource]
        return [rows[key] for key in sorted(rows) if namespace is None or key[0] == namespace]

    def add(self, resource: Resource, obj: Obj) -> Obj:
        key = (namespace_of(obj), name_of(obj))
        if key in self._objects[resource]:
            raise errors.already_exists(resource, key[1])
        return self._write("ADDED", resource, obj, None)

    def put(self, resource: Resource, obj: Obj) -> Obj:
        """Replaces the stored object. The caller has checked preconditions; the object must exist."""
        return self._write("MODIFIED", resource, obj, self.get(resource, namespace_of(obj), name_of(obj)))

    def remove(self, resource: Resource, obj: Obj) -> Obj:
        stored = self.get(resource, namespace_of(obj), name_of(obj))
        return self._write("DELETED", resource, stored, stored)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every later change; returns a function that ends that. Listeners only take notes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def since(self, version: int) -> Sequence[Change]:
        """Changes after `version`; raises `ApiError` 410 if some of them are no longer kept."""
        if version < self._oldest():
            raise errors.expired(version, self._oldest())
        return [change for change in self._history if change.version > version]

    def forget(self) -> None:
        """Drops the history, as a compaction does: every older version is then too old to watch from."""
        self._version += 1
        self._history.clear()

    def _oldest(self) -> int:
        return self._history[0].version - 1 if self._history else self._version

    def _write(self, kind: ChangeKind, resource: Resource, obj: Obj, previous: Obj | None) -> Obj:
        self._version += 1
        written = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        key = (namespace_of(written), name_of(written))
        if kind == "DELETED":
            del self._objects[resource][key]
        else:
            self._objects[resource][key] = written
        change = Change(kind, resource, self._version, written, previous)
        self._history.append(change)
        for listener in tuple(self._listeners):
            listener(change)
        return written
