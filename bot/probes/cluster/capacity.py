"""The `capacity` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.capacity import capacity_of
from bot.domain.signals.signal import Reading
from bot.flow.ports import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class Capacity:
    free_gpus: float
    replicas_that_fit: float


async def capacity(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    if snapshot.workload is None:
        return no_answer(request, NOT_THERE)
    found = capacity_of(snapshot)
    if isinstance(found, str):
        return no_answer(request, found)
    nodes = ", ".join(f"{node}: {count} free" for node, count in sorted(found.free.items()))
    detail = "; ".join(part for part in (nodes or "no schedulable node", found.said) if part)
    return answer(request, Capacity(float(found.free_total), float(found.replicas_that_fit)), detail=detail)


PROBE = Probe(
    name="capacity",
    help="GPUs that are free for one more replica, and how many fit.",
    answer=Capacity,
    read=lambda sources: capacity,
)
