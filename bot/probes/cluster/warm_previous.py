"""The `warm_previous` probe."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.objects import CANARY_LABEL, controller_of, dig, is_ready, labels_of, name_of, uid_of
from bot.domain.cluster.rollout import new_and_old_pods, replica_sets_of, revisions_of
from bot.domain.cluster.rotation import is_in_rotation
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import NUMBERED, REVISION_HASH_LABEL, kind_of
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import NOT_THERE, answer, no_answer, unreadable
from bot.probes.declaration import Probe


@dataclass(frozen=True)
class WarmPrevious:
    ready: float | None
    revision: float | None
    """The one earlier revision of the workload that has replicas that are Ready; 0 if none has, or several have."""


async def warm_previous(request: ProbeRequest) -> Reading:
    """How many replicas of an earlier revision, or of another workload behind the same Services, are Ready now."""
    snapshot = await request.snapshot()
    if failed := unreadable(request, snapshot, "pods"):
        return failed
    if snapshot.workload is None:
        return no_answer(request, NOT_THERE)
    unread = unreadable(request, snapshot, "replica_sets", "services", "endpoint_slices")
    warm = _warm(snapshot)
    parts = WarmPrevious(ready=None if unread else float(len(warm)), revision=_revision_beside_newest(snapshot))
    missing = {"ready": unread.unknown if unread else "", "revision": "the revisions of its pods were not read"}
    return answer(request, parts, missing=missing, detail=", ".join(sorted(map(name_of, warm))) or "none")


def _warm(snapshot: ClusterSnapshot) -> list[Obj]:
    older = {uid_of(one) for one in replica_sets_of(snapshot)[1:]}
    own = [pod for pod in snapshot.pods if is_ready(pod) and (controller_of(pod) or {}).get("uid") in older]
    return [pod for pod in (*own, *_strangers(snapshot)) if not _is_canary(pod)]


def _revision_beside_newest(snapshot: ClusterSnapshot) -> float | None:
    is_numbered = kind_of(snapshot.workload) in NUMBERED
    parted = new_and_old_pods(snapshot)
    if parted is None or ("revisions" if is_numbered else "replica_sets") in snapshot.unreadable:
        return None
    kept = {one.name: one.number for one in revisions_of(snapshot)}
    names = {uid_of(one): name_of(one) for one in replica_sets_of(snapshot)}
    found = set()
    for pod in parted[1]:
        if is_ready(pod):
            name = labels_of(pod).get(REVISION_HASH_LABEL) or names.get((controller_of(pod) or {}).get("uid", ""), "")
            found.add(kept.get(name, 0))
    return float(found.pop()) if len(found) == 1 else 0.0


def _is_canary(pod: Obj) -> bool:
    """Of any incident: those of the others are not among the snapshot's own pods."""
    return CANARY_LABEL in labels_of(pod)


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
    help="How many replicas of an earlier revision are still ready, and which revision it is.",
    answer=WarmPrevious,
    read=lambda sources: warm_previous,
)
