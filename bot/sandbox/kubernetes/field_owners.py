"""Who last set which field, so that a server-side apply can be refused when a field is somebody else's.

Kept beside the objects and never shown as `managedFields`: only the refusal is needed.
"""

from collections.abc import Iterator
from typing import Any

from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.patches import MERGE_KEYS
from bot.sandbox.kubernetes.store import uid_of

Obj = dict[str, Any]
Path = tuple[str, ...]

# Identity and what the server writes: nobody owns these.
_UNOWNED = ("apiVersion", "kind", "status")
_OWNED_METADATA = ("labels", "annotations")


class FieldOwners:
    def __init__(self) -> None:
        self._owners: dict[str, dict[Path, str]] = {}

    def note(self, manager: str, before: Obj | None, after: Obj) -> None:
        """A plain write takes over the fields that it changed; those that it removed belong to nobody."""
        owners = self._owners.setdefault(uid_of(after), {})
        old, new = _fields(before) if before is not None else {}, _fields(after)
        for path in old.keys() - new.keys():
            owners.pop(path, None)
        owners.update({path: manager for path, value in new.items() if old.get(path) != value})

    def expect_free(self, manager: str, current: Obj, applied: Obj) -> None:
        """Raise 409 when `applied` would change a field that another manager set."""
        owners, now = self._owners.get(uid_of(current), {}), _fields(current)
        conflicts = {
            path: owners[path]
            for path, value in _fields(applied).items()
            if owners.get(path, manager) != manager and now.get(path) != value
        }
        if conflicts:
            raise _conflict(conflicts)

    def claim(self, manager: str, applied: Obj, after: Obj) -> None:
        """An apply owns everything that it named, changed or not."""
        owners = self._owners.setdefault(uid_of(after), {})
        owners.update(dict.fromkeys(_fields(applied), manager))

    def dropped(self, manager: str, current: Obj, applied: Obj) -> list[Path]:
        """What this manager set before and no longer names: an apply removes it."""
        named = _fields(applied)
        owners = self._owners.get(uid_of(current), {})
        return [path for path, owner in owners.items() if owner == manager and path not in named]


def without(obj: Obj, path: Path) -> Obj:
    """`obj` with the field at `path` taken out, if it is there; keyed lists are left alone."""
    head, *rest = path
    if head not in obj or not isinstance(obj, dict):
        return obj
    if not rest:
        return {key: value for key, value in obj.items() if key != head}
    inner = obj[head]
    return {**obj, head: without(inner, tuple(rest))} if isinstance(inner, dict) else obj


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
