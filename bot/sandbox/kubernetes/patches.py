"""The three patch formats, as pure functions from a document and a patch to a new document.

The given document is never changed. A patch that cannot be applied raises `PatchError`.
"""

import copy
from collections.abc import Mapping
from typing import Any

from bot.domain.cluster.json_patch import PatchError, applied

Obj = dict[str, Any]

# field name -> key that identifies its entries, from the `patchMergeKey` tags of the API types. `ports` is two fields
# of the same name. Tolerations, args and taints have no tag: they are replaced whole.
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
# The tags belong to types, not to names: an EndpointSlice's `addresses` and `ports` have none.
UNMERGED_KINDS = frozenset({"EndpointSlice"})
_SET_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def json_patch(document: Obj, operations: object) -> Obj:
    """RFC 6902, all operations or none."""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise PatchError("a JSON patch is a list of operations, which are objects")
    return applied(operations, document)


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
