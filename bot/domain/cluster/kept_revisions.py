"""The rollout history in the ControllerRevisions of a StatefulSet or LeaderWorkerSet.

A StatefulSet reuses an old revision when it is rolled back, so its creation time does not date it; its pods do. A
LeaderWorkerSet's controller deletes all revisions but the current one once a rollout is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import (
    CALL_ANNOTATION,
    annotations_of,
    created_at,
    dig,
    is_owned_by,
    labels_of,
    name_of,
)
from bot.domain.cluster.rollout import bare
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import REVISION_HASH_LABEL, kind_of, pod_templates


@dataclass(frozen=True)
class RolledOut:
    """One rollout. `before` is None if nothing came before it or, with `is_lost`, if that is not kept."""

    after: tuple[Obj, ...]
    """Pod templates, the serving pods' first."""
    before: tuple[Obj, ...] | None
    revision: int | None
    previous: int | None
    at: float | None
    by_bot: bool | None
    """None if there is a stamp of the bot that may be of a later call."""
    is_lost: bool = False


def rolled_out(snapshot: ClusterSnapshot, *, incident_id: str, opened_at: float) -> list[RolledOut]:
    """Returns rollouts, newest first; empty if no revisions are kept."""
    workload = snapshot.workload
    kept = [one for one in snapshot.revisions if workload is not None and is_owned_by(one, workload)]
    kept.sort(key=lambda one: int(one.get("revision") or 0), reverse=True)
    is_group = kind_of(workload) == "LeaderWorkerSet"
    found = []
    for one in kept:
        before = came_before(one, kept, lambda each: int(each.get("revision") or 0))
        number = int(one.get("revision") or 0)
        found.append(
            RolledOut(
                after=_templates(one, kind_of(workload)),
                before=_templates(before, kind_of(workload)) if before is not None else None,
                revision=number,
                previous=int(before.get("revision") or 0) if before is not None else None,
                at=_began(one, before, snapshot),
                by_bot=_whose(one, before, snapshot, f"{incident_id}/", opened_at),
                is_lost=is_group and before is None and number > 1,
            )
        )
    return found


def came_before(one: Obj, kept: Sequence[Obj], number: Callable[[Obj], int]) -> Obj | None:
    """Returns what ran before this revision. A rollback gives an earlier revision a new, higher number."""
    lower = [each for each in kept if number(each) < number(one)]
    candidates = sorted(lower, key=number)[-1:]
    if (made := created_at(one)) is not None:
        later = [each for each in kept if number(each) > number(one)]
        candidates += [each for each in later if (created_at(each) or math.inf) < made]
    return max(candidates, key=lambda each: created_at(each) or 0.0, default=None)


def _templates(revision: Obj, kind: str) -> tuple[Obj, ...]:
    as_workload = {"kind": kind, "spec": dig(revision, "data", "spec") or {}}
    return tuple(_plain(each.template) for each in pod_templates(as_workload))


def _plain(template: Obj) -> Obj:
    plain = {key: value for key, value in bare(template).items() if key != "$patch"}
    metadata = plain.get("metadata") or {}
    return {**plain, "metadata": {key: value for key, value in metadata.items() if value is not None}}


def _began(revision: Obj, before: Obj | None, snapshot: ClusterSnapshot) -> float | None:
    created = created_at(revision)
    earlier = created_at(before) if before is not None else None
    if created is None or earlier is None or created >= earlier:
        return created
    # Reused: its first pod since the revision in between started when this rollout began.
    own = [pod for pod in snapshot.pods if labels_of(pod).get(REVISION_HASH_LABEL) == name_of(revision)]
    since = [at for pod in own if (at := created_at(pod)) is not None and at >= earlier]
    return min(since, default=None)


def _whose(
    revision: Obj, before: Obj | None, snapshot: ClusterSnapshot, incident: str, opened_at: float
) -> bool | None:
    """Decides by the bot's stamp: a StatefulSet's revision copies the annotations at its creation."""
    created, present = created_at(revision), annotations_of(snapshot.workload or {}).get(CALL_ANNOTATION)
    if not present:
        return False
    if kind_of(snapshot.workload) == "LeaderWorkerSet":
        # Its revisions carry no annotations, and a later call may have put the stamp on the set.
        return True if present.startswith(incident) and created is not None and created >= opened_at else None
    earlier = created_at(before) if before is not None else None
    if created is not None and earlier is not None and created < earlier:
        return None
    stamp = annotations_of(revision).get(CALL_ANNOTATION)
    return bool(stamp) and (before is None or annotations_of(before).get(CALL_ANNOTATION) != stamp)
