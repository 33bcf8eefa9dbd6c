"""The `alert_again` probe. A parked watch that reads it receives the new alerts of its target."""

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
class AlertAgain:
    fires: bool
    names: str


def _alert_again(request: ProbeRequest, run: Run) -> Reading:
    """Whether an alert of this incident has fired since its present state was entered, and still does.

    An alert that was firing before, and is only repeated, does not count.
    """
    new = {a.name for a in run.alerts.values() if a.status == "firing" and a.received_at >= run.visit.entered_at}
    names = ", ".join(sorted(new))
    return answer(request, AlertAgain(bool(new), names), detail=f"fires again: {names or 'none'}", source=SOURCE)


PROBE = Probe(
    name="alert_again",
    label="The alert again",
    help="Whether an alert of this incident has fired since this state was entered.",
    answer=AlertAgain,
    read=lambda sources: ReadPresentRun(sources.runs, _alert_again),
)
