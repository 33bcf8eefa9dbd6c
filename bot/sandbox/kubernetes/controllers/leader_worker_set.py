"""LeaderWorkerSets: groups of pods that start and end together, made of StatefulSets as the real controller makes them.

The leaders are one StatefulSet; each leader pod owns the StatefulSet of its workers, so that they go with it.
"""

import copy
from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import controlled, is_controlled_by, reference_to
from bot.sandbox.kubernetes.controllers.pod_template import template_hash
from bot.sandbox.kubernetes.controllers.pods import is_active, is_ready, with_condition
from bot.sandbox.kubernetes.controllers.stateful_set import number_of
from bot.sandbox.kubernetes.quantities import resolve_int_or_percent
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import LEADER_WORKER_SETS, PODS, SERVICES, STATEFUL_SETS
from bot.sandbox.kubernetes.selectors import labels_of
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of

Obj = dict[str, Any]

PREFIX = "leaderworkerset.sigs.k8s.io/"
NAME, GROUP, WORKER = PREFIX + "name", PREFIX + "group-index", PREFIX + "worker-index"
REVISION, SIZE = PREFIX + "template-revision-hash", PREFIX + "size"
RENEWED_AS_ONE = "RecreateGroupOnPodRestart"


class LeaderWorkerSetController:
    name = "leaderworkerset"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is LEADER_WORKER_SETS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource in (PODS, STATEFUL_SETS) and NAME in labels_of(change.obj):
            yield namespace_of(change.obj), labels_of(change.obj)[NAME]

    def reconcile(self, key: Key) -> float | None:
        workload = self._store.find(LEADER_WORKER_SETS, *key)
        if workload is None or is_terminating(workload):
            return None
        self._peers(workload)
        revision = template_hash({"spec": workload["spec"]["leaderWorkerTemplate"]})
        leaders = self._leaders(workload, revision)
        for leader in controlled(self._store, PODS, leaders):
            self._number(leader, {GROUP: str(number_of(leader))})
            if is_active(leader):
                self._workers(workload, leader)
        self._renew_broken_groups(workload, leaders)
        self._report(workload, leaders, revision)
        return None

    def _peers(self, workload: Obj) -> None:
        """The headless Service by which the pods of all groups find each other, Ready or not."""
        if self._store.find(SERVICES, namespace_of(workload), name_of(workload)) is not None:
            return
        labels = {NAME: name_of(workload)}
        owners = [reference_to(LEADER_WORKER_SETS, workload)]
        body = {
            "metadata": {"name": name_of(workload), "labels": labels, "ownerReferences": owners},
            "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
        }
        self._registry.create(SERVICES, namespace_of(workload), body)

    # --- leaders and workers

    def _leaders(self, workload: Obj, revision: str) -> Obj:
        template = _template(workload, "leaderTemplate") or _template(workload, "workerTemplate")
        labels = {NAME: name_of(workload), WORKER: "0"}
        body = _stateful_set(workload, name_of(workload), labels, _labelled(workload, template, labels, revision))
        body["metadata"]["ownerReferences"] = [reference_to(LEADER_WORKER_SETS, workload)]
        body["spec"]["replicas"] = workload["spec"]["replicas"]
        present = self._store.find(STATEFUL_SETS, namespace_of(workload), name_of(workload))
        if present is None:
            return self._registry.create(STATEFUL_SETS, namespace_of(workload), body)
        partition = self._partition(workload, present, revision)

        def change(new: Obj) -> None:
            new["spec"]["replicas"] = workload["spec"]["replicas"]
            if labels_of(new["spec"]["template"]).get(REVISION) != revision:
                new["spec"]["template"] = body["spec"]["template"]
            new["spec"]["updateStrategy"]["rollingUpdate"] = {
                "partition": partition,
                "maxUnavailable": workload["spec"]["replicas"] or 1,
            }

        return self._registry.edit(STATEFUL_SETS, present, change)

    def _partition(self, workload: Obj, leaders: Obj, revision: str) -> int:
        """The first group whose leader may be updated: the highest first, as many at once as may be unavailable."""
        rolling = workload["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
        replicas = int(workload["spec"]["replicas"])
        may_miss = max(1, resolve_int_or_percent(rolling["maxUnavailable"], replicas, round_up=False))
        first = replicas
        for number in reversed(range(rolling["partition"], replicas)):
            group = self._group(workload, number)
            if not (self._is_whole(workload, group) and _is_of(group, revision)):
                may_miss -= 1
            first = number
            if may_miss == 0:
                break
        return first

    def _workers(self, workload: Obj, leader: Obj) -> None:
        size, number = workload["spec"]["leaderWorkerTemplate"]["size"], number_of(leader)
        # A set of the same name that belongs to the previous leader goes first.
        if size < 2 or self._store.find(STATEFUL_SETS, namespace_of(leader), name_of(leader)) is not None:
            self._number_workers(leader)
            return
        labels = {NAME: name_of(workload), GROUP: str(number)}
        revision = labels_of(leader).get(REVISION, "")
        template = _labelled(workload, _template(workload, "workerTemplate"), labels, revision)
        body = _stateful_set(workload, name_of(leader), labels, template)
        body["metadata"]["ownerReferences"] = [reference_to(PODS, leader)]
        body["spec"] |= {"replicas": size - 1, "ordinals": {"start": 1}}
        self._registry.create(STATEFUL_SETS, namespace_of(leader), body)

    def _number_workers(self, leader: Obj) -> None:
        workers = self._store.find(STATEFUL_SETS, namespace_of(leader), name_of(leader))
        for pod in controlled(self._store, PODS, workers) if workers is not None else []:
            self._number(pod, {WORKER: str(number_of(pod))})

    def _number(self, pod: Obj, labels: dict[str, str]) -> None:
        if not labels.items() <= labels_of(pod).items():
            self._registry.edit(PODS, pod, lambda new: new["metadata"]["labels"].update(labels))

    def _renew_broken_groups(self, workload: Obj, leaders: Obj) -> None:
        """A worker that ends or restarts ends its whole group."""
        if workload["spec"]["leaderWorkerTemplate"]["restartPolicy"] != RENEWED_AS_ONE:
            return
        for leader in controlled(self._store, PODS, leaders):
            group = self._group(workload, number_of(leader))
            if is_active(leader) and any(_has_ended(pod) for pod in group):
                mine = self._store.find(STATEFUL_SETS, namespace_of(leader), name_of(leader))
                # Workers of the previous leader end because that leader ended.
                if mine is not None and is_controlled_by(mine, leader):
                    self._registry.delete(PODS, leader)

    # --- groups

    def _group(self, workload: Obj, number: int) -> list[Obj]:
        wanted = {NAME: name_of(workload), GROUP: str(number)}
        return [
            pod for pod in self._store.list(PODS, namespace_of(workload)) if wanted.items() <= labels_of(pod).items()
        ]

    def _is_whole(self, workload: Obj, group: list[Obj]) -> bool:
        ready = [pod for pod in group if is_active(pod) and is_ready(pod)]
        return len(ready) == len(group) == int(workload["spec"]["leaderWorkerTemplate"]["size"])

    def _report(self, workload: Obj, leaders: Obj, revision: str) -> None:
        present = [pod for pod in controlled(self._store, PODS, leaders) if is_active(pod)]
        groups = [self._group(workload, number_of(pod)) for pod in present]
        updated = sum(_is_of(group, revision) for group in groups)
        ready, wanted = sum(self._is_whole(workload, group) for group in groups), workload["spec"]["replicas"]
        conditions: list[Obj] = workload["status"].get("conditions") or []
        truths = {
            "Available": ready >= wanted,
            "Progressing": ready != wanted or updated != wanted,
            "UpdateInProgress": updated != len(groups),
        }
        for kind, truth in truths.items():
            stamp = clock.stamp()
            new = {"type": kind, "status": str(truth), "reason": kind, "message": "", "lastTransitionTime": stamp}
            conditions = with_condition(conditions, new)
        status: Obj = {
            "replicas": len(groups),
            "readyReplicas": ready,
            "updatedReplicas": updated,
            "hpaPodSelector": f"{NAME}={name_of(workload)},{WORKER}=0",
            "observedGeneration": workload["metadata"]["generation"],
            "conditions": conditions,
        }
        self._registry.edit(LEADER_WORKER_SETS, workload, lambda one: one.update(status=status), "status")


def _template(workload: Obj, name: str) -> Obj:
    found: Obj = workload["spec"]["leaderWorkerTemplate"].get(name) or {}
    return found


def _labelled(workload: Obj, template: Obj, labels: dict[str, str], revision: str) -> Obj:
    metadata = template.get("metadata") or {}
    size = str(workload["spec"]["leaderWorkerTemplate"]["size"])
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **labels, REVISION: revision},
            "annotations": {**(metadata.get("annotations") or {}), SIZE: size},
        },
        # A copy: fields that the StatefulSet adds are not written into the stored set.
        "spec": copy.deepcopy(template.get("spec") or {}),
    }


def _stateful_set(workload: Obj, name: str, labels: dict[str, str], template: Obj) -> Obj:
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "serviceName": name_of(workload),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": dict(labels)},
            "template": template,
        },
    }


def _is_of(group: list[Obj], revision: str) -> bool:
    return bool(group) and all(labels_of(pod).get(REVISION) == revision for pod in group)


def _has_ended(pod: Obj) -> bool:
    restarts = sum(one.get("restartCount", 0) for one in pod["status"].get("containerStatuses") or [])
    return not is_active(pod) or restarts > 0
