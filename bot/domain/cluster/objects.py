"""Reads Kubernetes objects: names, labels, owners, conditions. Missing parts read as empty, not as an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from bot.domain.cluster.snapshot import Obj

DEFAULT_GRACE_SECONDS = 30.0
"""What Kubernetes gives a pod to end that does not say how long it needs."""
FIELD_MANAGER = "incident-bot"
"""Under this name the API server records what the bot wrote."""
INCIDENT_ANNOTATION = "incident-bot/incident"
CALL_ANNOTATION = "incident-bot/call"
ROTATION_ANNOTATION = "incident-bot/rotation-label"
"""On a pod that we took out of rotation: `key=value`, the original label."""
CONFIG_ANNOTATION = "incident-bot/config"
"""On a pod template whose ConfigMap we edited: a digest of the new text, so that the pods roll."""
RESTART_ANNOTATION = "incident-bot/restart"
"""On a pod template: the restart that we rolled out last."""
CANARY_LABEL = "incident-bot/canary"
TAKEN_FROM_LABEL = "incident-bot/taken-from"
"""On a pod that was released by its ReplicaSet: the uid of the workload that it was a replica of."""
JOB_LABEL = "incident-bot/job"
"""On a Job that we started: the incident."""
CANARY_OF_ANNOTATION = "incident-bot/canary-of"
DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
TEMPLATE_HASH_LABEL = "pod-template-hash"
ZONE_LABEL = "topology.kubernetes.io/zone"


class ObjectRef(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: str
    namespace: str = ""
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


def dig(obj: Any, *path: str | int) -> Any:
    """Returns the value at `path`, or None if a part of it is missing."""
    for part in path:
        if isinstance(part, str) and isinstance(obj, dict):
            obj = obj.get(part)
        elif isinstance(part, int) and isinstance(obj, list) and -len(obj) <= part < len(obj):
            obj = obj[part]
        else:
            return None
    return obj


def name_of(obj: Obj) -> str:
    return str(dig(obj, "metadata", "name") or "")


def namespace_of(obj: Obj) -> str:
    return str(dig(obj, "metadata", "namespace") or "")


def uid_of(obj: Obj) -> str:
    return str(dig(obj, "metadata", "uid") or "")


def labels_of(obj: Obj) -> dict[str, str]:
    return dig(obj, "metadata", "labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    return dig(obj, "metadata", "annotations") or {}


def ref_of(obj: Obj, kind: str) -> ObjectRef:
    """The caller passes `kind`, because items of a list do not carry it."""
    return ObjectRef(kind=kind, namespace=namespace_of(obj), name=name_of(obj), uid=uid_of(obj))


def last_seen_of(event: Obj) -> float:
    """When an Event last occurred; 0 without a date.

    A repeated event keeps its name and gets a new last time; the newer API has other fields for it.
    """
    times = (
        dig(event, "series", "lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
    )
    return next((at for time in times if (at := seconds_of(time)) is not None), 0.0)


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference of the controller that manages this object."""
    return next((o for o in dig(obj, "metadata", "ownerReferences") or [] if o.get("controller")), None)


def is_owned_by(obj: Obj, owner: Obj) -> bool:
    controller = controller_of(obj)
    return controller is not None and controller.get("uid") == uid_of(owner) != ""


def is_going_away(obj: Obj) -> bool:
    return bool(dig(obj, "metadata", "deletionTimestamp"))


def is_finished(pod: Obj) -> bool:
    """Whether it ended for good and holds no resources any more."""
    return dig(pod, "status", "phase") in ("Succeeded", "Failed")


def is_staying(pod: Obj) -> bool:
    """Whether it has neither ended nor begun to end."""
    return not is_finished(pod) and not is_going_away(pod)


def condition(obj: Obj, kind: str) -> Obj:
    return next((c for c in dig(obj, "status", "conditions") or [] if c.get("type") == kind), {})


def is_cordoned(node: Obj) -> bool:
    return bool(dig(node, "spec", "unschedulable"))


def grace_seconds(pod: Obj) -> float:
    """How long Kubernetes lets a pod, or one of this template, end by itself. A negative time counts as one second."""
    written = dig(pod, "spec", "terminationGracePeriodSeconds")
    if written is None:
        return DEFAULT_GRACE_SECONDS
    return float(written) if written >= 0 else 1.0


def is_ready(pod: Obj) -> bool:
    return condition(pod, "Ready").get("status") == "True" and not is_going_away(pod)


class Writer(NamedTuple):
    """An entry of an object's field managers: who wrote these fields last, and when."""

    manager: str
    time: str
    subresource: str
    fields: Obj
    operation: str
    """`Apply` if the API server merged it (server-side apply), else `Update`."""

    @property
    def at(self) -> float | None:
        return seconds_of(self.time)


def writers_of(obj: Obj) -> list[Writer]:
    entries = dig(obj, "metadata", "managedFields") or []
    return [
        Writer(
            str(each.get("manager") or ""), str(each.get("time") or ""), str(each.get("subresource") or ""),
            each.get("fieldsV1") or {}, str(each.get("operation") or ""),
        )
        for each in entries
    ]  # fmt: skip


def seconds_of(timestamp: str | None) -> float | None:
    """Returns epoch seconds of an RFC 3339 time; None for none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else None


def created_at(obj: Obj) -> float | None:
    """Returns epoch seconds; None if the object does not say it."""
    return seconds_of(dig(obj, "metadata", "creationTimestamp"))


def selects_plainly(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    """Matches a Service's selector: every pair must be there; an empty one selects nothing."""
    return bool(selector) and all(labels.get(key) == value for key, value in (selector or {}).items())


def selects(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """Matches a LabelSelector with matchLabels and matchExpressions; a missing one selects none, an empty one all."""
    if selector is None:
        return False
    plain = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return plain and all(holds(term, labels) for term in selector.get("matchExpressions") or [])


def holds(term: Obj, labels: Mapping[str, str]) -> bool:
    """Matches one requirement of a label selector or of a node affinity."""
    present, values = labels.get(term["key"]), term.get("values") or []
    match term["operator"]:
        case "In":
            return present in values
        case "NotIn":
            return present not in values
        case "Exists":
            return present is not None
        case "DoesNotExist":
            return present is None
        case "Gt" | "Lt":
            try:
                found, limit = int(present or ""), int(values[0])
            except ValueError:
                # The scheduler compares whole numbers; any other label does not match.
                return False
            return found > limit if term["operator"] == "Gt" else found < limit
    return False


def keys_of(selector: Obj | None) -> frozenset[str]:
    """Returns the label keys that a LabelSelector uses."""
    selector = selector or {}
    expressions: Iterable[Obj] = selector.get("matchExpressions") or []
    return frozenset(selector.get("matchLabels") or {}) | {term["key"] for term in expressions}
