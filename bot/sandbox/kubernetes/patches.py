"""The three patch languages, as pure functions from a document and a patch to a new document.

The given document is never changed. A patch that cannot be applied raises `PatchError`.
"""

import copy
from collections.abc import Mapping
from typing import Any

Obj = dict[str, Any]

# field name -> key that tells its entries apart, as the `patchMergeKey` tags of the API types say.
# `ports` is two fields of the same name. Tolerations, args and taints have no tag: they are replaced whole.
MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "hostAliases": ("ip",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
}
MERGED_PRIMITIVES = frozenset({"finalizers"})
# The tags sit on types, not on names: an EndpointSlice's `addresses` and `ports` carry none.
UNMERGED_KINDS = frozenset({"EndpointSlice"})
_SET_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


class PatchError(Exception):
    """The patch does not fit the document."""


def json_patch(document: Obj, operations: object) -> Obj:
    """RFC 6902, all operations or none, with the two liberties of the library in kube-apiserver.

    `test` with null holds for a key that is absent, and `replace` sets a key of an object that is absent.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    patched = copy.deepcopy(document)
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchError("an operation is an object")
        patched = _operate(patched, operation)
    return patched


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    kind, path = operation.get("op"), _pointer(operation.get("path"))
    match kind:
        case "test":
            if not _same(_look_or_none(document, path), operation.get("value")):
                raise PatchError(f"testing value {operation.get('path')} failed: test failed")
            return document
        case "remove":
            return _remove(document, path)
        case "add":
            return _add(document, path, copy.deepcopy(_value(operation)))
        case "replace":
            return _replace(document, path, copy.deepcopy(_value(operation)))
        case "move" | "copy":
            origin = _pointer(operation.get("from"))
            value = copy.deepcopy(_look(document, origin))
            return _add(_remove(document, origin) if kind == "move" else document, path, value)
        case _:
            raise PatchError(f"unexpected kind: {kind}")


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"operation {operation.get('op')} lacks a value")
    return operation["value"]


def _same(left: Any, right: Any) -> bool:
    # JSON has no integers: 1 equals 1.0, but true does not equal 1 as it would in Python.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _pointer(text: object) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{text!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(parent: list[Any], token: str, *, end: int) -> int:
    try:
        index = int(token)
    except ValueError:
        raise PatchError(f"{token!r} is no index of a list") from None
    if not 0 <= index < end:
        raise PatchError(f"index {index} is out of range of a list of {len(parent)}")
    return index


def _step(parent: Any, token: str) -> Any:
    if isinstance(parent, list):
        return parent[_index(parent, token, end=len(parent))]
    if isinstance(parent, dict) and token in parent:
        return parent[token]
    raise PatchError(f"{token!r} does not exist")


def _look(document: Any, path: list[str]) -> Any:
    for token in path:
        document = _step(document, token)
    return document


def _look_or_none(document: Any, path: list[str]) -> Any:
    parent = _look(document, path[:-1])
    if path and isinstance(parent, dict):
        return parent.get(path[-1])
    return _look(document, path)


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _look(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(parent, path[-1], end=len(parent))] = value
        return document
    return _add(document, path, value)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent = _look(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1], end=len(parent))]
    else:
        _step(parent, path[-1])
        del parent[path[-1]]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _look(document, path[:-1])
    if isinstance(parent, list):
        at = len(parent) if path[-1] == "-" else _index(parent, path[-1], end=len(parent) + 1)
        parent.insert(at, value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise PatchError(f"cannot add {path[-1]!r} to a plain value")
    return document


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(document: Obj, patch: object) -> Obj:
    """A merge patch that knows which lists are keyed, with the `$patch` directives that kubectl writes."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object")
    if document.get("kind") in UNMERGED_KINDS:
        return _as_object(merge_patch(document, patch))
    return _as_object(_merge(copy.deepcopy(document), patch))


def _as_object(value: Any) -> Obj:
    if not isinstance(value, dict):
        raise PatchError("the patch leaves no object")
    return value


def _merge(document: Any, patch: Mapping[str, Any]) -> Any:
    patch = dict(patch)
    directive = patch.pop("$patch", None)
    merged = {} if directive == "replace" or not isinstance(document, dict) else document
    retained = patch.pop("$retainKeys", None)
    if retained is not None:
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        _merge_field(merged, key, value)
    return merged


def _merge_field(merged: Obj, key: str, value: Any) -> None:
    if key.startswith(_SET_ORDER):
        return
    if key.startswith(_DELETE_PRIMITIVES):
        field = key.removeprefix(_DELETE_PRIMITIVES)
        merged[field] = [one for one in merged.get(field) or [] if one not in value]
    elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
        merged.pop(key, None)
    elif isinstance(value, dict):
        merged[key] = _merge(merged.get(key), value)
    elif isinstance(value, list):
        merged[key] = _merge_list(key, merged.get(key) or [], value)
    else:
        merged[key] = value


def _merge_list(field: str, present: list[Any], patch: list[Any]) -> list[Any]:
    if field in MERGED_PRIMITIVES:
        return present + [one for one in patch if one not in present]
    if any(isinstance(one, dict) and one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if one.get("$patch") != "replace"]
    key = _merge_key(field, patch)
    if key is None:
        return copy.deepcopy(patch)
    merged = list(present)
    for entry in patch:
        if key not in entry:
            raise PatchError(f"map: {entry} does not contain declared merge key: {key}")
        at = next((i for i, one in enumerate(merged) if one.get(key) == entry[key]), None)
        if entry.get("$patch") == "delete":
            merged = [one for one in merged if one.get(key) != entry[key]]
        elif at is None:
            merged.append(_merge({}, entry))
        else:
            merged[at] = _merge(merged[at], entry)
    return merged


def _merge_key(field: str, patch: list[Any]) -> str | None:
    keys = MERGE_KEYS.get(field)
    if keys is None or not all(isinstance(one, dict) for one in patch):
        return None
    return next((key for key in keys if any(key in one for one in patch)), keys[0])
