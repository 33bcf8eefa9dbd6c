"""The least risk of each verb, as operations agreed on it; settings and playbooks may raise it, never lower it."""

from __future__ import annotations

from bot.domain.change.plan import Risk

FLOORS: dict[str, Risk] = {
    "scale": "low",
    "scale_more": "medium",  # more than one replica, or fewer than now: a pod ends
    "scale_over_half": "high",  # more than half of the workload at once
    "canary": "medium",
    "remove_canary": "low",
    "set_flags": "high",  # restarts every replica
    "isolate_replica": "medium",
    "replace_replica": "medium",
    "replace_busy_replica": "high",  # streams would be cut
    "return_replica": "low",
    "rollback": "high",
    "undo": "medium",  # going back must be easier than going on
}


def scale_floor(now: int, wanted: int) -> Risk:
    if abs(wanted - now) * 2 > max(now, 2):
        return FLOORS["scale_over_half"]
    return FLOORS["scale"] if wanted == now + 1 else FLOORS["scale_more"]
