"""How long this workload's own replicas took from their start to Ready; a new one is given twice that, not a guess.

A replica that became unready later says a later moment than its start-up. So the lower half of what they say counts.
"""

from __future__ import annotations

from dataclasses import replace

from bot.domain.changes.context import PlanContext
from bot.domain.cluster.objects import condition, dig, is_ready, seconds_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

TIMES = 2.0
MIN_SECONDS = 180.0
"""An image that has to be pulled first takes this long for a replica that starts in no time."""


def with_own_start_time(context: PlanContext, snapshot: ClusterSnapshot) -> PlanContext:
    """The context with the workload's recorded start time; unchanged where none of its replicas tells."""
    recorded = recorded_start_seconds(snapshot)
    if recorded is None:
        return context
    return replace(context, startup_seconds=max(MIN_SECONDS, TIMES * recorded))


def recorded_start_seconds(snapshot: ClusterSnapshot) -> float | None:
    """The lower median over the replicas that run; None when none of them tells."""
    known = sorted(seconds for pod in pods_of_workload(snapshot) if (seconds := start_seconds(pod)) is not None)
    return known[(len(known) - 1) // 2] if known else None


def start_seconds(pod: Obj) -> float | None:
    """From the kubelet's start of the pod to Ready; None for one that is not Ready or whose engine was restarted."""
    if not is_ready(pod) or any(status.get("restartCount") for status in dig(pod, "status", "containerStatuses") or []):
        return None
    started = seconds_of(dig(pod, "status", "startTime"))
    ready = seconds_of(condition(pod, "Ready").get("lastTransitionTime"))
    return None if started is None or ready is None or ready < started else ready - started
