"""A Deployment's status: counts, and the conditions that show whether a rollout progresses.

`Progressing` turns False only by its own deadline; counts alone never mark a rollout as failed.
"""

from typing import Any, Literal

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.pods import condition, with_condition
from bot.sandbox.kubernetes.controllers.rollout_bounds import bounds_of
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import DEPLOYMENTS
from bot.sandbox.kubernetes.store import name_of

Obj = dict[str, Any]
Truth = Literal["True", "False", "Unknown"]

COMPLETE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def report(registry: Registry, deployment: Obj, sets: list[Obj], new: Obj | None) -> float | None:
    """Writes the status; returns after how many seconds the progress deadline must be checked."""
    before = deployment["status"]
    status = _counted(deployment, sets, new)
    conditions: list[Obj] = before.get("conditions") or []
    availability, had = _availability(deployment, status), condition(deployment, "Available")
    # An unchanged condition keeps its times: a status that always changes would never settle.
    if had is None or (had["status"], had["reason"]) != (availability["status"], availability["reason"]):
        conditions = with_condition(conditions, availability)
    status["conditions"] = conditions
    progress = _progress(deployment, status, new)
    if progress is not None:
        status["conditions"] = with_condition(conditions, progress)
    # There is at most one failure: that of the new ReplicaSet, else of any other.
    failures = [condition(one, "ReplicaFailure") for one in ([new] if new is not None else []) + sets]
    failure = next(filter(None, failures), None)
    status["conditions"] = [one for one in status["conditions"] if one["type"] != "ReplicaFailure"]
    if failure is not None:
        status["conditions"].append(failure)
    registry.edit(DEPLOYMENTS, deployment, lambda one: one.update(status=status), "status")
    return _seconds_to_deadline(deployment, status)


def note_created(registry: Registry, deployment: Obj, new: Obj) -> None:
    """A new ReplicaSet restarts the progress deadline."""
    made = _condition("Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name_of(new)}"')

    def change(one: Obj) -> None:
        one["status"]["conditions"] = with_condition(one["status"].get("conditions") or [], made)

    registry.edit(DEPLOYMENTS, deployment, change, "status")


def is_complete(deployment: Obj, status: Obj | None = None) -> bool:
    status = deployment["status"] if status is None else status
    wanted = deployment["spec"]["replicas"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return seen and all(count == wanted for count in counts)


def _counted(deployment: Obj, sets: list[Obj], new: Obj | None) -> Obj:
    def total(key: str) -> int:
        return sum(one["status"].get(key, 0) for one in sets)

    replicas, available = total("replicas"), total("availableReplicas")
    status: Obj = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": replicas,
        "updatedReplicas": new["status"].get("replicas", 0) if new is not None else 0,
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(one["spec"]["replicas"] for one in sets) - available),
        "terminatingReplicas": total("terminatingReplicas"),
    }
    return {key: value for key, value in status.items() if value}


def _availability(deployment: Obj, status: Obj) -> Obj:
    if status.get("availableReplicas", 0) >= bounds_of(deployment).least_available:
        text = "Deployment has minimum availability."
        return _condition("Available", "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return _condition("Available", "False", "MinimumReplicasUnavailable", text)


def _progress(deployment: Obj, status: Obj, new: Obj | None) -> Obj | None:
    """The next `Progressing` condition; None leaves the present one alone."""
    now = condition(deployment, "Progressing")
    reason = now["reason"] if now is not None else ""
    if deployment["spec"].get("paused"):
        if reason in (PAUSED, TIMED_OUT):
            return None
        return _condition("Progressing", "Unknown", PAUSED, "Deployment is paused")
    if reason == PAUSED:
        return _condition("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")
    # A finished rollout that loses a pod is not a rollout: it makes no progress and misses no deadline.
    if reason == COMPLETE and status.get("replicas", 0) == status.get("updatedReplicas", 0):
        return None
    named = f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(deployment)}"'
    if is_complete(deployment, status):
        return _condition("Progressing", "True", COMPLETE, f"{named} has successfully progressed.")
    if _has_progressed(deployment["status"], status):
        return _condition("Progressing", "True", "ReplicaSetUpdated", f"{named} is progressing.")
    if now is not None and reason not in (COMPLETE, TIMED_OUT) and _seconds_left(deployment, now) <= 0:
        return _condition("Progressing", "False", TIMED_OUT, f"{named} has timed out progressing.")
    return None


def _has_progressed(before: Obj, after: Obj) -> bool:
    def of(status: Obj, key: str) -> int:
        return int(status.get(key, 0))

    old_before = of(before, "replicas") - of(before, "updatedReplicas")
    old_after = of(after, "replicas") - of(after, "updatedReplicas")
    grown = any(of(after, key) > of(before, key) for key in COUNTS[1:])
    return grown or old_after < old_before


def _seconds_left(deployment: Obj, progressing: Obj) -> float:
    deadline = float(deployment["spec"]["progressDeadlineSeconds"])
    return deadline - clock.seconds_since(progressing["lastUpdateTime"])


def _seconds_to_deadline(deployment: Obj, status: Obj) -> float | None:
    now = condition({"status": status}, "Progressing")
    if now is None or now["reason"] in (COMPLETE, TIMED_OUT, PAUSED) or is_complete(deployment, status):
        return None
    # A little late rather than early, since times have whole seconds.
    return max(0.0, _seconds_left(deployment, now)) + 0.05


def _condition(kind: str, truth: Truth, reason: str, message: str) -> Obj:
    stamp = clock.stamp()
    return {
        "type": kind,
        "status": truth,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": stamp,
    }
