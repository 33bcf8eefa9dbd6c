"""A small cluster in memory: `Cluster` and `ClusterWriter` over plain objects, with controllers that take a moment.

Patches are applied with their tests, as an API server does, and every call that won is counted by its id.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from bot.adapters.kubernetes.requests import misfit, seen_in, stamped
from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.cluster.json_patch import ABSENT, applied, value_at
from bot.domain.cluster.objects import (
    CALL_ANNOTATION,
    CANARY_LABEL,
    DELETION_COST_ANNOTATION,
    REVISION_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    annotations_of,
    labels_of,
    name_of,
    selects_plainly,
    uid_of,
)
from bot.domain.cluster.rollout import replicas_of, revision_of, same_template, template_digest
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import ApprovalError, ClusterError
from bot.domain.kernel.target import Target, named_by
from bot.flow.ports.cluster import EarlierAttempt, Sent
from tests.domain.changes import snapshots

Key = tuple[str, str]
"""Kind and name; everything lives in one namespace."""
Trouble = Literal["lost_reply", "never_arrived", "cut_off", "429", "late", "not_sent"]
SETTLE_SECONDS = 2.0
"""How long the controllers take to make an edit true."""


class MemoryCluster:
    def __init__(self, now: Callable[[], float], *args: str, replicas: int = 4) -> None:
        """One workload `llm` of that many replicas, with these engine arguments."""
        self._now = now
        self._busy_until = 0.0
        self.settle_seconds = SETTLE_SECONDS
        self._made = 0
        self.objects: dict[Key, Obj] = {}
        self.applied: Counter[str] = Counter()
        """How often each call id has won."""
        self.sent: list[tuple[str, str]] = []
        """Every attempt: the call's id and what it came to."""
        self.troubles: list[Trouble | None] = []
        """What becomes of the next calls, in order; None: nothing special."""
        self._late: list[tuple[Call, str]] = []
        """Sent and not carried out yet: right before the next call is."""
        self.job_log = '{"score": 0.71, "baseline": 0.73, "eval": "gsm8k"}'
        self.job_fails = False
        self.unreachable = ""
        """Why reads fail; empty while they work."""
        self.failing_reads = 0
        """How many of the next reads fail."""
        self._put("Service", snapshots.service())
        for number in (1, 2, 3):
            self._put("Node", snapshots.node(number))
        self._put("Deployment", snapshots.deployment(snapshots.template(*args), replicas=replicas))
        self._control()

    # --- Cluster --------------------------------------------------------------------------------------------------

    async def resolve(self, alert: Alert) -> Target | None:
        self._reach()
        return named_by(alert.labels, "test")

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        self._reach()
        if self._now() >= self._busy_until:
            self._control()
        pods = self._all("Pod")
        canary = next((name_of(d) for d in self._all("Deployment") if CANARY_LABEL in labels_of(d)), "")
        return ClusterSnapshot(
            at=self._now(),
            workload=self._copy("Deployment", target.name),
            replica_sets=self._all("ReplicaSet"),
            pods=pods,
            services=self._all("Service"),
            endpoint_slices=(snapshots.endpoint_slice(*self._served(pods)),),
            pdbs=(snapshots.budget(),),
            nodes=self._all("Node"),
            all_pods=pods,
            canary=self._copy("Deployment", canary),
            cron_jobs=self._all("CronJob"),
            jobs=self._all("Job"),
        )

    async def lacking(self, calls: Sequence[Call]) -> str:
        return ""

    async def dry_run(self, call: Call) -> str:
        self._reach()
        if call.method == "patch":
            return misfit(call, self.objects.get(_key(call)))
        return ""

    async def last_lines(self, namespace: str, pod: str, *, lines: int) -> str | None:
        """`JobLogs`: what every Job here writes."""
        self._reach()
        return self.job_log

    # --- ClusterWriter --------------------------------------------------------------------------------------------

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        if call not in approved.plan.calls:
            raise ApprovalError(f"not a call of the approved plan: {call.title}")
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble == "429":
            return self._noted(call_id, Sent("failed", "no disruption allowed now", retry_after_seconds=10.0))
        if trouble == "not_sent":
            return self._noted(call_id, Sent("failed", "cannot be reached", retry_after_seconds=5.0))
        if trouble == "cut_off":
            self.unreachable = "nobody answers"
        if trouble == "late":
            self._late.append((call, call_id))
        if trouble in ("never_arrived", "cut_off", "late"):
            return self._noted(call_id, Sent("unclear", "no answer"))
        for late in self._late:
            self._apply(*late)
        self._late.clear()
        sent = self._apply(call, call_id)
        if trouble == "lost_reply":
            sent = Sent("unclear", "no answer")
        return self._noted(call_id, sent)

    async def look(self, call: Call, *, call_id: str) -> EarlierAttempt:
        if self.unreachable:
            return "unclear"
        return seen_in(call, self.objects.get(_key(call)), call_id=call_id)

    def _noted(self, call_id: str, sent: Sent) -> Sent:
        self.sent.append((call_id, sent.result))
        return sent

    def _apply(self, call: Call, call_id: str) -> Sent:
        key = _key(call)
        present = self.objects.get(key)
        if call.method == "create":
            if present is not None:
                return Sent("failed", "it exists already")
            made = stamped(copy.deepcopy(call.body), call_id)
            made["metadata"] |= {"uid": f"{key[1]}-uid", "generation": 1}
            self._put(call.target.kind, made)
        elif call.method in ("delete", "evict"):
            if present is None or uid_of(present) != call.target.uid:
                return Sent("done", "it was gone already")
            del self.objects[key]
        else:
            if reason := misfit(call, present):
                return Sent("failed", reason)
            assert present is not None
            self.objects[key] = self._patched(call, present, call_id)
        self.applied[call_id] += 1
        self._busy_until = self._now() + self.settle_seconds
        return Sent("done")

    @staticmethod
    def _patched(call: Call, present: Obj, call_id: str) -> Obj:
        body = copy.deepcopy(present)
        body["metadata"].setdefault("annotations", {})
        changed = applied(call.body, body)
        if call.stamped:
            changed["metadata"]["annotations"][CALL_ANNOTATION] = call_id
        if changed.get("spec") != present.get("spec"):
            changed["metadata"]["generation"] = int(present["metadata"].get("generation", 0)) + 1
        return changed

    # --- what a test does -----------------------------------------------------------------------------------------

    def edit(self, name: str, path: str, value: Any) -> None:
        """Somebody else replaces a field of a Deployment."""
        key = ("Deployment", name)
        assert value_at(self.objects[key], path) is not ABSENT, f"there is nothing at {path}"
        self.objects[key] = applied([{"op": "replace", "path": path, "value": value}], self.objects[key])
        self._control()

    def flags(self, name: str = "llm") -> list[str]:
        args: list[str] = self.objects["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["args"]
        return args

    def state(self) -> dict[str, Obj]:
        """Every object, as it can be compared between two runs."""
        self._control()
        return {f"{kind} {name}": copy.deepcopy(obj) for (kind, name), obj in sorted(self.objects.items())}

    # --- controllers ----------------------------------------------------------------------------------------------

    def _control(self) -> None:
        """What the controllers would have done by now."""
        deployments = {name_of(d): d for (kind, _), d in self.objects.items() if kind == "Deployment"}
        for key, found in list(self.objects.items()):
            owner = (found["metadata"].get("ownerReferences") or [{}])[0]
            if owner.get("kind") == "Deployment" and owner.get("name") not in deployments:
                self._drop_replica_set(key, found)
        for deployment in deployments.values():
            self._roll_out(deployment)
        for job in [obj for (kind, _), obj in self.objects.items() if kind == "Job" and "status" not in obj]:
            self._complete(job)

    def _complete(self, job: Obj) -> None:
        ended = {"type": "Failed", "reason": "BackoffLimitExceeded"} if self.job_fails else {"type": "Complete"}
        job["status"] = {"conditions": [ended | {"status": "True"}]}
        made = snapshots.pod(0)
        made["metadata"] |= {
            "name": f"{name_of(job)}-pod",
            "labels": {},
            "ownerReferences": snapshots.owner("Job", name_of(job), uid_of(job)),
        }
        self._put("Pod", made | {"status": {"phase": "Failed" if self.job_fails else "Succeeded"}})

    def _drop_replica_set(self, key: Key, replica_set: Obj) -> None:
        for pod in self._pods_of(replica_set):
            del self.objects["Pod", name_of(pod)]
        del self.objects[key]

    def _roll_out(self, deployment: Obj) -> None:
        current = self._replica_set_for(deployment)
        for other in self._replica_sets_of(deployment):
            for pod in self._pods_of(other) if other is not current else ():
                del self.objects["Pod", name_of(pod)]
        wanted, pods = replicas_of(deployment), self._pods_of(current)
        for pod in pods[: max(0, len(pods) - wanted)]:
            del self.objects["Pod", name_of(pod)]
        for _ in range(wanted - len(pods)):
            self._put("Pod", self._new_pod(current))
        counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), wanted)
        deployment["status"] = {"observedGeneration": deployment["metadata"].get("generation", 0), **counts}

    def _replica_set_for(self, deployment: Obj) -> Obj:
        owned = self._replica_sets_of(deployment)
        template = deployment["spec"]["template"]
        for found in owned:
            if same_template(found["spec"]["template"], template):
                return found
        revision = max((revision_of(found) or 0 for found in owned), default=0) + 1
        made = snapshots.replica_set(revision, template, of=uid_of(deployment), of_name=name_of(deployment))
        digest = template_digest(template)[:6]
        for labels in (made["metadata"]["labels"], made["spec"]["selector"]["matchLabels"]):
            labels[TEMPLATE_HASH_LABEL] = digest
        made["spec"]["template"]["metadata"]["labels"][TEMPLATE_HASH_LABEL] = digest
        self._put("ReplicaSet", made)
        deployment["metadata"].setdefault("annotations", {})[REVISION_ANNOTATION] = str(revision)
        return made

    def _replica_sets_of(self, deployment: Obj) -> list[Obj]:
        return [
            rs for (kind, _), rs in self.objects.items() if kind == "ReplicaSet" and _owner(rs) == uid_of(deployment)
        ]

    def _pods_of(self, replica_set: Obj) -> list[Obj]:
        """Those that would end first come first."""
        pods = [p for (kind, _), p in self.objects.items() if kind == "Pod" and _owner(p) == uid_of(replica_set)]
        return sorted(pods, key=lambda p: (int(annotations_of(p).get(DELETION_COST_ANNOTATION, "0")), name_of(p)))

    def _new_pod(self, replica_set: Obj) -> Obj:
        self._made += 1
        made = snapshots.pod(self._made)
        made["metadata"]["labels"] = dict(labels_of(replica_set["spec"]["template"]))
        made["metadata"]["ownerReferences"] = snapshots.owner("ReplicaSet", name_of(replica_set), uid_of(replica_set))
        made["spec"] = {**copy.deepcopy(replica_set["spec"]["template"]["spec"]), "nodeName": made["spec"]["nodeName"]}
        return made

    # --- objects --------------------------------------------------------------------------------------------------

    def _put(self, kind: str, obj: Obj) -> None:
        self.objects[kind, name_of(obj)] = obj

    def _copy(self, kind: str, name: str) -> Obj | None:
        return copy.deepcopy(self.objects.get((kind, name)))

    def _all(self, kind: str) -> tuple[Obj, ...]:
        """As they are: a patch makes a new object, and only Deployments are written in place (their status)."""
        return tuple(obj for (known, _), obj in self.objects.items() if known == kind)

    def _served(self, pods: tuple[Obj, ...]) -> list[Obj]:
        selectors = [service["spec"]["selector"] for service in self._all("Service")]
        return [pod for pod in pods if any(selects_plainly(selector, labels_of(pod)) for selector in selectors)]

    def _reach(self) -> None:
        if self.failing_reads:
            self.failing_reads -= 1
            raise ClusterError("the connection was reset")
        if self.unreachable:
            raise ClusterError(self.unreachable)


def _key(call: Call) -> Key:
    return call.target.kind, call.target.name


def _owner(obj: Obj) -> str:
    return str((obj["metadata"].get("ownerReferences") or [{}])[0].get("uid", ""))
