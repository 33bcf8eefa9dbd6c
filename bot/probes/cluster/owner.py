"""The `owner` probe: who keeps the workload and its replica count, and whether an edit is reverted at once."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.owner import autoscaler_of, owner_of, owner_of_edit
from bot.domain.cluster.rollout import replicas_of
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class Owner:
    managed: bool
    reverts: bool
    reverts_replicas: bool
    tool: str
    name: str
    how: str
    autoscaler: str | None


async def owner(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    if snapshot.workload is None:
        return no_answer(request, NOT_THERE)
    found, scaler = owner_of(snapshot.workload, snapshot), autoscaler_of(snapshot)
    of_replicas = owner_of_edit(snapshot.workload, snapshot, {"replicas": replicas_of(snapshot.workload)})
    unreadable = snapshot.unreadable.get("autoscalers") or snapshot.unreadable.get("scaled_objects") or ""
    autoscaler = scaler.text if scaler else None if unreadable else ""
    if found is None:
        parts = Owner(
            managed=False, reverts=False, reverts_replicas=False, tool="", name="", how="", autoscaler=autoscaler
        )
    else:
        parts = Owner(
            managed=True,
            reverts=found.reverts,
            reverts_replicas=of_replicas is not None and of_replicas.reverts,
            tool=found.tool,
            name=found.text,
            how=found.how,
            autoscaler=autoscaler,
        )
    detail = "; ".join(filter(None, [found.text if found else "applied by hand", scaler.text if scaler else ""]))
    return answer(request, parts, missing={"autoscaler": unreadable}, detail=detail)


PROBE = Probe(
    name="owner",
    label="Owner of the workload",
    help="Who keeps the workload: Helm, Argo CD, Flux, KServe, an autoscaler; and whether an edit is reverted at once.",
    answer=Owner,
    read=lambda sources: owner,
)
