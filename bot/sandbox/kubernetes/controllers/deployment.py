"""Deployments: one ReplicaSet per template, and pods moved from old to new within surge and unavailability.

Each reconcile takes one step from the state of the ReplicaSets, as the real controller does, so that a rollout can be
paused, reversed or stuck at any point.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes.controllers import rollout_status
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import (
    controlled,
    controller_of,
    is_controlled_by,
    reference_to,
)
from bot.sandbox.kubernetes.controllers.pod_template import TEMPLATE_HASH, same_template, template_hash
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.controllers.rollout_bounds import bounds_of
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from bot.sandbox.kubernetes.selectors import labels_of, matches
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of

Obj = dict[str, Any]

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
_OWN_ANNOTATIONS = (
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "kubectl.kubernetes.io/last-applied-configuration",
)


def revision_of(obj: Obj) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(REVISION, 0))


class DeploymentController:
    name = "deployment"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._events = Recorder(registry, "deployment-controller")

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is DEPLOYMENTS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is REPLICA_SETS:
            owner = controller_of(change.obj)
            if owner is not None:
                yield namespace_of(change.obj), owner["name"]
        elif change.resource is PODS and change.kind == "DELETED":
            # A Recreate rollout waits for the last old pod, which no ReplicaSet counts any more.
            for deployment in self._store.list(DEPLOYMENTS, namespace_of(change.obj)):
                if matches(deployment["spec"]["selector"], labels_of(change.obj)):
                    yield namespace_of(deployment), name_of(deployment)

    def reconcile(self, key: Key) -> float | None:
        deployment = self._store.find(DEPLOYMENTS, *key)
        if deployment is None or is_terminating(deployment):
            return None
        self._adopt(deployment)
        sets = self._sets(deployment)
        new = find_new(deployment, sets)
        if deployment["spec"].get("paused"):
            self._scale_in_proportion(deployment, sets)
        elif self._was_scaled(deployment, sets):
            if new is not None:
                self._sync_new(deployment, new, sets)
            self._scale_in_proportion(deployment, self._sets(deployment))
        else:
            self._roll(deployment, new, sets)
        self._clean_up(deployment)
        current = self._store.get(DEPLOYMENTS, *key)
        sets = self._sets(current)
        return rollout_status.report(self._registry, current, sets, find_new(current, sets))

    # --- ReplicaSets of this deployment

    def _sets(self, deployment: Obj) -> list[Obj]:
        """Oldest first."""
        found = controlled(self._store, REPLICA_SETS, deployment)
        return sorted(found, key=lambda one: (one["metadata"]["creationTimestamp"], revision_of(one)))

    def _adopt(self, deployment: Obj) -> None:
        selector = deployment["spec"]["selector"]
        reference = reference_to(DEPLOYMENTS, deployment)
        for one in self._store.list(REPLICA_SETS, namespace_of(deployment)):
            if is_controlled_by(one, deployment) or controller_of(one) is not None or is_terminating(one):
                continue
            if matches(selector, labels_of(one)):
                self._registry.edit(REPLICA_SETS, one, lambda new: _add_owner(new, reference))

    def _sync_new(self, deployment: Obj, new: Obj | None, sets: list[Obj]) -> Obj:
        """Finds or creates the ReplicaSet of the current template, and numbers it above all others."""
        old = [one for one in sets if new is None or name_of(one) != name_of(new)]
        revision = max((revision_of(one) for one in old), default=0) + 1
        if new is None:
            new = self._create_new(deployment, sets, revision)
        else:
            revision = max(revision, revision_of(new))
            new = self._registry.edit(REPLICA_SETS, new, lambda one: _copy_annotations(deployment, one, revision))
        self._registry.edit(
            DEPLOYMENTS,
            deployment,
            lambda one: one["metadata"].setdefault("annotations", {}).update({REVISION: str(revision)}),
            "status",
        )
        return new

    def _create_new(self, deployment: Obj, sets: list[Obj], revision: int) -> Obj:
        template = deployment["spec"]["template"]
        digest = template_hash(template)
        labels = {**(template["metadata"].get("labels") or {}), TEMPLATE_HASH: digest}
        selector = deployment["spec"]["selector"]
        replica_set: Obj = {
            "metadata": {
                "name": f"{name_of(deployment)}-{digest}",
                "labels": labels,
                "ownerReferences": [reference_to(DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": 0,
                "minReadySeconds": deployment["spec"].get("minReadySeconds", 0),
                "selector": {
                    **selector,
                    "matchLabels": {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: digest},
                },
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        }
        _copy_annotations(deployment, replica_set, revision)
        replica_set["spec"]["replicas"] = self._first_size(deployment, sets)
        created = self._registry.create(REPLICA_SETS, namespace_of(deployment), replica_set)
        self._record_scaling(deployment, created, 0, created["spec"]["replicas"])
        rollout_status.note_created(self._registry, deployment, created)
        return created

    def _first_size(self, deployment: Obj, sets: list[Obj]) -> int:
        bounds = bounds_of(deployment)
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            return bounds.replicas
        return max(0, min(bounds.replicas, bounds.most - total(sets)))

    # --- moving pods

    def _roll(self, deployment: Obj, new: Obj | None, sets: list[Obj]) -> None:
        old = [one for one in sets if new is None or name_of(one) != name_of(new)]
        if deployment["spec"]["strategy"]["type"] == "Recreate" and not self._old_is_gone(deployment, old):
            return
        new = self._sync_new(deployment, new, sets)
        if self._grow_new(deployment, new, [*old, new]):
            return
        self._shrink_old(deployment, new, old)

    def _old_is_gone(self, deployment: Obj, old: list[Obj]) -> bool:
        for one in old:
            self._resize(deployment, one, 0)
        return not any(controlled(self._store, PODS, one) for one in old)

    def _grow_new(self, deployment: Obj, new: Obj, sets: list[Obj]) -> bool:
        bounds, size = bounds_of(deployment), new["spec"]["replicas"]
        if size > bounds.replicas:
            return self._resize(deployment, new, bounds.replicas)
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            return self._resize(deployment, new, bounds.replicas)
        room = min(bounds.most - total(sets), bounds.replicas - size)
        return room > 0 and self._resize(deployment, new, size + room)

    def _shrink_old(self, deployment: Obj, new: Obj, old: list[Obj]) -> None:
        bounds = bounds_of(deployment)
        if total(old) == 0:
            return
        new_unavailable = new["spec"]["replicas"] - available(new)
        may_go = total([*old, new]) - bounds.least_available - new_unavailable
        if may_go <= 0:
            return
        # Pods that do not serve go first; then as many serving pods as the bounds allow.
        for one in old:
            useless = one["spec"]["replicas"] - available(one)
            count = min(useless, may_go)
            if count > 0:
                self._resize(deployment, one, one["spec"]["replicas"] - count)
                may_go -= count
        spare = sum(map(available, [*old, new])) - bounds.least_available
        for one in self._sets(deployment):
            if name_of(one) == name_of(new):
                continue
            count = min(one["spec"]["replicas"], spare, may_go)
            if count > 0:
                self._resize(deployment, one, one["spec"]["replicas"] - count)
                spare, may_go = spare - count, may_go - count

    def _was_scaled(self, deployment: Obj, sets: list[Obj]) -> bool:
        wanted = str(deployment["spec"]["replicas"])
        return any(
            one["spec"]["replicas"] > 0
            and (one["metadata"].get("annotations") or {}).get(DESIRED_REPLICAS, wanted) != wanted
            for one in sets
        )

    def _scale_in_proportion(self, deployment: Obj, sets: list[Obj]) -> None:
        """Spreads a new size over the sets in use; the newest takes the rounding remainder."""
        in_use = [one for one in sets if one["spec"]["replicas"] > 0] or sets[-1:]
        bounds = bounds_of(deployment)
        if len(in_use) == 1:
            self._resize(deployment, in_use[0], bounds.replicas)
            return
        size = total(in_use)
        if not size or not self._was_scaled(deployment, sets):
            return
        allowed = bounds.most if bounds.replicas else 0
        targets = [one["spec"]["replicas"] * allowed // size for one in in_use]
        targets[-1] += allowed - sum(targets)
        for one, target in zip(in_use, targets, strict=True):
            self._resize(deployment, one, target)

    def _resize(self, deployment: Obj, replica_set: Obj, size: int) -> bool:
        """Returns whether the size changed; the annotations about the desired size are kept correct either way."""
        before = replica_set["spec"]["replicas"]
        bounds = bounds_of(deployment)

        def change(new: Obj) -> None:
            new["spec"]["replicas"] = size
            annotations = new["metadata"].setdefault("annotations", {})
            annotations[DESIRED_REPLICAS] = str(bounds.replicas)
            annotations[MAX_REPLICAS] = str(bounds.most)

        self._registry.edit(REPLICA_SETS, replica_set, change)
        if size != before:
            self._record_scaling(deployment, replica_set, before, size)
        return bool(size != before)

    def _record_scaling(self, deployment: Obj, replica_set: Obj, before: int, after: int) -> None:
        direction = "up" if after >= before else "down"
        text = f"Scaled {direction} replica set {name_of(replica_set)} from {before} to {after}"
        self._events.record(DEPLOYMENTS, deployment, "Normal", "ScalingReplicaSet", text)

    def _clean_up(self, deployment: Obj) -> None:
        """Deletes old, empty ReplicaSets beyond the history limit once the rollout is complete."""
        if not rollout_status.is_complete(deployment):
            return
        sets = self._sets(deployment)
        new = find_new(deployment, sets)
        idle = [
            one
            for one in sets
            if (new is None or name_of(one) != name_of(new))
            and one["spec"]["replicas"] == 0
            and not one["status"].get("replicas")
        ]
        surplus = len(idle) - deployment["spec"]["revisionHistoryLimit"]
        for one in sorted(idle, key=revision_of)[: max(surplus, 0)]:
            self._registry.delete(REPLICA_SETS, one)


def find_new(deployment: Obj, sets: list[Obj]) -> Obj | None:
    """The oldest ReplicaSet with the deployment's current template."""
    template = deployment["spec"]["template"]
    return next((one for one in sets if same_template(one["spec"]["template"], template)), None)


def total(sets: list[Obj]) -> int:
    return sum(one["spec"]["replicas"] for one in sets)


def available(replica_set: Obj) -> int:
    return int(replica_set["status"].get("availableReplicas", 0))


def _copy_annotations(deployment: Obj, replica_set: Obj, revision: int) -> None:
    have = replica_set["metadata"].setdefault("annotations", {})
    theirs = deployment["metadata"].get("annotations") or {}
    have.update({key: value for key, value in theirs.items() if key not in _OWN_ANNOTATIONS})
    before = have.get(REVISION)
    if before is not None and int(before) < revision:
        history = [one for one in have.get(REVISION_HISTORY, "").split(",") if one]
        have[REVISION_HISTORY] = ",".join([*history, before])
    have[REVISION] = str(revision)
    bounds = bounds_of(deployment)
    # The desired size of an existing set is left alone: the difference shows that it was scaled.
    have.setdefault(DESIRED_REPLICAS, str(bounds.replicas))
    have.setdefault(MAX_REPLICAS, str(bounds.most))
    replica_set["spec"]["minReadySeconds"] = deployment["spec"].get("minReadySeconds", 0)


def _add_owner(replica_set: Obj, reference: Obj) -> None:
    replica_set["metadata"].setdefault("ownerReferences", []).append(reference)
