"""The `rotation` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.rotation import rotation_of
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer
from bot.probes.declaration import Probe

READ_FROM = ("pods", "replica_sets", "endpoint_slices")


@dataclass(frozen=True)
class Rotation:
    in_rotation: float
    """Replicas that get requests; if the router cannot be read, those that are Ready and may."""
    ready: float
    wanted: float
    only: str
    """The one that is in rotation, if it is the only one."""
    readable: bool
    """Whether it can be read which replicas the router sends requests to."""


async def rotation(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    found = rotation_of(snapshot)
    if found is None:
        reasons = "; ".join(f"{source}: {why}" for source, why in snapshot.unreadable.items() if source in READ_FROM)
        return no_answer(request, reasons or NOT_THERE)
    out = sorted(set(found.ready) - set(found.in_rotation))
    detail = f"ready but out of rotation: {', '.join(out)}" if out else ""
    if found.unread:
        detail = f"rotation cannot be read: {found.unread}. Ready replicas count instead"
    parts = Rotation(
        in_rotation=float(len(found.in_rotation)),
        ready=float(len(found.ready)),
        wanted=float(found.wanted),
        only=found.in_rotation[0] if len(found.in_rotation) == 1 else "",
        readable=not found.unread,
    )
    return answer(request, parts, detail=detail)


PROBE = Probe(
    name="rotation",
    label="Replicas in rotation",
    help="How many replicas get requests (those that may, if the router cannot be read), are ready, and are wanted.",
    answer=Rotation,
    read=lambda sources: rotation,
)
