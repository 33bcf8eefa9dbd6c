"""A StatefulSet whose replicas are numbered."""

from __future__ import annotations

import copy
from typing import Any

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.snapshots import owner, snapshot, template


def stateful_set(pod_template: Obj | None = None, **spec: Any) -> Obj:
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), 3)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "llm", "namespace": "serving", "uid": "sts-uid", "generation": 2},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "llm"}}, "template": pod_template or template()}
        | spec,
        "status": {"observedGeneration": 2, "updateRevision": "llm-b", **counts},
    }


def member(number: int, *, revision: str = "llm-b") -> Obj:
    name = f"llm-{number}"
    labels = {"app": "llm", "serving": "active", "apps.kubernetes.io/pod-index": str(number)}
    return ready_pod(name, labels | {"controller-revision-hash": revision}, owner("StatefulSet", "llm", "sts-uid"))


def ready_pod(name: str, labels: dict[str, str], owners: list[Obj], spec: Obj | None = None) -> Obj:
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"{name}-uid",
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {**copy.deepcopy(spec or template()["spec"]), "nodeName": "gpu-node-1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def kept(number: int, pod_template: Obj) -> Obj:
    """A ControllerRevision, `llm-a` or `llm-b`: a patch of the template, in the words of the API server."""
    stored = copy.deepcopy(pod_template) | {"$patch": "replace"}
    stored["metadata"]["creationTimestamp"] = None
    metadata = {"name": f"llm-{'_ab'[number]}", "ownerReferences": owner("StatefulSet", "llm", "sts-uid")}
    return {"metadata": metadata, "revision": number, "data": {"spec": {"template": stored}}}


def numbered_world(workload: Obj | None = None, **parts: Any) -> ClusterSnapshot:
    pods = tuple(member(number) for number in range(3))
    older = template("--served-model-name=tiny-llama", "--max-num-seqs=128")
    given = {"revisions": (kept(1, older), kept(2, template())), "replica_sets": (), "pods": pods} | parts
    return snapshot(workload=workload or stateful_set(), **given)
