"""The `own_changes` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.incidents.run import Run
from bot.domain.signals.signal import Reading
from bot.flow.incident_history import SOURCE
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer
from bot.probes.declaration import Probe
from bot.probes.incidents.present_run import ReadPresentRun


@dataclass(frozen=True)
class OwnChanges:
    in_place: bool
    titles: str
    """With semicolons between."""


def _own_changes(request: ProbeRequest, run: Run) -> Reading:
    """Whether a change of this incident is in place, so that it could be taken back."""
    titles = "; ".join(run.in_place)
    return answer(request, OwnChanges(bool(titles), titles), detail=f"in place: {titles or 'nothing'}", source=SOURCE)


PROBE = Probe(
    name="own_changes",
    label="Changes in place",
    help="Whether a change of this incident is in place, and which ones.",
    answer=OwnChanges,
    read=lambda sources: ReadPresentRun(sources.runs, _own_changes),
)
