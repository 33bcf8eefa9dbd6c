"""Jobs: one pod at a time until one succeeds, too many failed, or the deadline has passed; deleted when that is due.

Parallel and indexed Jobs are not supported: the bot starts none.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import RETRY_SECONDS, Key
from bot.sandbox.kubernetes.controllers.ownership import controlled, controller_of, reference_to
from bot.sandbox.kubernetes.controllers.pods import condition, is_active
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import JOBS, PODS
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of

Obj = dict[str, Any]


class JobController:
    name = "job"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._events = Recorder(registry, "job-controller")

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is JOBS and change.kind != "DELETED":
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is PODS:
            owner = controller_of(change.obj)
            if owner is not None and owner["kind"] == JOBS.kind:
                yield namespace_of(change.obj), owner["name"]

    def reconcile(self, key: Key) -> float | None:
        job = self._store.find(JOBS, *key)
        if job is None or is_terminating(job):
            return None
        if ended := _ended(job):
            return self._clean(job, ended)
        pods = controlled(self._store, PODS, job)
        succeeded, failed = (sum(pod["status"]["phase"] == phase for pod in pods) for phase in ("Succeeded", "Failed"))
        active = [pod for pod in pods if is_active(pod)]
        counts = {"active": len(active), "succeeded": succeeded, "failed": failed}
        left = self._seconds_left(job)
        if succeeded:
            return self._end(job, counts, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if failed > job["spec"]["backoffLimit"]:
            text = "Job has reached the specified backoff limit"
            return self._end(job, counts, "Failed", "BackoffLimitExceeded", text)
        if left is not None and left <= 0:
            for pod in active:
                self._registry.delete(PODS, pod)
            text = "Job was active longer than specified deadline"
            return self._end(job, counts, "Failed", "DeadlineExceeded", text)
        if not active and not job["spec"]["suspend"]:
            counts["active"] = int(self._start(job))
            left = left if counts["active"] else min(RETRY_SECONDS, RETRY_SECONDS if left is None else left)
        self._report(job, counts, [])
        return left

    def _seconds_left(self, job: Obj) -> float | None:
        deadline = job["spec"].get("activeDeadlineSeconds")
        started = job["status"].get("startTime") or job["metadata"]["creationTimestamp"]
        return None if deadline is None else float(deadline) - clock.seconds_since(started)

    def _start(self, job: Obj) -> bool:
        """Returns whether its pod could be created."""
        template = job["spec"]["template"]
        metadata = {
            "generateName": f"{name_of(job)}-",
            "labels": dict(template["metadata"].get("labels") or {}),
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": [reference_to(JOBS, job)],
        }
        try:
            pod = self._registry.create(PODS, namespace_of(job), {"metadata": metadata, "spec": template["spec"]})
        except ApiError as refused:
            self._events.record(JOBS, job, "Warning", "FailedCreate", f"Error creating: {refused}")
            return False
        self._events.record(JOBS, job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")
        return True

    def _end(self, job: Obj, counts: dict[str, int], kind: str, reason: str, text: str) -> float | None:
        self._events.record(JOBS, job, "Normal" if kind == "Complete" else "Warning", reason, text)
        now = clock.stamp()
        result = {"type": kind, "status": "True", "reason": reason, "message": text}
        self._report(job, {**counts, "active": 0}, [{**result, "lastProbeTime": now, "lastTransitionTime": now}])
        return 0.0

    def _report(self, job: Obj, counts: dict[str, int], conditions: list[Obj]) -> None:
        started = job["status"].get("startTime") or clock.stamp()
        status: Obj = {"startTime": started, **{name: count for name, count in counts.items() if count}}
        if conditions:
            status["conditions"] = conditions
            if conditions[0]["type"] == "Complete":
                status["completionTime"] = conditions[0]["lastTransitionTime"]
        self._registry.edit(JOBS, job, lambda new: new.update(status=status), "status")

    def _clean(self, job: Obj, ended: Obj) -> float | None:
        keep = job["spec"].get("ttlSecondsAfterFinished")
        if keep is None:
            return None
        left = float(keep) - clock.seconds_since(ended["lastTransitionTime"])
        if left > 0:
            return left
        self._registry.delete(JOBS, job)
        return None


def _ended(job: Obj) -> Obj | None:
    found = (condition(job, kind) for kind in ("Complete", "Failed"))
    return next((one for one in found if one is not None and one["status"] == "True"), None)
