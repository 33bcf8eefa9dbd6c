"""How long this workload's own replicas took from start to Ready; a new replica gets twice that time, not a guess.

A replica that became unready later reports a time after its start-up, so only the lower half of the times counts.
"""

from __future__ import annotations

from dataclasses import replace

from bot.domain.changes.context import PlanContext
from bot.domain.cluster.capacity import capacity_of
from bot.domain.cluster.node_autoscaler import ADDING_SECONDS
from bot.domain.cluster.objects import condition, dig, is_ready, seconds_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

TIMES = 2.0
MIN_SECONDS = 180.0
"""Minimum for replicas that start at once: a new one may have to pull its image first."""


def with_own_start_time(context: PlanContext, snapshot: ClusterSnapshot) -> PlanContext:
    """Returns the context with the workload's recorded start time; unchanged if no replica reports one."""
    recorded = recorded_start_seconds(snapshot)
    if recorded is None:
        return context
    return replace(context, startup_seconds=max(MIN_SECONDS, TIMES * recorded))


def with_node_time(context: PlanContext, snapshot: ClusterSnapshot) -> PlanContext:
    """Returns the context with time for another node, where one replica more fits on no present node."""
    room = capacity_of(snapshot)
    if isinstance(room, str) or room.replicas_that_fit >= 1 or not room.growth.is_possible:
        return context
    return replace(context, startup_seconds=context.startup_seconds + ADDING_SECONDS)


def recorded_start_seconds(snapshot: ClusterSnapshot) -> float | None:
    """Returns the lower median over the running replicas; None if none reports a time."""
    known = sorted(seconds for pod in pods_of_workload(snapshot) if (seconds := start_seconds(pod)) is not None)
    return known[(len(known) - 1) // 2] if known else None


def start_seconds(pod: Obj) -> float | None:
    """Returns the time from the kubelet's start of the pod to Ready; None if not Ready or the engine was restarted."""
    if not is_ready(pod) or any(status.get("restartCount") for status in dig(pod, "status", "containerStatuses") or []):
        return None
    started = seconds_of(dig(pod, "status", "startTime"))
    ready = seconds_of(condition(pod, "Ready").get("lastTransitionTime"))
    return None if started is None or ready is None or ready < started else ready - started
