"""The state of a pod for controllers: is it ready, does it count, since when."""

from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.store import is_terminating

Obj = dict[str, Any]


def condition(obj: Obj, kind: str) -> Obj | None:
    conditions: list[Obj] = obj.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), None)


def is_ready(pod: Obj) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready["status"] == "True"


def is_terminal(pod: Obj) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    """It counts for its ReplicaSet: neither ended nor terminating."""
    return not is_terminal(pod) and not is_terminating(pod)


def seconds_until_available(pod: Obj, min_ready_seconds: int) -> float | None:
    """0 if available now; None while not ready, since the time is unknown."""
    ready = condition(pod, "Ready")
    if ready is None or ready["status"] != "True":
        return None
    if not min_ready_seconds:
        return 0.0
    since = ready.get("lastTransitionTime")
    return max(0.0, min_ready_seconds - clock.seconds_since(since)) if since else float(min_ready_seconds)


def with_condition(conditions: list[Obj], new: Obj) -> list[Obj]:
    """Replaces the condition of the same type; its transition time moves only when its status does."""
    before = next((one for one in conditions if one["type"] == new["type"]), None)
    if before is not None and before["status"] == new["status"]:
        new = {**new, "lastTransitionTime": before.get("lastTransitionTime", clock.stamp())}
    return [*(one for one in conditions if one["type"] != new["type"]), new]
