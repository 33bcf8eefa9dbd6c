"""Rolling updates: their strategy, whether one is under way, who runs which revision."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from dataclasses import dataclass

from bot.domain.change.json_patch import FieldEdit, edit_of
from bot.domain.change.objects import (
    REVISION_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    annotations_of,
    controller_of,
    dig,
    is_owned_by,
    uid_of,
)
from bot.domain.change.rotation import pods_of_workload
from bot.domain.change.world import Obj, World

DEFAULT_SHARE = "25%"
TEMPLATE = "/spec/template"


@dataclass(frozen=True)
class Strategy:
    kind: str
    max_surge: int
    max_unavailable: int

    @property
    def keeps_capacity(self) -> bool:
        return self.kind == "RollingUpdate" and self.max_unavailable == 0 and self.max_surge >= 1


def strategy_of(workload: Obj) -> Strategy:
    """Percentages resolved as the controller does: surge rounds up, unavailable rounds down."""
    replicas = replicas_of(workload)
    kind = dig(workload, "spec", "strategy", "type") or "RollingUpdate"
    rolling = dig(workload, "spec", "strategy", "rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", DEFAULT_SHARE), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", DEFAULT_SHARE), replicas, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Strategy(kind, surge, unavailable)


def _share(value: int | str, of: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = float(value.removesuffix("%")) * of / 100
    return math.ceil(share) if up else math.floor(share)


def capacity_keeping_edits(workload: Obj) -> list[FieldEdit]:
    """What to change in the strategy so that no old replica ends before a new one is Ready; nothing when it is so."""
    strategy = strategy_of(workload)
    if strategy.keeps_capacity:
        return []
    if dig(workload, "spec", "strategy", "rollingUpdate") is None:
        wanted = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        return [edit_of(workload, "/spec/strategy", wanted)]
    edits = [edit_of(workload, "/spec/strategy/rollingUpdate/maxUnavailable", 0)]
    if strategy.max_surge < 1:
        edits.append(edit_of(workload, "/spec/strategy/rollingUpdate/maxSurge", 1))
    return [edit for edit in edits if edit.before != edit.after]


def replicas_of(workload: Obj) -> int:
    replicas = dig(workload, "spec", "replicas")
    return 1 if replicas is None else int(replicas)


def revision_of(obj: Obj) -> int | None:
    revision = annotations_of(obj).get(REVISION_ANNOTATION)
    return int(revision) if revision and revision.isdigit() else None


@dataclass(frozen=True)
class RolloutState:
    """The Deployment's own account of its rollout."""

    wanted: int
    updated: int
    available: int
    total: int
    is_observed: bool

    @property
    def is_complete(self) -> bool:
        return self.is_observed and self.updated == self.available == self.total == self.wanted


def rollout_state(workload: Obj) -> RolloutState:
    status = dig(workload, "status") or {}
    return RolloutState(
        wanted=replicas_of(workload),
        updated=int(status.get("updatedReplicas") or 0),
        available=int(status.get("availableReplicas") or 0),
        total=int(status.get("replicas") or 0),
        is_observed=int(status.get("observedGeneration") or 0) >= int(dig(workload, "metadata", "generation") or 0),
    )


def bare(template: Obj | None) -> Obj:
    """A pod template without what the ReplicaSet controller adds, to compare or to write back."""
    cleaned = copy.deepcopy(template or {})
    labels = dig(cleaned, "metadata", "labels")
    if isinstance(labels, dict):
        labels.pop(TEMPLATE_HASH_LABEL, None)
    return cleaned


def comparable(template: Obj | None) -> Obj:
    """Without the controller's label and empty metadata, so that equal ones are equal."""
    cleaned = bare(template)
    metadata = cleaned.get("metadata")
    if isinstance(metadata, dict):
        cleaned["metadata"] = {key: value for key, value in metadata.items() if value not in (None, {})}
    return cleaned


def same_template(one: Obj | None, other: Obj | None) -> bool:
    return comparable(one) == comparable(other)


def template_digest(template: Obj | None) -> str:
    text = json.dumps(comparable(template), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def replica_sets_of(world: World) -> list[Obj]:
    """The workload's own ReplicaSets, newest revision first."""
    if world.workload is None:
        return []
    owned = [rs for rs in world.replica_sets if is_owned_by(rs, world.workload)]
    return sorted(owned, key=lambda rs: revision_of(rs) or 0, reverse=True)


def current_replica_set(world: World) -> Obj | None:
    template = dig(world.workload, "spec", "template")
    return next((rs for rs in replica_sets_of(world) if same_template(dig(rs, "spec", "template"), template)), None)


def pods_of_revision(world: World, replica_set: Obj | None) -> tuple[list[Obj], list[Obj]]:
    """The workload's pods: those of this ReplicaSet, and all others."""
    uid = uid_of(replica_set) if replica_set else "none"
    mine: list[Obj] = []
    others: list[Obj] = []
    for pod in pods_of_workload(world):
        (mine if (controller_of(pod) or {}).get("uid") == uid else others).append(pod)
    return mine, others
