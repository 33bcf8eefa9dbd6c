"""A cluster as probes read it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

OPENED = 1_790_000_000.0
MINUTES = 60.0


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def template(*args: str, image: str = "vllm/vllm-openai:v0.32.0", **spec: Any) -> Obj:
    container = {"name": "vllm", "image": image, "command": ["vllm", "serve", "m"], "args": list(args)}
    return {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [container], **spec}}


def revision(number: int, pods: Obj, *, minutes_before: float, stamp: str = "", reused: bool = False) -> Obj:
    annotations = {"deployment.kubernetes.io/revision": str(number)}
    if stamp:
        annotations["incident-bot/call"] = stamp
    if reused:
        annotations["deployment.kubernetes.io/revision-history"] = "1"
    return {
        "metadata": {
            "name": f"llm-{number}",
            "uid": f"rs-{number}",
            "creationTimestamp": at(OPENED - minutes_before * MINUTES),
            "annotations": annotations,
            "ownerReferences": [{"kind": "Deployment", "uid": "d", "controller": True}],
        },
        "spec": {"template": pods, "selector": {"matchLabels": {"app": "llm"}}},
    }


def snapshot(*replica_sets: Obj, **parts: Any) -> ClusterSnapshot:
    newest = replica_sets[0]["spec"]["template"] if replica_sets else template()
    workload = {
        "metadata": {"name": "llm", "namespace": "serving", "uid": "d"},
        "spec": {"replicas": 4, "template": newest, "selector": {"matchLabels": {"app": "llm"}}},
        "status": parts.pop("status", {}),
    }
    return ClusterSnapshot(at=OPENED, workload=workload, replica_sets=replica_sets, **parts)


OLD = revision(1, template("--max-num-seqs=64"), minutes_before=60 * 24 * 9)


def endpoints(*names: str) -> Obj:
    return {"endpoints": [{"targetRef": {"uid": f"uid-{name}"}, "conditions": {"ready": True}} for name in names]}
