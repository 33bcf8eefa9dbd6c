"""`…/scale`: the replica count of a workload as a separate object; nothing else can be changed through it."""

from typing import Any

from bot.domain.cluster.json_patch import PatchError
from bot.sandbox.kubernetes import errors, schema
from bot.sandbox.kubernetes.errors import Cause
from bot.sandbox.kubernetes.registry import Options, Patch, Registry
from bot.sandbox.kubernetes.resources import Resource
from bot.sandbox.kubernetes.selectors import selector_text
from bot.sandbox.kubernetes.store import name_of

Obj = dict[str, Any]


def of(workload: Obj) -> Obj:
    metadata = workload["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept},
        # Go leaves out a zero.
        "spec": {"replicas": workload["spec"]["replicas"]} if workload["spec"]["replicas"] else {},
        "status": {
            "replicas": workload["status"].get("replicas", 0),
            "selector": workload["status"].get("hpaPodSelector") or selector_text(workload["spec"].get("selector", {})),
        },
    }


def patched(registry: Registry, resource: Resource, workload: Obj, patch: Patch, options: Options) -> Obj:
    try:
        wanted = patch(of(workload))
    except PatchError:
        raise errors.unusable_patch() from None
    # Unlike a PUT's, the uid in a patch's result is not compared.
    wanted["metadata"] = {**wanted.get("metadata", {}), "uid": workload["metadata"]["uid"]}
    return replaced(registry, resource, workload, wanted, options)


def replaced(registry: Registry, resource: Resource, workload: Obj, wanted: Obj, options: Options) -> Obj:
    try:
        decoded = schema.decode("V1Scale", wanted).obj
    except schema.MistypedError as error:
        raise errors.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from None
    replicas = decoded.get("spec", {}).get("replicas", 0)
    if replicas < 0:
        cause = Cause.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid("Scale", "autoscaling", name_of(workload), [cause])
    metadata = decoded.get("metadata", {})
    # The caller's version and uid of the object must still be current.
    believed = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}

    changed = {
        **workload,
        "metadata": {**workload["metadata"], **believed},
        "spec": {**workload["spec"], "replicas": replicas},
    }
    return of(registry.replace(resource, changed, options=options))
