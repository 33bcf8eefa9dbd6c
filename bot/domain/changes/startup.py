"""How long this workload's own replicas took from start to Ready; a new replica gets twice that time, not a guess.

A replica that became unready later reports a time after its start-up, so only the lower half of the times counts.
Without a recorded time, a replica gets as long as its startup probe allows, if that is more than the default. What
has to be available, and not only Ready, gets the workload's minReadySeconds besides. Both count for an hour at most.
"""

from __future__ import annotations

from dataclasses import replace

from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Circumstance, Plan, Wait
from bot.domain.changes.steps.rollout_steps import HELD_SECONDS
from bot.domain.cluster.capacity import capacity_of
from bot.domain.cluster.node_autoscaler import ADDING_SECONDS
from bot.domain.cluster.objects import condition, dig, is_ready, seconds_of
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import pod_templates

TIMES = 2.0
MIN_SECONDS = 180.0
"""Minimum for replicas that start at once: a new one may have to pull its image first."""
MAX_SECONDS = 3600.0
"""The part of minReadySeconds, and of what a startup probe allows, that a wait makes up for."""
PROBE_PERIOD, PROBE_FAILURES = 10, 3
"""The defaults of Kubernetes."""
COUNTS_AVAILABLE = frozenset({"scaled", "rolled_out"})
"""Waits for new replicas that their controller counts as available."""
STARTS_REPLICAS = COUNTS_AVAILABLE | {"grown", "canary_ready", "replaced", "spare_ready", "surge_ready"}


def with_own_start_time(context: PlanContext, snapshot: ClusterSnapshot) -> PlanContext:
    """Returns the context with the workload's recorded start time, else with what its probes allow."""
    recorded = recorded_start_seconds(snapshot)
    startup = (
        max(context.startup_seconds, min(MAX_SECONDS, _probe_seconds(snapshot)))
        if recorded is None
        else max(MIN_SECONDS, TIMES * recorded)
    )
    return replace(context, startup_seconds=startup, min_ready_seconds=min(MAX_SECONDS, _min_ready_seconds(snapshot)))


def start_notes(plan: Plan, snapshot: ClusterSnapshot) -> tuple[Circumstance, ...]:
    """What the workload's own settings add to the waits of this plan; a warning if it is more than they allow for."""
    conditions = {step.condition for step in plan.steps if isinstance(step, Wait) and "ends" not in step.parameters}
    texts, is_beyond = [], False
    if (settles := _min_ready_seconds(snapshot)) and conditions & COUNTS_AVAILABLE:
        texts.append(f"a new replica counts once it has been Ready for {settles:.0f} s (minReadySeconds)")
        is_beyond = settles > MAX_SECONDS
    probe = _probe_seconds(snapshot) if recorded_start_seconds(snapshot) is None else 0.0
    if probe > MAX_SECONDS and conditions & STARTS_REPLICAS:
        texts.append(f"its startup probe lets an engine start for {probe:.0f} s")
        is_beyond = True
    if not texts:
        return ()
    text = "; ".join(texts)
    if is_beyond:
        text += f", but the wait allows for {MAX_SECONDS:.0f} s of it only: it ends as failed before that"
    return (Circumstance(name="start", grade="warning" if is_beyond else "note", text=text),)


def _min_ready_seconds(snapshot: ClusterSnapshot) -> float:
    """Returns 0 for a rollout that the bot held and abandoned: its next one puts that right."""
    seconds = float(dig(snapshot.workload, "spec", "minReadySeconds") or 0)
    return 0.0 if seconds == HELD_SECONDS else seconds


def _probe_seconds(snapshot: ClusterSnapshot) -> float:
    """Returns how long the kubelet lets the slowest container start; 0 without a startup probe."""
    containers = (
        container
        for each in pod_templates(snapshot.workload)
        for container in dig(each.template, "spec", "containers") or []
    )
    probes = [probe for container in containers if (probe := container.get("startupProbe"))]
    return max(map(_allowed_by, probes), default=0.0)


def _allowed_by(probe: Obj) -> float:
    period, failures = probe.get("periodSeconds") or PROBE_PERIOD, probe.get("failureThreshold") or PROBE_FAILURES
    return float((probe.get("initialDelaySeconds") or 0) + period * failures)


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
