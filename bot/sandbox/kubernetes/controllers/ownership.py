"""Owner references: which object created this one and controls it."""

from typing import Any

from bot.sandbox.kubernetes.resources import Resource
from bot.sandbox.kubernetes.store import Store, name_of, namespace_of, uid_of

Obj = dict[str, Any]


def controller_of(obj: Obj) -> Obj | None:
    """The one owner reference that is marked as the controller."""
    references: list[Obj] = obj["metadata"].get("ownerReferences") or []
    return next((one for one in references if one.get("controller")), None)


def is_controlled_by(obj: Obj, owner: Obj) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == uid_of(owner)


def reference_to(resource: Resource, owner: Obj) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controlled(store: Store, resource: Resource, owner: Obj) -> list[Obj]:
    return [one for one in store.list(resource, namespace_of(owner)) if is_controlled_by(one, owner)]


def live_controller(store: Store, resource: Resource, obj: Obj) -> Obj | None:
    """The controller of `obj` if it is of this kind and still the same object."""
    reference = controller_of(obj)
    if reference is None or reference["kind"] != resource.kind:
        return None
    owner = store.find(resource, namespace_of(obj), reference["name"])
    return owner if owner is not None and uid_of(owner) == reference["uid"] else None
