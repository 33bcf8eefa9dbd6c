"""The `handed_out` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, unreadable
from bot.probes.declaration import Probe
from bot.probes.live_edits import how_far, names_of


@dataclass(frozen=True)
class HandedOut:
    given: bool
    live: bool | None
    edits: str | None
    """Names of the flags and variables that the owner has to edit, with commas between."""
    detail: str | None
    """How many replicas run it."""


async def handed_out(request: ProbeRequest) -> Reading:
    """Whether the owner of the workload was given a patch of flags just now, and whether all replicas run it."""
    edits = request.context.handed_out
    if not edits:
        parts = HandedOut(given=False, live=None, edits=None, detail=None)
        missing = dict.fromkeys(("live", "edits", "detail"), "no patch of flags was handed out")
        return answer(request, parts, missing=missing)
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "config_maps"):
        return failed
    if snapshot.workload is None:
        parts = HandedOut(given=True, live=None, edits=names_of(edits), detail=None)
        return answer(request, parts, missing=dict.fromkeys(("live", "detail"), NOT_THERE))
    progress = how_far(snapshot, snapshot.workload, edits)
    return answer(request, HandedOut(given=True, live=progress.is_done, edits=names_of(edits), detail=progress.text))


PROBE = Probe(
    name="handed_out",
    label="Patch that was handed out",
    help="Whether the last change was handed out as a patch of flags to the workload's owner, and whether it runs.",
    answer=HandedOut,
    read=lambda sources: handed_out,
)
