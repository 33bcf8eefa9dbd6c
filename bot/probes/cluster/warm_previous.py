"""The `warm_previous` probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.domain.cluster.objects import CANARY_LABEL, dig, is_ready, labels_of, name_of, uid_of
from bot.domain.cluster.rollout import replica_sets_of
from bot.domain.cluster.rotation import is_in_rotation
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer, unreadable
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class WarmPrevious:
    ready: float


async def warm_previous(request: ProbeRequest) -> Reading:
    """How many replicas of an earlier revision, or of another workload behind the same Services, are Ready now."""
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "pods", "replica_sets", "services", "endpoint_slices"):
        return failed
    if snapshot.workload is None:
        return no_answer(request, NOT_THERE)
    older = {uid_of(one) for one in replica_sets_of(snapshot)[1:]}
    warm = [
        pod
        for pod in snapshot.pods
        if not _is_canary(pod) and is_ready(pod) and {o["uid"] for o in _owners(pod)} & older
    ]
    strangers = [pod for pod in _strangers(snapshot) if not _is_canary(pod)]
    detail = ", ".join(sorted(name_of(pod) for pod in (*warm, *strangers)))
    return answer(request, WarmPrevious(float(len(warm) + len(strangers))), detail=detail or "none")


def _is_canary(pod: Obj) -> bool:
    """Of any incident: those of the others are not among the snapshot's own pods."""
    return CANARY_LABEL in labels_of(pod)


def _owners(pod: Obj) -> list[dict[str, Any]]:
    return dig(pod, "metadata", "ownerReferences") or []


def _strangers(snapshot: ClusterSnapshot) -> list[Obj]:
    """Ready pods of other workloads behind the same Services: the stable part of a progressive delivery."""
    known = {uid_of(pod) for pod in snapshot.pods}
    selectors = [dig(service, "spec", "selector") or {} for service in snapshot.services]
    return [
        pod
        for pod in snapshot.all_pods
        if uid_of(pod) not in known
        and dig(pod, "metadata", "namespace") == dig(snapshot.workload or {}, "metadata", "namespace")
        and is_ready(pod)
        and is_in_rotation(pod, snapshot)
        and any(selector and selector.items() <= labels_of(pod).items() for selector in selectors)
    ]


PROBE = Probe(
    name="warm_previous",
    label="Replicas of before",
    help="How many replicas of the revision before are still ready.",
    answer=WarmPrevious,
    read=lambda sources: warm_previous,
)
