"""A small serving cluster as plain objects: one workload of four replicas on three nodes, as the API gives them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Plan, PlanResult
from bot.domain.changes.planning import plan_change
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import ReplicaLoad

NOW = 1_800_000_000.0
STAMP = "2027-01-15T08:00:00Z"
"""The same moment as `NOW`."""
ARGS = ("--served-model-name=tiny-llama", "--max-model-len=2048", "--max-num-seqs=64", "--shutdown-timeout=20")
CONTEXT = PlanContext(incident_id="INC-42", now=NOW)
CANARY = "llm-incident-bot-canary-inc-42"


def container(*args: str, **fields: Any) -> Obj:
    return {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve", "tiny-llama"],
        "args": list(args or ARGS),
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 10}}},
    } | fields


def template(*args: str, **fields: Any) -> Obj:
    return {
        "metadata": {"labels": {"app": "llm", "serving": "active"}},
        "spec": {"containers": [container(*args, **fields)], "terminationGracePeriodSeconds": 60},
    }


def deployment(pod_template: Obj | None = None, *, replicas: int = 4, **spec: Any) -> Obj:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "llm",
            "namespace": "serving",
            "uid": "deploy-uid",
            "generation": 3,
            "labels": {"app": "llm"},
            "annotations": {"deployment.kubernetes.io/revision": "2"},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "llm"}},
            "strategy": strategy,
            "template": pod_template or template(),
        }
        | spec,
        "status": {
            "observedGeneration": 3,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
            "readyReplicas": replicas,
        },
    }


def owner(kind: str, name: str, uid: str) -> list[Obj]:
    return [{"kind": kind, "name": name, "uid": uid, "controller": True}]


def replica_set(revision: int, pod_template: Obj, *, of: str = "deploy-uid", of_name: str = "llm") -> Obj:
    hashed = copy.deepcopy(pod_template)
    hashed["metadata"]["labels"]["pod-template-hash"] = f"h{revision}"
    labels = {"app": "llm", "pod-template-hash": f"h{revision}"}
    return {
        "metadata": {
            "name": f"{of_name}-h{revision}",
            "namespace": "serving",
            "uid": f"{of_name}-rs-{revision}",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": owner("Deployment", of_name, of),
        },
        "spec": {"selector": {"matchLabels": labels}, "template": hashed},
    }


def pod(number: int, *, revision: int = 2, is_ready: bool = True, **labels: str) -> Obj:
    """Pod `llm-<number>` on `gpu-node-<1..3>`, two to a node at most."""
    name = f"llm-{number}"
    given = {"app": "llm", "serving": "active", "pod-template-hash": f"h{revision}"} | labels
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"{name}-uid",
            "labels": given,
            "creationTimestamp": STAMP,
            "ownerReferences": owner("ReplicaSet", f"llm-h{revision}", f"llm-rs-{revision}"),
        },
        "spec": {**template()["spec"], "nodeName": f"gpu-node-{(number - 1) % 3 + 1}"},
        "status": {
            "phase": "Running",
            "podIP": f"127.1.1.{number}",
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        },
    }


def service(name: str = "llm", **selector: str) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "serving"},
        "spec": {"selector": selector or {"app": "llm", "serving": "active"}},
    }


def endpoint_slice(*pods: Obj) -> Obj:
    return {
        "metadata": {"name": "llm-abc", "labels": {"kubernetes.io/service-name": "llm"}},
        "endpoints": [
            {"conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": one["metadata"]["uid"]}} for one in pods
        ],
    }


def budget(*, allowed: int = 1, healthy: int = 4, desired: int = 3, name: str = "llm") -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {"minAvailable": desired, "selector": {"matchLabels": {"app": "llm"}}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": 4,
        },
    }


def node(number: int, *, gpus: int = 4, is_ready: bool = True, **spec: Any) -> Obj:
    return {
        "metadata": {
            "name": f"gpu-node-{number}",
            "uid": f"gpu-node-{number}-uid",
            "labels": {"kubernetes.io/hostname": f"gpu-node-{number}"},
        },
        "spec": spec,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        },
    }


def snapshot(**parts: Any) -> ClusterSnapshot:
    """Four healthy replicas of revision 2; revision 1 had --max-num-seqs 128. Any part can be given instead."""
    workload = parts.pop("workload", deployment())
    pods = parts.pop("pods", tuple(pod(number) for number in (1, 2, 3, 4)))
    older = template("--served-model-name=tiny-llama", "--max-model-len=2048", "--max-num-seqs=128")
    defaults = ClusterSnapshot(
        at=NOW,
        workload=workload,
        replica_sets=(replica_set(1, older), replica_set(2, (workload or deployment())["spec"]["template"])),
        pods=pods,
        services=(service(),),
        endpoint_slices=(endpoint_slice(*(p for p in pods if p["metadata"]["labels"].get("serving") == "active")),),
        pdbs=(budget(),),
        nodes=tuple(node(number) for number in (1, 2, 3)),
        all_pods=pods,
    )
    return replace(defaults, **parts)


def load(running: float = 0.0, waiting: float = 0.0, arrivals: float | None = 0.0) -> ReplicaLoad:
    return ReplicaLoad(running, waiting, arrivals_in_window=arrivals, window_seconds=60.0)


def planned(verb: str, arguments: dict[str, Any], seen: ClusterSnapshot, context: PlanContext = CONTEXT) -> Plan:
    result = plan_change(verb, arguments, seen, context)
    assert result.plan is not None, f"{result.outcome}: {result.reason}"
    return result.plan


def declined(verb: str, arguments: dict[str, Any], seen: ClusterSnapshot, context: PlanContext = CONTEXT) -> PlanResult:
    result = plan_change(verb, arguments, seen, context)
    assert result.plan is None, f"planned: {result.plan.title}"
    return result


def grade(plan: Plan, name: str) -> str:
    return next(c.grade for c in plan.circumstances if c.name == name)


def weighed(plan: Plan, name: str) -> str:
    return next(c.text for c in plan.circumstances if c.name == name)
