"""The `rollout_progress` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.rollout import rollout_state
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, unreadable
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class RolloutProgress:
    exists: bool
    running: bool
    detail: str


async def rollout_progress(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "workload"):
        return failed
    if snapshot.workload is None:
        return answer(request, RolloutProgress(False, False, NOT_THERE), detail=NOT_THERE)
    state = rollout_state(snapshot.workload)
    detail = f"{state.updated} of {state.wanted} updated, {state.available} available"
    # Too few replicas, all of them new, mean a scale-out or a crash, not a rollout that an edit would overtake.
    is_running = not state.is_observed or state.updated < state.total
    return answer(request, RolloutProgress(True, is_running, detail), detail=detail)


PROBE = Probe(
    name="rollout_progress",
    label="Rollout under way",
    help="Whether the workload exists, and is being rolled out.",
    answer=RolloutProgress,
    read=lambda sources: rollout_progress,
)
