"""The `handed_out` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.signals.signal import Reading
from bot.flow.ports import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, unreadable
from bot.probes.declaration import Probe
from bot.probes.live_edits import is_live, names_of


@dataclass(frozen=True)
class HandedOut:
    given: bool
    live: bool | None
    edits: str | None
    """Names of the flags and variables that the owner has to edit, with commas between."""


async def handed_out(request: ProbeRequest) -> Reading:
    """Whether the owner of the workload was given a patch of flags just now, and whether all replicas run it."""
    edits = request.context.handed_out
    if not edits:
        parts = HandedOut(given=False, live=None, edits=None)
        return answer(request, parts, missing=dict.fromkeys(("live", "edits"), "no patch of flags was handed out"))
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "config_maps"):
        return failed
    live = None if snapshot.workload is None else is_live(snapshot, snapshot.workload, edits)
    return answer(request, HandedOut(given=True, live=live, edits=names_of(edits)), missing={"live": NOT_THERE})


PROBE = Probe(
    name="handed_out",
    help="Whether the last change was handed out as a patch of flags to the workload's owner, and whether it runs.",
    answer=HandedOut,
    read=lambda sources: handed_out,
)
