"""The least risk of each verb, as operations agreed on it; settings and playbooks may raise it, never lower it."""

from __future__ import annotations

from bot.domain.changes.plan import Risk

FLOORS: dict[str, Risk] = {
    "scale": "low",
    "scale_more": "medium",  # more than one replica, or fewer than now: a pod ends
    "scale_over_half": "high",  # more than half of the workload at once
    "canary": "medium",
    "rotate_canary": "medium",  # people get answers from flags that nobody has judged yet
    "promote": "high",  # as set_flags
    "remove_canary": "low",
    "set_flags": "high",  # restarts every replica
    "isolate_replica": "medium",
    "replace_replica": "medium",
    "replace_busy_replica": "high",  # streams would be cut
    "return_replica": "low",
    "rollback": "high",
    "restart": "high",  # restarts every replica
    "cordon_node": "medium",
    "uncordon_node": "medium",  # it may put people on bad silicon
    "drain_node": "high",
    "run_job": "low",  # no user sees it
    "probe_request": "low",
    "undo": "medium",  # going back must be easier than going on
}

TEAMS: dict[str, tuple[str, ...]] = {
    "uncordon_node": ("platform",),  # serving may want the GPU back; platform knows whether it is sound
    "last_accelerator": ("serving", "platform"),  # no surge, spare or replacement finds room afterwards
    "drain_others": ("platform", "serving"),  # other people's pods move
}
"""Whose approval a verb asks for besides its risk; one person of each."""


def scale_floor(now: int, wanted: int) -> Risk:
    if abs(wanted - now) * 2 > max(now, 2):
        return FLOORS["scale_over_half"]
    return FLOORS["scale"] if wanted == now + 1 else FLOORS["scale_more"]


def one_up(risk: Risk) -> Risk:
    """One level higher, as long as there is one."""
    return "medium" if risk == "low" else "high"
