"""The `capacity` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.capacity import capacity_of
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class Capacity:
    free_gpus: float
    replicas_that_fit: float
    can_grow: bool | None
    """Whether a Pending pod would get another node: a node autoscaler is there, and did not just refuse."""


async def capacity(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    if snapshot.workload is None:
        return no_answer(request, NOT_THERE)
    found = capacity_of(snapshot)
    if isinstance(found, str):
        return no_answer(request, found)
    nodes = ", ".join(f"{node}: {count} free" for node, count in sorted(found.free.items()))
    detail = "; ".join(part for part in (nodes or "no schedulable node", found.explanation) if part)
    parts = Capacity(float(found.free_total), float(found.replicas_that_fit), found.growth.is_possible)
    return answer(request, parts, missing={"can_grow": found.growth.unknown}, detail=detail)


PROBE = Probe(
    name="capacity",
    label="Room for replicas",
    help="GPUs that are free for one more replica, and how many fit, and whether a node can be added.",
    answer=Capacity,
    read=lambda sources: capacity,
)
