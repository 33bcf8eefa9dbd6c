"""When a revision was rolled out, and whether the bot made it."""

from __future__ import annotations

from bot.domain.cluster.objects import CALL_ANNOTATION, annotations_of, condition, created_at, seconds_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.flow.ports.readings import ProbeRequest

REUSED_ANNOTATION = "deployment.kubernetes.io/revision-history"


def rolled_out_at(replica_set: Obj, snapshot: ClusterSnapshot, *, is_current: bool) -> float | None:
    created = created_at(replica_set)
    if REUSED_ANNOTATION not in annotations_of(replica_set):
        return created
    # A rollback reuses an old ReplicaSet; only the Deployment has the time.
    assert snapshot.workload is not None
    progress = condition(snapshot.workload, "Progressing")
    return seconds_of(progress.get("lastUpdateTime")) if is_current else None


def is_ours(replica_set: Obj, before: Obj | None, request: ProbeRequest) -> bool:
    """Whether one of our calls made this revision: its stamp is new with it.

    The controller copies the Deployment's annotations to the current ReplicaSet at any time, so a later call of this
    incident may have stamped a revision that was there before the incident.
    """
    stamp = annotations_of(replica_set).get(CALL_ANNOTATION)
    if not stamp or (before is not None and annotations_of(before).get(CALL_ANNOTATION) == stamp):
        return False
    created = created_at(replica_set) or 0.0
    was_there = created < request.context.opened_at and REUSED_ANNOTATION not in annotations_of(replica_set)
    return not (was_there and stamp.startswith(f"{request.context.incident_id}/"))
