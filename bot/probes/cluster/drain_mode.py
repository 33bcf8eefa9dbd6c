"""The `drain_mode` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.changes.drain import drain_mode
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer, unreadable
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class DrainMode:
    mode: str
    detail: str


async def drain(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "services", "pods"):
        return failed
    if snapshot.workload is None:
        return no_answer(request, NOT_THERE)
    found = drain_mode(snapshot)
    return answer(request, DrainMode(found.mode, found.text), detail=found.text)


PROBE = Probe(
    name="drain_mode",
    label="How replicas drain",
    help="How a replica can be emptied here: native, label, orphan or none.",
    answer=DrainMode,
    read=lambda sources: drain,
)
