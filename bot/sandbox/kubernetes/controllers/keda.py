"""KEDA's operator without triggers: a ScaledObject has its own HorizontalPodAutoscaler, and it reverts edits of it.

As KEDA 2.18 does: `paused` deletes the autoscaler and `paused-replicas` scales the workload first; `paused-scale-in`
and `paused-scale-out` only disable one direction.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes.admission import MAX_BY_DEFAULT
from bot.sandbox.kubernetes.controllers.autoscaler import SCALABLE
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import controller_of, reference_to
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import AUTOSCALERS, SCALED_OBJECTS
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of

Obj = dict[str, Any]

NAME_LABEL = "scaledobject.keda.sh/name"
ANNOTATION = "autoscaling.keda.sh/"
FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""What Go's ParseBool takes for false. Any other value of a pausing annotation pauses."""


class Keda:
    name = "keda"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is SCALED_OBJECTS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is AUTOSCALERS and (owner := controller_of(change.obj)) is not None:
            yield namespace_of(change.obj), owner["name"]

    def reconcile(self, key: Key) -> float | None:
        scaled = self._store.find(SCALED_OBJECTS, *key)
        if scaled is None or is_terminating(scaled):
            return None
        name = name_of(scaled)
        scaled = self._registry.edit(
            SCALED_OBJECTS, scaled, lambda one: one["metadata"].setdefault("labels", {}).update({NAME_LABEL: name})
        )
        replicas = _annotation(scaled, "paused-replicas")
        if replicas is None and not _is_on(scaled, "paused"):
            self._keep_autoscaler(scaled)
            self._note(scaled, {"hpaName": f"keda-hpa-{name}"})
            return None
        if (present := self._store.find(AUTOSCALERS, key[0], f"keda-hpa-{name}")) is not None:
            self._registry.delete(AUTOSCALERS, present)
        if replicas is not None:
            self._scale(scaled, int(replicas))
        self._note(scaled, {"pausedReplicaCount": int(replicas)} if replicas is not None else {})
        return None

    def _keep_autoscaler(self, scaled: Obj) -> None:
        spec, name = scaled["spec"], f"keda-hpa-{name_of(scaled)}"
        wanted = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]},
            # Zero replicas are KEDA's own decision; its autoscaler begins at one.
            "minReplicas": max(1, spec.get("minReplicaCount", 0)),
            "maxReplicas": spec.get("maxReplicaCount", MAX_BY_DEFAULT),
        }
        if behavior := _behavior(scaled):
            wanted["behavior"] = behavior
        labels = {
            "app.kubernetes.io/name": name,
            "app.kubernetes.io/part-of": name_of(scaled),
            "app.kubernetes.io/managed-by": "keda-operator",
            **scaled["metadata"]["labels"],
        }
        metadata = {"labels": labels, "annotations": dict(scaled["metadata"].get("annotations") or {})}
        present = self._store.find(AUTOSCALERS, namespace_of(scaled), name)
        if present is None:
            owners = [reference_to(SCALED_OBJECTS, scaled)]
            body = {"metadata": {"name": name, "ownerReferences": owners, **metadata}, "spec": wanted}
            self._registry.create(AUTOSCALERS, namespace_of(scaled), body)
        else:
            self._registry.edit(
                AUTOSCALERS, present, lambda one: one.update(spec=wanted, metadata={**one["metadata"], **metadata})
            )

    def _scale(self, scaled: Obj, replicas: int) -> None:
        target = scaled["spec"]["scaleTargetRef"]
        row = SCALABLE.get(target.get("kind", "Deployment"))
        workload = self._store.find(row, namespace_of(scaled), target["name"]) if row is not None else None
        if row is not None and workload is not None:
            self._registry.edit(row, workload, lambda one: one["spec"].update(replicas=replicas))

    def _note(self, scaled: Obj, status: Obj) -> None:
        self._registry.edit(SCALED_OBJECTS, scaled, lambda one: one.update(status=status), part="status")


def _behavior(scaled: Obj) -> Obj:
    configured = (scaled["spec"].get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {}
    behavior: Obj = {**(configured.get("behavior") or {})}
    for annotation, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if _is_on(scaled, annotation):
            behavior[direction] = {**behavior.get(direction, {}), "selectPolicy": "Disabled"}
    return behavior


def _is_on(scaled: Obj, annotation: str) -> bool:
    value = _annotation(scaled, annotation)
    return value is not None and value not in FALSE


def _annotation(scaled: Obj, name: str) -> str | None:
    value: str | None = (scaled["metadata"].get("annotations") or {}).get(f"{ANNOTATION}{name}")
    return value
