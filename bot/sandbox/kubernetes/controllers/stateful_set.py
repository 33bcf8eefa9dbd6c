"""StatefulSets: numbered pods, created in order and ended in reverse, one revision after the other.

A pod keeps its number and its name forever; an update ends it before its successor starts.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes.controllers.loop import RETRY_SECONDS, Key
from bot.sandbox.kubernetes.controllers.ownership import controlled, controller_of, is_controlled_by, reference_to
from bot.sandbox.kubernetes.controllers.pod_template import template_hash
from bot.sandbox.kubernetes.controllers.pods import is_active, is_ready, is_terminal
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.quantities import resolve_int_or_percent
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS
from bot.sandbox.kubernetes.selectors import labels_of, matches
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]

REVISION_HASH = "controller-revision-hash"
POD_INDEX = "apps.kubernetes.io/pod-index"
POD_NAME = "statefulset.kubernetes.io/pod-name"


class StatefulSetController:
    name = "statefulset"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._events = Recorder(registry, "statefulset-controller")
        self._is_refused = False

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is STATEFUL_SETS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is PODS:
            for pod in (change.obj, change.previous):
                owner = controller_of(pod) if pod is not None else None
                if owner is not None and owner["kind"] == STATEFUL_SETS.kind:
                    yield namespace_of(change.obj), owner["name"]

    def reconcile(self, key: Key) -> float | None:
        workload = self._store.find(STATEFUL_SETS, *key)
        if workload is None or is_terminating(workload):
            return None
        newest = self._newest_revision(workload)
        self._release(workload)
        pods = {number_of(pod): pod for pod in controlled(self._store, PODS, workload)}
        self._is_refused = False
        self._move(workload, pods, newest)
        self._report(workload, newest)
        self._forget_old(workload)
        return RETRY_SECONDS if self._is_refused else None

    # --- revisions

    def _newest_revision(self, workload: Obj) -> Obj:
        """Finds or creates the revision of the present template, numbered above all others."""
        name = f"{name_of(workload)}-{template_hash(workload['spec']['template'])}"
        kept = controlled(self._store, CONTROLLER_REVISIONS, workload)
        # An earlier set of this name may have left its revision to the garbage collector: ours then needs another name.
        other = f"{name}-{workload['metadata']['uid'][:5]}"
        held = self._store.find(CONTROLLER_REVISIONS, namespace_of(workload), name)
        is_taken = held is not None and name not in map(name_of, kept)
        name = other if is_taken or other in map(name_of, kept) else name
        number = max((one["revision"] for one in kept if name_of(one) != name), default=0) + 1
        found = next((one for one in kept if name_of(one) == name), None)
        if found is None:
            labels = {**(workload["spec"]["selector"].get("matchLabels") or {}), REVISION_HASH: name}
            return self._registry.create(
                CONTROLLER_REVISIONS,
                namespace_of(workload),
                {
                    "metadata": {
                        "name": name,
                        "labels": labels,
                        "annotations": dict(workload["metadata"].get("annotations") or {}),
                        "ownerReferences": [reference_to(STATEFUL_SETS, workload)],
                    },
                    "revision": number,
                    # Stored as a patch that replaces the whole template.
                    "data": {"spec": {"template": {"$patch": "replace", **workload["spec"]["template"]}}},
                },
            )
        if found["revision"] < number:
            return self._registry.edit(CONTROLLER_REVISIONS, found, lambda one: one.update(revision=number))
        return found

    def _template_of(self, workload: Obj, revision: str) -> Obj:
        kept = self._store.find(CONTROLLER_REVISIONS, namespace_of(workload), revision)
        template = kept["data"]["spec"]["template"] if kept is not None else workload["spec"]["template"]
        return {key: value for key, value in template.items() if key != "$patch"}

    def _forget_old(self, workload: Obj) -> None:
        used = {labels_of(pod).get(REVISION_HASH) for pod in controlled(self._store, PODS, workload)}
        kept = sorted(controlled(self._store, CONTROLLER_REVISIONS, workload), key=lambda one: int(one["revision"]))
        idle = [one for one in kept[:-1] if name_of(one) not in used]
        for one in idle[: max(0, len(idle) - workload["spec"]["revisionHistoryLimit"])]:
            self._registry.delete(CONTROLLER_REVISIONS, one)

    # --- pods

    def _release(self, workload: Obj) -> None:
        for pod in controlled(self._store, PODS, workload):
            if not matches(workload["spec"]["selector"], labels_of(pod)) and not is_terminating(pod):
                self._registry.edit(PODS, pod, lambda new: _disown(new, uid_of(workload)))

    def _move(self, workload: Obj, pods: dict[int, Obj], newest: Obj) -> None:
        """Takes the next step; in ordered mode, a step waits until the one before is done."""
        first = (workload["spec"].get("ordinals") or {}).get("start", 0)
        wanted = range(first, first + workload["spec"]["replicas"])
        in_order = workload["spec"]["podManagementPolicy"] == "OrderedReady"
        for number in wanted:
            pod = pods.get(number)
            if pod is not None and is_terminal(pod) and not is_terminating(pod):
                self._registry.delete(PODS, pod)
            if pod is None:
                self._create(workload, number, newest)
            if in_order and (pod is None or not is_active(pod) or not is_ready(pod)):
                return
        surplus = sorted((number for number in pods if number not in wanted), reverse=True)
        for number in surplus:
            if not is_terminating(pods[number]):
                self._delete(workload, pods[number])
            if in_order:
                return
        if not surplus and all(number in pods for number in wanted):
            self._update(workload, [pods[number] for number in reversed(wanted)], newest)

    def _update(self, workload: Obj, pods: list[Obj], newest: Obj) -> None:
        strategy = workload["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        rolling = strategy.get("rollingUpdate") or {}
        may_miss = max(1, resolve_int_or_percent(rolling.get("maxUnavailable", 1), len(pods), round_up=True))
        missing = sum(not is_active(pod) or not is_ready(pod) for pod in pods)
        for pod in pods:
            if number_of(pod) < rolling.get("partition", 0):
                return
            is_old = labels_of(pod).get(REVISION_HASH) != name_of(newest)
            serves = is_active(pod) and is_ready(pod)
            if is_old and not is_terminating(pod) and (missing < may_miss or not serves):
                self._delete(workload, pod)
                missing += serves
            if missing >= may_miss:
                return

    def _create(self, workload: Obj, number: int, newest: Obj) -> None:
        name = f"{name_of(workload)}-{number}"
        if self._store.find(PODS, namespace_of(workload), name) is not None:
            return
        strategy = workload["spec"]["updateStrategy"]
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        keeps_old = strategy["type"] == "RollingUpdate" and number < partition
        revision = workload["status"].get("currentRevision") if keeps_old else None
        revision = revision or name_of(newest)
        template = self._template_of(workload, revision)
        metadata = template.get("metadata") or {}
        identity = {REVISION_HASH: revision, POD_INDEX: str(number), POD_NAME: name}
        body = {
            "metadata": {
                "name": name,
                "labels": {**(metadata.get("labels") or {}), **identity},
                "annotations": dict(metadata.get("annotations") or {}),
                "ownerReferences": [reference_to(STATEFUL_SETS, workload)],
            },
            "spec": {
                **template["spec"],
                "hostname": name,
                "subdomain": workload["spec"].get("serviceName", ""),
            },
        }
        try:
            self._registry.create(PODS, namespace_of(workload), body)
        except ApiError as refused:
            text = f"create Pod {name} in StatefulSet {name_of(workload)} failed error: {refused}"
            self._events.record(STATEFUL_SETS, workload, "Warning", "FailedCreate", text)
            self._is_refused = True
            return
        text = f"create Pod {name} in StatefulSet {name_of(workload)} successful"
        self._events.record(STATEFUL_SETS, workload, "Normal", "SuccessfulCreate", text)

    def _delete(self, workload: Obj, pod: Obj) -> None:
        self._registry.delete(PODS, pod)
        text = f"delete Pod {name_of(pod)} in StatefulSet {name_of(workload)} successful"
        self._events.record(STATEFUL_SETS, workload, "Normal", "SuccessfulDelete", text)

    # --- status

    def _report(self, workload: Obj, newest: Obj) -> None:
        pods = [pod for pod in self._store.list(PODS, namespace_of(workload)) if is_controlled_by(pod, workload)]
        active = [pod for pod in pods if is_active(pod)]
        updated = sum(labels_of(pod).get(REVISION_HASH) == name_of(newest) for pod in active)
        ready = sum(map(is_ready, active))
        before = workload["status"]
        current = before.get("currentRevision") or name_of(newest)
        wanted = workload["spec"]["replicas"]
        is_rolling = workload["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        if is_rolling and updated == ready == wanted == len(pods):
            current = name_of(newest)
        status: Obj = {
            "replicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": sum(labels_of(pod).get(REVISION_HASH) == current for pod in active),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": name_of(newest),
            "observedGeneration": workload["metadata"]["generation"],
            "collisionCount": 0,
        }
        self._registry.edit(STATEFUL_SETS, workload, lambda one: one.update(status=status), "status")


def number_of(pod: Obj) -> int:
    return int(name_of(pod).rpartition("-")[2])


def _disown(pod: Obj, uid: str) -> None:
    references = pod["metadata"]["ownerReferences"]
    pod["metadata"]["ownerReferences"] = [one for one in references if one["uid"] != uid]
