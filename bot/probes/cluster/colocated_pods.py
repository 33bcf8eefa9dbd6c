"""Which other pods on the nodes of the crashed replicas may still hold GPU memory.

Kubernetes shows which pods hold GPUs, not how much memory. It does not show processes outside of it, so no result here
means that a GPU is free.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.capacity import accelerators_of
from bot.domain.cluster.objects import dig, is_finished, is_going_away, is_ready, name_of, namespace_of, uid_of
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class ColocatedPods:
    leaving: float
    others: float
    who: str


async def colocated_pods(request: ProbeRequest) -> Reading:
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "pods", "all_pods"):
        return failed
    troubled = [pod for pod in pods_asked_for(request, snapshot) if not is_ready(pod)]
    nodes = {dig(pod, "spec", "nodeName") for pod in troubled} - {None}
    own = {uid_of(pod) for pod in troubled}
    near = [pod for pod in snapshot.all_pods if dig(pod, "spec", "nodeName") in nodes and uid_of(pod) not in own]
    holding = [pod for pod in near if accelerators_of(pod) and not is_finished(pod)]
    leaving = [pod for pod in holding if is_going_away(pod)]
    who = ", ".join(sorted(f"{namespace_of(pod)}/{name_of(pod)}" for pod in holding))
    parts = ColocatedPods(float(len(leaving)), float(len(holding)), who[:600])
    where = ", ".join(sorted(map(str, nodes))) or "no node"
    return answer(request, parts, detail=f"with GPUs on {where}: {who or 'none that Kubernetes knows of'}"[:900])


PROBE = Probe(
    name="colocated_pods",
    label="Other pods beside it",
    help="Which other pods hold GPUs of the replicas' nodes, and which of them are leaving.",
    answer=ColocatedPods,
    read=lambda sources: colocated_pods,
)
