"""What KEDA's validating webhook refuses; a dry run asks it too.

An API server reports a webhook's refusal as 403, not as 422.
"""

from typing import Any

from bot.sandbox.kubernetes.controllers.ownership import controller_of
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.resources import AUTOSCALERS, SCALED_OBJECTS, Resource
from bot.sandbox.kubernetes.store import Store, name_of, namespace_of

Obj = dict[str, Any]

WEBHOOK = "vscaledobject.kb.io"
MAX_BY_DEFAULT = 100
"""Replicas that KEDA allows where a ScaledObject sets no maximum."""


def admit(store: Store, resource: Resource, obj: Obj) -> None:
    """Raises the 403 of a webhook that denies `obj`."""
    if resource is SCALED_OBJECTS and (why := _why_not(store, obj)):
        raise ApiError(403, "Forbidden", f'admission webhook "{WEBHOOK}" denied the request: {why}', {})


def _why_not(store: Store, scaled: Obj) -> str:
    return _other_manager(store, scaled) or _bad_bounds(scaled["spec"])


def _other_manager(store: Store, scaled: Obj) -> str:
    namespace, target = namespace_of(scaled), _target(scaled)
    taken = f"the workload '{target[-1]}' of type '{'.'.join(target[:-1])}' is already managed by the"
    for other in store.list(SCALED_OBJECTS, namespace):
        if name_of(other) != name_of(scaled) and _target(other) == target:
            return f"{taken} ScaledObject '{name_of(other)}'"
    for scaler in store.list(AUTOSCALERS, namespace):
        owner = controller_of(scaler) or {}
        is_own = (owner.get("kind"), owner.get("name")) == (SCALED_OBJECTS.kind, name_of(scaled))
        if not is_own and _target(scaler) == target:
            return f"{taken} hpa '{name_of(scaler)}'"
    return ""


def _bad_bounds(spec: Obj) -> str:
    least = max(1, spec["minReplicaCount"]) if "minReplicaCount" in spec else 0
    most = spec.get("maxReplicaCount", MAX_BY_DEFAULT)
    if least > most:
        return f"MinReplicaCount={least} must be less than MaxReplicaCount={most}"
    idle = spec.get("idleReplicaCount")
    if idle is not None and idle >= least:
        return f"IdleReplicaCount={idle} must be less than MinReplicaCount={least}"
    return ""


def _target(scaler: Obj) -> tuple[str, str, str]:
    target = scaler["spec"]["scaleTargetRef"]
    return target.get("apiVersion", "apps/v1"), target.get("kind", "Deployment"), target["name"]
