"""Tracks which manager last set which field: for `managedFields`, and to refuse a server-side apply.

Only for writes to the whole object: controllers and kubelets write without a name here, and a status has no owner.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.patches import MERGE_KEYS
from bot.sandbox.kubernetes.store import uid_of

Obj = dict[str, Any]
Path = tuple[str, ...]

# Identity and server-written fields have no owner.
_UNOWNED = ("apiVersion", "kind", "status")
_OWNED_METADATA = ("labels", "annotations")


Operation = Literal["Update", "Apply"]


@dataclass
class _Owned:
    """The owner of each field of one object, and when and how each owner last wrote."""

    owners: dict[Path, str] = field(default_factory=dict)
    written: dict[str, tuple[Operation, str]] = field(default_factory=dict)


class FieldOwners:
    def __init__(self) -> None:
        self._known: dict[str, _Owned] = {}

    def note(self, manager: str, before: Obj | None, after: Obj, operation: Operation = "Update") -> list[Obj]:
        """A write takes ownership of the fields that it changed; removed fields lose their owner.

        Returns `metadata.managedFields`, without the API version. If no field has another value, nothing changes.
        """
        known = self._known.setdefault(uid_of(after), _Owned())
        old, new = _fields(before) if before is not None else {}, _fields(after)
        gone = old.keys() - new.keys()
        changed = [path for path, value in new.items() if old.get(path) != value]
        for path in gone:
            known.owners.pop(path, None)
        known.owners.update(dict.fromkeys(changed, manager))
        if gone or changed:
            known.written[manager] = (operation, clock.stamp())
        return _managed_fields(known)

    def expect_free(self, manager: str, current: Obj, applied: Obj) -> None:
        """Raises 409 if `applied` would change a field that another manager set."""
        owners, now = self._of(current), _fields(current)
        conflicts = {
            path: owners[path]
            for path, value in _fields(applied).items()
            if owners.get(path, manager) != manager and now.get(path) != value
        }
        if conflicts:
            raise _conflict(conflicts)

    def claim(self, manager: str, applied: Obj, after: Obj) -> None:
        """An apply owns every field that it names; unchanged fields are not listed before its next write."""
        self._known.setdefault(uid_of(after), _Owned()).owners.update(dict.fromkeys(_fields(applied), manager))

    def dropped(self, manager: str, current: Obj, applied: Obj) -> list[Path]:
        """The fields that this manager set before and no longer names: an apply removes them."""
        named = _fields(applied)
        return [path for path, owner in self._of(current).items() if owner == manager and path not in named]

    def _of(self, obj: Obj) -> dict[Path, str]:
        known = self._known.get(uid_of(obj))
        return known.owners if known is not None else {}


def without(obj: Obj, path: Path) -> Obj:
    """`obj` with the field at `path` taken out, if it is there; keyed lists are left alone."""
    head, *rest = path
    if head not in obj or not isinstance(obj, dict):
        return obj
    if not rest:
        return {key: value for key, value in obj.items() if key != head}
    inner = obj[head]
    return {**obj, head: without(inner, tuple(rest))} if isinstance(inner, dict) else obj


def _managed_fields(known: _Owned) -> list[Obj]:
    entries = []
    for manager, (operation, time) in known.written.items():
        paths = [path for path, owner in known.owners.items() if owner == manager]
        if paths:
            entry = {"manager": manager, "operation": operation, "time": time}
            entries.append({**entry, "fieldsType": "FieldsV1", "fieldsV1": _fields_v1(paths)})
    return entries


def _fields_v1(paths: list[Path]) -> Obj:
    """A set of fields in the API server's format: `f:` and a name, or `k:` and the key of a list's entry."""
    tree: Obj = {}
    for path in paths:
        inner = tree
        for step in path:
            key, _, value = step.strip("[]").partition("=")
            inner = inner.setdefault(f"k:{{{json.dumps(key)}:{value}}}" if step.startswith("[") else f"f:{step}", {})
    return tree


def _fields(obj: Obj) -> dict[Path, Any]:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key in _OWNED_METADATA}
    body = {key: value for key, value in obj.items() if key not in (*_UNOWNED, "metadata")}
    return dict(_walk({**body, "metadata": metadata}, ()))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, (*path, key))
    elif isinstance(value, list) and (keys := _keys(path, value)) is not None:
        for name, inner in zip(keys, value, strict=True):
            yield from _walk(inner, (*path, name))
    else:
        yield path, value


def _keys(path: Path, entries: list[Any]) -> list[str] | None:
    """Names of the entries of a keyed list; None for a list that is one value."""
    for key in MERGE_KEYS.get(path[-1], ()):
        if entries and all(isinstance(one, dict) and key in one for one in entries):
            return [f'[{key}="{one[key]}"]' for one in entries]
    return None


def _conflict(conflicts: dict[Path, str]) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{owner}"',
            "field": f".{'.'.join(path)}".replace(".[", "["),
        }
        for path, owner in sorted(conflicts.items())
    ]
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return ApiError(409, "Conflict", f"Apply failed with {count}: {listed}", {"causes": causes})
