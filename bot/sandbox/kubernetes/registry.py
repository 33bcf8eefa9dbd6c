"""Create, replace, patch and delete: decode, fill in, validate, and only then store.

A dry run takes the same path up to the last step. Clients and controllers both use this module, so that an object
cannot enter the store unchecked.
"""

import copy
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from bot.domain.cluster.json_patch import PatchError
from bot.sandbox.kubernetes import clock, defaults, errors, quota, schema, validation
from bot.sandbox.kubernetes.admission import admit
from bot.sandbox.kubernetes.errors import Cause
from bot.sandbox.kubernetes.field_owners import FieldOwners, Operation, without
from bot.sandbox.kubernetes.patches import strategic_merge_patch
from bot.sandbox.kubernetes.resources import (
    BY_KIND,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    Resource,
)
from bot.sandbox.kubernetes.store import Store, is_terminating, name_of, namespace_of

Obj = dict[str, Any]
Part = Literal["whole", "status", "binding"]
Patch = Callable[[Obj], Obj]

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


@dataclass
class Options:
    """The query of a write; `warnings` collects the answer's warning headers."""

    is_dry_run: bool = False
    field_validation: Literal["Ignore", "Warn", "Strict"] = "Warn"
    manager: str = ""
    operation: Operation = "Update"
    is_forced: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DeleteOptions:
    """The body of a delete. Grace `None` means the object's own."""

    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str = "Background"
    is_dry_run: bool = False


class Registry:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._owners = FieldOwners()

    # --- create

    def create(self, resource: Resource, namespace: str, obj: Obj, options: Options | None = None) -> Obj:
        options = options or Options()
        new = self._decoded(resource, obj, options)
        metadata = new.setdefault("metadata", {})
        _settle_namespace(resource, metadata, namespace)
        if resource.is_namespaced:
            self._expect_open_namespace(resource, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName'][:58]}{random_suffix()}"
        for key in (*_SERVER_OWNED, "resourceVersion", "managedFields", "selfLink"):
            metadata.pop(key, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = clock.stamp()
        if resource.counts_generation:
            metadata["generation"] = 1
        # A node is registered with its status by a kubelet; every other object starts without one.
        if resource.has_status and resource is not NODES:
            new.pop("status", None)
        _drop_empty(metadata)
        defaults.fill(resource, new)
        _refuse(resource, new, validation.causes_of(resource, new, None))
        admit(self.store, resource, new)
        self._settle_address(resource, new)
        if self.store.find(resource, namespace_of(new), name_of(new)) is not None:
            raise errors.already_exists(resource, name_of(new))
        if resource is PODS and (refusal := quota.refusal_of(self.store, new)):
            raise errors.forbidden(resource, name_of(new), refusal)
        if options.is_dry_run:
            return new
        self._note(resource, options, None, new)
        return self.store.add(resource, new)

    def _expect_open_namespace(self, resource: Resource, metadata: Obj) -> None:
        namespace = self.store.get(NAMESPACES, "", metadata["namespace"])
        if is_terminating(namespace):
            name = name_of(namespace)
            problem = f"unable to create new content in namespace {name} because it is being terminated"
            raise errors.forbidden(resource, metadata.get("name", ""), problem)

    def _settle_address(self, resource: Resource, obj: Obj) -> None:
        if resource is SERVICES and not obj["spec"].get("clusterIP"):
            taken = {one["spec"].get("clusterIP") for one in self.store.list(SERVICES)}
            free = (f"10.96.{high}.{low}" for high in range(256) for low in range(1, 255))
            obj["spec"]["clusterIP"] = next(address for address in free if address not in taken)
            obj["spec"]["clusterIPs"] = [obj["spec"]["clusterIP"]]

    # --- replace and patch

    def replace(self, resource: Resource, obj: Obj, part: Part = "whole", options: Options | None = None) -> Obj:
        """PUT: `obj` names the object. Raises 409 if its version or uid is outdated."""
        options = options or Options()
        new = self._decoded(resource, obj, options)
        current = self.store.get(resource, namespace_of(new), name_of(new))
        return self._update(resource, current, new, part, options)

    def patch(
        self, resource: Resource, current: Obj, patch: Patch, part: Part = "whole", options: Options | None = None
    ) -> Obj:
        """Applies `patch` to the stored object. The result must still be an object of this kind."""
        options = options or Options()
        # Stored objects keep no explicit kind if they came without one; the patch sees them as a client does.
        shown = {"apiVersion": resource.api_version, "kind": resource.kind, **current}
        try:
            changed = patch(copy.deepcopy(shown))
        except PatchError:
            raise errors.unusable_patch() from None
        new = self._decoded(resource, changed, options, is_patch=True)
        if (namespace_of(new), name_of(new)) != (namespace_of(current), name_of(current)):
            raise errors.bad_request("the name of the object does not match the name on the URL")
        if (uid := new["metadata"].get("uid")) != current["metadata"]["uid"]:
            # Only a PUT takes the uid as a precondition.
            _refuse(resource, new, [Cause.invalid("metadata.uid", uid or "", "field is immutable")])
        return self._update(resource, current, new, part, options)

    def apply(self, resource: Resource, namespace: str, applied: Obj, options: Options) -> tuple[bool, Obj]:
        """Server-side apply; returns whether it created. Raises 409 for a field of another manager unless forced."""
        if not options.manager:
            cause = Cause.required("fieldManager", "is required for apply patch")
            raise errors.invalid("PatchOptions", "meta.k8s.io", "", [cause])
        options.operation = "Apply"
        current = self.store.find(resource, namespace, name_of(applied))
        if current is None:
            return True, self.create(resource, namespace, applied, options)
        if not options.is_forced:
            self._owners.expect_free(options.manager, current, applied)
        dropped = self._owners.dropped(options.manager, current, applied)

        def merge(document: Obj) -> Obj:
            for path in dropped:
                document = without(document, path)
            return strategic_merge_patch(document, applied)

        written = self.patch(resource, current, merge, options=options)
        if not options.is_dry_run:
            self._owners.claim(options.manager, applied, written)
        return False, written

    def edit(self, resource: Resource, current: Obj, change: Callable[[Obj], None], part: Part = "whole") -> Obj:
        """For controllers: changes a copy of the stored object; writes nothing if nothing changed."""
        stored = self.store.get(resource, namespace_of(current), name_of(current))
        new = copy.deepcopy(stored)
        change(new)
        return self._update(resource, stored, new, part, Options())

    def _update(self, resource: Resource, current: Obj, new: Obj, part: Part, options: Options) -> Obj:
        _expect_same_object(resource, current, new)
        stored = self.store.get(resource, namespace_of(current), name_of(current))
        if part == "status":
            new = _with_status_of(stored, new)
            _refuse(resource, new, _of_status(resource, new, stored))
        elif part == "binding":
            # The scheduler's own path: a pod's node cannot be changed by an ordinary write.
            new = {**stored, "spec": new["spec"]}
        else:
            new = _with_server_owned(resource, stored, new)
            defaults.fill(resource, new)
            _refuse(resource, new, validation.causes_of(resource, new, stored))
            admit(self.store, resource, new)
            _count_generation(resource, new, stored)
        if new == stored:
            return stored
        if options.is_dry_run:
            return new
        if is_terminating(new) and not new["metadata"].get("finalizers") and _may_vanish(resource, new):
            return self.store.remove(resource, new)
        if part == "whole":
            self._note(resource, options, stored, new)
        return self.store.put(resource, new)

    def _note(self, resource: Resource, options: Options, before: Obj | None, after: Obj) -> None:
        if options.manager:
            entries = self._owners.note(options.manager, before, after, options.operation)
            after["metadata"]["managedFields"] = [{**entry, "apiVersion": resource.api_version} for entry in entries]

    # --- delete

    def delete(self, resource: Resource, obj: Obj, options: DeleteOptions | None = None) -> Obj:
        """Removes, or marks for removal what ends gracefully. Returns the object's new (or last) state."""
        options = options or DeleteOptions()
        _expect_preconditions(resource, obj, options)
        grace = _grace(resource, obj, options)
        finalizers = _finalizers_after(obj, options)
        # A namespace goes when its content is gone: its controller removes it.
        if grace == 0 and not finalizers and resource is not NAMESPACES:
            return obj if options.is_dry_run else self.store.remove(resource, obj)
        marked = copy.deepcopy(obj)
        metadata = marked["metadata"]
        if finalizers:
            metadata["finalizers"] = finalizers
        if not is_terminating(obj) or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = clock.stamp(clock.now() + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
            if resource.counts_generation:
                metadata["generation"] = metadata.get("generation", 0) + 1
        if resource is NAMESPACES:
            marked["status"] = {**marked.get("status", {}), "phase": "Terminating"}
        if options.is_dry_run or marked == obj:
            return marked
        return self.store.put(resource, marked)

    # --- decoding

    def _decoded(self, resource: Resource, obj: object, options: Options, *, is_patch: bool = False) -> Obj:
        if not isinstance(obj, dict):
            raise errors.bad_request("the request body is no object")
        shown = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        if BY_KIND.get((str(shown["apiVersion"]), str(shown["kind"]))) is not resource:
            raise errors.bad_request(
                f"the API version in the data ({shown['apiVersion']}) does not match the expected API version "
                f"({resource.api_version})"
                if shown["kind"] == resource.kind
                else f'no kind "{shown["kind"]}" is registered for version "{shown["apiVersion"]}" here'
            )
        try:
            decoded = schema.decode(schema.root_of(resource.kind, resource.api_version), shown)
        except schema.MistypedError as error:
            raise _undecodable(resource, shown, str(error), is_patch=is_patch) from None
        problems = [f'unknown field "{path}"' for path in decoded.unknown]
        if problems and options.field_validation == "Strict":
            text = f"strict decoding error: {', '.join(problems)}"
            raise _undecodable(resource, shown, text, is_patch=is_patch)
        if options.field_validation == "Warn":
            options.warnings.extend(problems)
        return decoded.obj


def random_suffix() -> str:
    return "".join(random.choices(SUFFIX_LETTERS, k=5))  # noqa: S311 - a name, not a secret


def _undecodable(resource: Resource, obj: Obj, problem: str, *, is_patch: bool) -> errors.ApiError:
    if is_patch:
        return errors.invalid("", "", "", [Cause.invalid("patch", json.dumps(obj, separators=(",", ":")), problem)])
    version = resource.api_version.rpartition("/")[2]
    return errors.bad_request(
        f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {problem}'
    )


def _settle_namespace(resource: Resource, metadata: Obj, namespace: str) -> None:
    if not resource.is_namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.setdefault("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _refuse(resource: Resource, obj: Obj, causes: list[Cause]) -> None:
    if causes:
        raise errors.invalid(resource.kind, resource.group, obj["metadata"].get("name", ""), causes)


def _expect_same_object(resource: Resource, current: Obj, new: Obj) -> None:
    name, metadata = name_of(current), new["metadata"]
    uid, have_uid = metadata.get("uid"), current["metadata"]["uid"]
    if uid and uid != have_uid:
        problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {have_uid}"
        raise errors.conflict(resource, name, problem)
    version = metadata.get("resourceVersion")
    if version and version != current["metadata"]["resourceVersion"]:
        raise errors.modified(resource, name)


def _with_status_of(stored: Obj, new: Obj) -> Obj:
    """For a write to `…/status` only the status counts, and the annotations (the deployment controller uses this)."""
    metadata = dict(stored["metadata"])
    if "annotations" in new["metadata"]:
        metadata["annotations"] = new["metadata"]["annotations"]
    return {**stored, "metadata": metadata, "status": new.get("status", {})}


def _of_status(resource: Resource, new: Obj, stored: Obj) -> list[Cause]:
    """A pod's QoS class is fixed when it is created."""
    if resource is not PODS:
        return []
    settled = stored["status"]["qosClass"]
    wanted = new["status"].setdefault("qosClass", settled)
    if wanted == settled:
        return []
    return [Cause.invalid("status.qosClass", wanted, "field is immutable")]


def _with_server_owned(resource: Resource, stored: Obj, new: Obj) -> Obj:
    metadata = dict(new["metadata"])
    for key in (*_SERVER_OWNED, "resourceVersion", "managedFields"):
        if key in stored["metadata"]:
            metadata[key] = stored["metadata"][key]
        else:
            metadata.pop(key, None)
    _drop_empty(metadata)
    merged = {**new, "metadata": metadata}
    if resource.has_status:
        merged["status"] = copy.deepcopy(stored.get("status", {}))
    if resource is SERVICES:
        for key in ("clusterIP", "clusterIPs"):
            merged["spec"].setdefault(key, stored["spec"].get(key))
    return merged


def _drop_empty(metadata: Obj) -> None:
    for key in ("labels", "annotations", "ownerReferences", "finalizers"):
        if not metadata.get(key):
            metadata.pop(key, None)


def _count_generation(resource: Resource, new: Obj, stored: Obj) -> None:
    if not resource.counts_generation:
        return
    # Annotations of a Deployment are copied to its ReplicaSets, so they count as a change of it.
    parts = ["spec"] if "spec" in new else ["endpoints", "ports"]
    changed = any(new.get(part) != stored.get(part) for part in parts)
    if resource is DEPLOYMENTS:
        changed = changed or new["metadata"].get("annotations") != stored["metadata"].get("annotations")
    if changed:
        new["metadata"]["generation"] = stored["metadata"].get("generation", 0) + 1


def _expect_preconditions(resource: Resource, obj: Obj, options: DeleteOptions) -> None:
    metadata = obj["metadata"]
    pairs = (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    )
    for what, wanted, have in pairs:
        if wanted and wanted != have:
            problem = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}"
            raise errors.conflict(resource, name_of(obj), problem)


def _grace(resource: Resource, obj: Obj, options: DeleteOptions) -> int:
    if resource is not PODS:
        return 0
    # Nothing runs yet, or any more: there is nothing to end gracefully.
    if not obj["spec"].get("nodeName") or obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_seconds is not None:
        return max(options.grace_seconds, 0)
    if is_terminating(obj):
        return int(obj["metadata"].get("deletionGracePeriodSeconds", 0))
    return int(obj["spec"].get("terminationGracePeriodSeconds", 30))


def _finalizers_after(obj: Obj, options: DeleteOptions) -> list[str]:
    finalizers = [one for one in obj["metadata"].get("finalizers") or [] if one not in ("orphan", "foregroundDeletion")]
    if options.propagation == "Orphan":
        finalizers.append("orphan")
    elif options.propagation == "Foreground":
        finalizers.append("foregroundDeletion")
    return finalizers


def _may_vanish(resource: Resource, obj: Obj) -> bool:
    if resource is NAMESPACES:
        return False
    return resource is not PODS or obj["metadata"].get("deletionGracePeriodSeconds", 0) == 0
