"""Rolling updates: their strategy, whether one is in progress, which pod runs which revision."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.domain.cluster.json_patch import FieldEdit, edit_of
from bot.domain.cluster.objects import (
    CONFIG_ANNOTATION,
    RESTART_ANNOTATION,
    REVISION_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    annotations_of,
    condition,
    controller_of,
    dig,
    is_owned_by,
    labels_of,
    name_of,
    uid_of,
)
from bot.domain.cluster.rotation import pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import NUMBERED, REVISION_HASH_LABEL, kind_of, pod_templates, serves, template_of

DEFAULT_SHARE = "25%"
TEMPLATE = "/spec/template"
MARKS = (RESTART_ANNOTATION, CONFIG_ANNOTATION)
"""Annotations of a template that may be all that a rollout of ours changes."""


@dataclass(frozen=True)
class Strategy:
    kind: str
    max_surge: int
    max_unavailable: int

    @property
    def keeps_capacity(self) -> bool:
        return self.kind == "RollingUpdate" and self.max_unavailable == 0 and self.max_surge >= 1


def strategy_of(workload: Obj) -> Strategy:
    """Resolves percentages as the controller does: surge rounds up, unavailable rounds down."""
    replicas = replicas_of(workload)
    if kind_of(workload) == "StatefulSet":
        most = dig(workload, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable") or 1
        return Strategy(
            dig(workload, "spec", "updateStrategy", "type") or "RollingUpdate",
            max_surge=0,
            max_unavailable=max(1, _share(most, replicas, up=True)),
        )
    if kind_of(workload) == "LeaderWorkerSet":
        rolling = dig(workload, "spec", "rolloutStrategy", "rollingUpdateConfiguration") or {}
        surge = _share(rolling.get("maxSurge", 0), replicas, up=True)
        return Strategy("RollingUpdate", surge, _share(rolling.get("maxUnavailable", 1), replicas, up=False))
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
    """Returns strategy edits so that no old replica ends before a new one is Ready; empty if it already is so."""
    strategy = strategy_of(workload)
    # Numbered replicas end before their successors start; there is hardly ever capacity for another whole group.
    if strategy.keeps_capacity or kind_of(workload) in NUMBERED:
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
    """The workload's rollout, from its own status."""

    wanted: int
    updated: int
    available: int
    total: int
    is_observed: bool
    has_ended: bool
    """Whether the controller has reported the end of the latest rollout, or that it waits no longer for Ready replicas.

    That stays so when replicas crash later.
    """

    @property
    def is_complete(self) -> bool:
        """Whether every replica runs the present template and is available."""
        return self.is_over and self.available == self.wanted

    @property
    def is_replaced(self) -> bool:
        """Whether every replica runs the present template, Ready or not."""
        return self.is_observed and self.updated == self.total == self.wanted

    @property
    def is_over(self) -> bool:
        """Whether nothing is being rolled out, although replicas may crash or wait for room."""
        return self.is_replaced and (self.has_ended or self.available == self.wanted)


def rollout_state(workload: Obj) -> RolloutState:
    status = dig(workload, "status") or {}
    generation = int(dig(workload, "metadata", "generation") or 0)
    # A LeaderWorkerSet counts only Ready groups, and older versions of it do not report the observed generation.
    available = "readyReplicas" if kind_of(workload) == "LeaderWorkerSet" else "availableReplicas"
    default = generation if kind_of(workload) == "LeaderWorkerSet" else 0
    return RolloutState(
        wanted=replicas_of(workload),
        updated=int(status.get("updatedReplicas") or 0),
        available=int(status.get(available) or 0),
        total=int(status.get("replicas") or 0),
        is_observed=int(status.get("observedGeneration") or default) >= generation,
        has_ended=_has_ended(workload),
    )


def _has_ended(workload: Obj) -> bool:
    """A LeaderWorkerSet does not report it."""
    if kind_of(workload) == "StatefulSet":
        newest = dig(workload, "status", "updateRevision")
        return newest is not None and newest == dig(workload, "status", "currentRevision")
    return condition(workload, "Progressing").get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded")


def bare(template: Obj | None) -> Obj:
    """Returns a copy of a pod template without the ReplicaSet controller's additions, to edit or to restore."""
    return copy.deepcopy(_unhashed(template or {}))


def _unhashed(template: Obj) -> Obj:
    """Not to be changed: it shares parts with the template."""
    labels = dig(template, "metadata", "labels")
    if not isinstance(labels, dict) or TEMPLATE_HASH_LABEL not in labels:
        return template
    own = {key: value for key, value in labels.items() if key != TEMPLATE_HASH_LABEL}
    return {**template, "metadata": {**template["metadata"], "labels": own}}


def comparable(template: Obj | None) -> Obj:
    """Returns it without the controller's label and empty metadata, so that equal ones compare equal.

    Not to be changed: it shares parts with the template.
    """
    template = _unhashed(template or {})
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        return template
    return {**template, "metadata": {key: value for key, value in metadata.items() if value not in (None, {})}}


def same_template(one: Obj | None, other: Obj | None) -> bool:
    return comparable(one) == comparable(other)


def template_digest(template: Obj | None) -> str:
    text = json.dumps(comparable(template), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of(templates: Sequence[Obj]) -> str:
    """Returns the digest of all templates of one replica."""
    digests = [template_digest(template) for template in templates]
    return digests[0] if len(digests) == 1 else hashlib.sha256(",".join(digests).encode()).hexdigest()[:16]


def replica_sets_of(snapshot: ClusterSnapshot) -> list[Obj]:
    """Returns the workload's own ReplicaSets, newest revision first."""
    if snapshot.workload is None:
        return []
    owned = [rs for rs in snapshot.replica_sets if is_owned_by(rs, snapshot.workload)]
    return sorted(owned, key=lambda rs: revision_of(rs) or 0, reverse=True)


def current_replica_set(snapshot: ClusterSnapshot) -> Obj | None:
    template = dig(snapshot.workload, "spec", "template")
    return next((rs for rs in replica_sets_of(snapshot) if same_template(dig(rs, "spec", "template"), template)), None)


@dataclass(frozen=True)
class Revision:
    """One kept revision of a workload; 0 if it has no number."""

    number: int
    template: Obj
    name: str
    """The name of the object that keeps it."""


def revisions_of(snapshot: ClusterSnapshot) -> list[Revision]:
    """Returns rollback targets, newest first: a Deployment's ReplicaSets, a StatefulSet's ControllerRevisions.

    Their templates are not to be changed: a rollout's wait looks through a hundred of them each second, so none is
    copied.
    """
    workload = snapshot.workload
    if workload is None or kind_of(workload) == "LeaderWorkerSet":
        return []
    if kind_of(workload) == "Deployment":
        return [
            Revision(revision_of(rs) or 0, _unhashed(dig(rs, "spec", "template") or {}), name_of(rs))
            for rs in replica_sets_of(snapshot)
        ]
    kept = [one for one in snapshot.revisions if is_owned_by(one, workload)]
    found = [Revision(int(one.get("revision") or 0), _kept_template(one), name_of(one)) for one in kept]
    return sorted(found, key=lambda one: one.number, reverse=True)


def _kept_template(revision: Obj) -> Obj:
    """Returns the template in a ControllerRevision, which stores it as a patch."""
    stored = _unhashed(dig(revision, "data", "spec", "template") or {})
    template = {key: value for key, value in stored.items() if key != "$patch"}
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {key: value for key, value in metadata.items() if value is not None}}


def current_revision(snapshot: ClusterSnapshot) -> Revision | None:
    present = template_of(snapshot.workload)
    return next((one for one in revisions_of(snapshot) if same_template(one.template, present)), None)


def new_and_old_pods(snapshot: ClusterSnapshot) -> tuple[list[Obj], list[Obj]] | None:
    """Returns the pods of the workload's current template, and all others. None if its controller is behind."""
    workload = snapshot.workload
    match kind_of(workload):
        case "StatefulSet":
            newest = dig(workload, "status", "updateRevision")
            return _parted(snapshot, lambda pod: labels_of(pod).get(REVISION_HASH_LABEL) == newest) if newest else None
        case "LeaderWorkerSet":
            return _parted(snapshot, lambda pod: _runs(pod, workload))
    replica_set = current_replica_set(snapshot)
    if replica_set is None:
        return None
    uid = uid_of(replica_set)
    return _parted(snapshot, lambda pod: (controller_of(pod) or {}).get("uid") == uid)


def _parted(snapshot: ClusterSnapshot, is_new: Callable[[Obj], bool]) -> tuple[list[Obj], list[Obj]]:
    pods = pods_of_workload(snapshot)
    return [pod for pod in pods if is_new(pod)], [pod for pod in pods if not is_new(pod)]


def _runs(pod: Obj, workload: Obj | None) -> bool:
    """Whether the pod was created from the current template: its controller adds to env, and its revision is a hash."""
    templates = pod_templates(workload)
    template = templates[0 if serves(pod) else -1].template
    if any(annotations_of(pod).get(mark) != annotations_of(template).get(mark) for mark in MARKS):
        return False
    running = {one.get("name"): one for one in dig(pod, "spec", "containers") or []}
    return all(
        all(one.get(key) == running.get(one.get("name"), {}).get(key) for key in ("image", "command", "args"))
        and all(_as_stored(each) in _env_of(running[one.get("name")]) for each in one.get("env") or [])
        for one in dig(template, "spec", "containers") or []
    )


def _env_of(container: Obj) -> list[Obj]:
    return [_as_stored(each) for each in container.get("env") or []]


def _as_stored(variable: Obj) -> Obj:
    """As the API server stores a pod's variable. It does not know the templates of a LeaderWorkerSet."""
    stored = {key: value for key, value in variable.items() if key != "value" or value != ""}
    source = {kind: dict(fields) for kind, fields in (stored.get("valueFrom") or {}).items()}
    source.get("fieldRef", {}).setdefault("apiVersion", "v1")
    source.get("resourceFieldRef", {}).setdefault("divisor", "0")
    return stored | ({"valueFrom": source} if source else {})
