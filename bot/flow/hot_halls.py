"""While a hall is too hot, no incident starts more replicas in its zone: added load heats the next rack.

The zone is that of the `thermal_scope` probe, as an open incident read it last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.domain.changes.plan import Plan
from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.objects import ZONE_LABEL, labels_of
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.incidents.run import Run
from bot.domain.incidents.subjects import FACILITY, HOT_HALL, hot_halls
from bot.flow.incident_history import PastRuns, runs_since


async def refused_by_heat(runs: PastRuns, run: Run, plan: Plan, snapshot: ClusterSnapshot, *, at: float) -> str:
    """Why this plan may not add a replica now; empty if it adds none, or none that could land in a hot hall."""
    if not _adds_replicas(plan, snapshot):
        return ""
    everywhere = capacity_of(snapshot)
    needs_node = isinstance(everywhere, Capacity) and everywhere.replicas_that_fit < 1 and everywhere.growth.is_possible
    for zone, incident in (await hot_zones(runs, run, at=at)).items():
        nodes = tuple(node for node in snapshot.nodes if labels_of(node).get(ZONE_LABEL, "") == zone)
        room = capacity_of(replace(snapshot, nodes=nodes))
        if isinstance(room, str) or room.replicas_that_fit >= 1:
            return f"{_hall(zone)} is too hot ({incident}), and a new replica could land there"
        if needs_node:
            return f"{_hall(zone)} is too hot ({incident}), and the node that is added could stand there"
    return ""


def _hall(zone: str) -> str:
    return f"the hall of zone {zone}" if zone else "the hall"


async def hot_zones(runs: PastRuns, run: Run, *, at: float) -> Mapping[str, str]:
    """Zone to another open incident of this cluster that found its hall too hot; nodes without a zone are one hall."""
    found: dict[str, str] = {}
    for other in await runs_since(runs, at, about=HOT_HALL, mentioning=FACILITY):
        is_here = other.target.cluster == run.target.cluster and other.incident_id != run.incident_id
        if other.is_open and is_here:
            found |= dict.fromkeys(hot_halls(other), other.incident_id)
    return found


def _adds_replicas(plan: Plan, snapshot: ClusterSnapshot) -> bool:
    if plan.verb == "canary":
        return True
    written = [op for call in plan.calls if call.subresource == "scale" for op in call.body if op["op"] != "test"]
    undone = [op.get("value") for op in written] if plan.verb == "undo" else []
    wanted = [plan.choices.get("to")] if plan.verb == "scale" else undone
    return any(isinstance(to, int) and to > replicas_of(snapshot.workload or {}) for to in wanted)
