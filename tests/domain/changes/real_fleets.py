"""Fleets as their charts and examples make them, with what the API server and Helm add: one of each kind of workload.

`production_stack`: the engine of vLLM's production-stack chart, with its ScaledObject paused by a person.
`kueue_groups`: the LeaderWorkerSet project's example of vLLM under Kueue, with two groups. `karpenter_zones`: a KServe
predictor in RawDeployment mode that spreads over zones on Karpenter's nodes, under a budget that allows no eviction.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import ReplicaLoad
from tests.domain.changes.snapshots import NOW, STAMP, owner, replica_set

NAMESPACE = "serving"
LWS = "leaderworkerset.sigs.k8s.io"
BUSY = ReplicaLoad(running=6.0, waiting=1.0, arrivals_in_window=20.0, window_seconds=60.0)


def _metadata(name: str, **fields: Any) -> Obj:
    return {"name": name, "namespace": NAMESPACE, "uid": f"{name}-uid", **fields}


def _node(name: str, gpus: int, labels: dict[str, str] | None = None, **annotations: str) -> Obj:
    return {
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            "labels": {"kubernetes.io/hostname": name} | (labels or {}),
            "annotations": {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()},
        },
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(name: str, template: Obj, labels: dict[str, str], owners: list[Obj], node: str = "", **spec: Any) -> Obj:
    ready = "True" if node else "False"
    conditions = [{"type": "Ready", "status": ready}]
    if spec.get("schedulingGates"):
        blocked = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        conditions.append(blocked | {"message": "Scheduling is blocked due to non-empty scheduling gates"})
    written = copy.deepcopy(template["spec"]) | spec | ({"nodeName": node} if node else {})
    metadata = _metadata(name, labels=labels, ownerReferences=owners, creationTimestamp=STAMP)
    metadata["annotations"] = dict(template["metadata"].get("annotations") or {})
    return {
        "metadata": metadata,
        "spec": written,
        "status": {"phase": "Running" if node else "Pending", "conditions": conditions},
    }


def _of_deployment(workload: Obj, nodes: list[str]) -> tuple[tuple[Obj, ...], Obj]:
    template, name = workload["spec"]["template"], workload["metadata"]["name"]
    set_ = replica_set(2, template, of=workload["metadata"]["uid"], of_name=name)
    set_["spec"]["selector"] = {"matchLabels": template["metadata"]["labels"] | {"pod-template-hash": "h2"}}
    owners = owner("ReplicaSet", set_["metadata"]["name"], set_["metadata"]["uid"])
    labels = template["metadata"]["labels"] | {"pod-template-hash": "h2"}
    pods = tuple(_pod(f"{name}-{at}", template, labels, owners, node) for at, node in enumerate(nodes, start=1))
    return pods, set_


def _slice(service: str, *pods: Obj) -> Obj:
    return {
        "metadata": {"name": f"{service}-abc", "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [
            {"conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": one["metadata"]["uid"]}} for one in pods
        ],
    }


def _counts(replicas: int) -> Obj:
    counted = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
    return {"observedGeneration": 1, **dict.fromkeys(counted, replicas)}


# --- vLLM production-stack --------------------------------------------------------------------------------------------

STACK_LABELS = {"model": "llama3", "helm-release-name": "vllm", "environment": "test", "release": "test"}
STACK_COMMAND = [
    *("vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--host", "0.0.0.0", "--port", "8000"),
    *("--enable-chunked-prefill", "--no-enable-prefix-caching", "--max-model-len", "16384", "--dtype", "bfloat16"),
    *("--max-num-seqs", "64", "--gpu_memory_utilization", "0.95", "--disable-log-requests"),
    *("--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'),
]


def production_stack(**parts: Any) -> ClusterSnapshot:
    probe = {"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 15, "periodSeconds": 10}
    engine = {
        "name": "vllm",
        "image": "lmcache/vllm-openai:v0.3.7",
        "command": STACK_COMMAND,
        "imagePullPolicy": "Always",
        "env": [
            {"name": "HF_HOME", "value": "/data"},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/tmp"},
            {"name": "LMCACHE_USE_EXPERIMENTAL", "value": "True"},
            {"name": "LMCACHE_LOCAL_CPU", "value": "True"},
            {"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": "20"},
        ],
        "ports": [{"name": "container-port", "containerPort": 8000}, {"name": "zmq-port", "containerPort": 55555}],
        "startupProbe": probe | {"failureThreshold": 60},
        "livenessProbe": probe | {"failureThreshold": 3},
        "resources": {
            "requests": {"memory": "16Gi", "cpu": "6", "nvidia.com/gpu": "1"},
            "limits": {"nvidia.com/gpu": "1"},
        },
    }
    template: Obj = {
        "metadata": {"labels": dict(STACK_LABELS)},
        "spec": {
            "hostname": "vllm-llama3-vllm-stack",
            "subdomain": "vllm-llama3-engine-service",
            "containers": [engine],
            "terminationGracePeriodSeconds": 30,
        },
    }
    name = "vllm-llama3-deployment-vllm"
    workload: Obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(
            name,
            generation=1,
            labels=STACK_LABELS | {"app.kubernetes.io/managed-by": "Helm"},
            annotations={"meta.helm.sh/release-name": "vllm", "deployment.kubernetes.io/revision": "2"},
        ),
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": dict(STACK_LABELS)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
            "progressDeadlineSeconds": 1200,
            "template": template,
        },
        "status": _counts(4),
    }
    pods, newest = _of_deployment(workload, ["gpu-1", "gpu-1", "gpu-2", "gpu-2"])
    older = copy.deepcopy(template)
    older["spec"]["containers"][0]["command"] = [*STACK_COMMAND[:14], "128", *STACK_COMMAND[15:]]
    service = "vllm-llama3-engine-service"
    seen = ClusterSnapshot(
        at=NOW,
        workload=workload,
        replica_sets=(replica_set(1, older, of=f"{name}-uid", of_name=name), newest),
        pods=pods,
        all_pods=pods,
        services=(
            {
                "metadata": _metadata(service),
                "spec": {"selector": {"model": "llama3", "helm-release-name": "vllm"}},
            },
        ),
        endpoint_slices=(_slice(service, *pods),),
        nodes=(_node("gpu-1", 4), _node("gpu-2", 4)),
        load={one["metadata"]["name"]: BUSY for one in pods},
    )
    return replace(seen, **parts)


def paused_by_hand() -> Obj:
    return {
        "metadata": _metadata(
            "vllm-llama3-scaledobject",
            labels=STACK_LABELS | {"app.kubernetes.io/managed-by": "Helm"},
            annotations={"meta.helm.sh/release-name": "vllm", "autoscaling.keda.sh/paused-replicas": "4"},
        ),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm-llama3-deployment-vllm"},
            "minReplicaCount": 1,
            "maxReplicaCount": 6,
            "idleReplicaCount": 0,
        },
    }


# --- LeaderWorkerSet under Kueue --------------------------------------------------------------------------------------

SERVE = ("vllm", "serve", "zai-org/GLM-4.6")
PARALLEL = ("--tensor-parallel-size", "8", "--pipeline-parallel-size", "2")
NODES = (
    *("--nnodes", "$(LWS_GROUP_SIZE)", "--node-rank", "$(LWS_WORKER_INDEX)"),
    *("--master-addr", "$(LWS_LEADER_ADDRESS)"),
)
KUEUE = {
    "kueue.x-k8s.io/podset-group-name": "vllm-multi-host",
    "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gce-topology-block",
}
PEERS = {"clusterIP": "None", "publishNotReadyAddresses": True}
"""The controller makes such a Service, by which the pods of all groups find each other."""
GATES = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]


def _group_container(name: str, *command: str) -> Obj:
    return {
        "name": name,
        "image": "vllm/vllm-openai:v0.28.0",
        "command": [*command, "--trust-remote-code"],
        "env": [{"name": "HF_TOKEN", "value": "$HF_TOKEN"}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
    }


def kueue_groups(*, gated: bool = False) -> ClusterSnapshot:
    """`gated`: Kueue has not admitted the second group."""
    volumes = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "15Gi"}}]
    leader_container = _group_container("vllm-leader", *SERVE, "--port", "8080", *PARALLEL, *NODES)
    leader_container["ports"] = [{"containerPort": 8080}]
    leader_container["readinessProbe"] = {"tcpSocket": {"port": 8080}, "initialDelaySeconds": 15, "periodSeconds": 10}
    queue = {"kueue.x-k8s.io/queue-name": "default"}
    leader: Obj = {
        "metadata": {"labels": {"role": "leader", **queue}, "annotations": dict(KUEUE)},
        "spec": {"containers": [leader_container], "volumes": volumes},
    }
    worker: Obj = {
        "metadata": {"labels": dict(queue), "annotations": dict(KUEUE)},
        "spec": {
            "containers": [_group_container("vllm-worker", *SERVE, *PARALLEL, *NODES, "--headless")],
            "volumes": volumes,
        },
    }
    ready = 1 if gated else 2
    workload: Obj = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _metadata("vllm", generation=1, labels=dict(queue)),
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 2,
                "restartPolicy": "RecreateGroupAfterStart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
        "status": {"replicas": 2, "readyReplicas": ready, "updatedReplicas": 2},
    }
    pods: list[Obj] = []
    for group in (0, 1):
        held: dict[str, Any] = {"schedulingGates": GATES} if gated and group else {}
        marks = {f"{LWS}/name": "vllm", f"{LWS}/group-index": str(group)}
        for index, template in enumerate((leader, worker)):
            name = f"vllm-{group}" if index == 0 else f"vllm-{group}-{index}"
            of = owner("StatefulSet", "vllm" if index == 0 else f"vllm-{group}", f"set-{group}-{index}")
            labels = template["metadata"]["labels"] | marks | {f"{LWS}/worker-index": str(index)}
            pods.append(_pod(name, template, labels, of, "" if held else f"h100-{2 * group + index}", **held))
    leaders = [pod for pod in pods if pod["metadata"]["labels"][f"{LWS}/worker-index"] == "0"]
    of_set = {f"{LWS}/name": "vllm"}
    selector = of_set | {"role": "leader"}
    return ClusterSnapshot(
        at=NOW,
        workload=workload,
        pods=tuple(pods),
        all_pods=tuple(pods),
        services=(
            {"metadata": _metadata("vllm-leader"), "spec": {"selector": selector}},
            {"metadata": _metadata("vllm", labels=of_set), "spec": {"selector": of_set, **PEERS}},
        ),
        endpoint_slices=(_slice("vllm-leader", *leaders[:ready]), _slice("vllm", *pods)),
        nodes=tuple(_node(f"h100-{number}", 8) for number in range(6)),
        load={one["metadata"]["name"]: BUSY for one in leaders[:ready]},
    )


# --- KServe on Karpenter's nodes --------------------------------------------------------------------------------------

ISVC = {"app": "isvc.llama-predictor", "serving.kserve.io/inferenceservice": "llama", "component": "predictor"}


def karpenter_zones(*, by_kserve: bool = True) -> ClusterSnapshot:
    """`by_kserve`: without it the same Deployment, applied by hand."""
    engine = {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.28.0",
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "args": ["--port", "8080", "--model", "/mnt/models", "--max-num-seqs=64"],
        "ports": [{"name": "http1", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "resources": {
            "requests": {"cpu": "4", "memory": "12Gi", "nvidia.com/gpu": "1"},
            "limits": {"nvidia.com/gpu": "1"},
        },
    }
    labels = ISVC if by_kserve else {"app": "isvc.llama-predictor"}
    template: Obj = {
        "metadata": {"labels": dict(labels), "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {
            "initContainers": [{"name": "storage-initializer", "image": "kserve/storage-initializer:v0.15.2"}],
            "containers": [engine],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "isvc.llama-predictor"}},
                }
            ],
            "terminationGracePeriodSeconds": 30,
        },
    }
    name = "llama-predictor"
    workload: Obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(
            name, generation=1, labels=dict(labels), annotations={"deployment.kubernetes.io/revision": "2"}
        ),
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "isvc.llama-predictor"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": template,
        },
        "status": _counts(3),
    }
    if by_kserve:
        workload["metadata"]["ownerReferences"] = owner("InferenceService", "llama", "isvc-uid")
    zones = ("a", "b", "c")
    pods, newest = _of_deployment(workload, [f"karpenter-{zone}" for zone in zones])
    older = copy.deepcopy(template)
    older["spec"]["containers"][0]["args"][-1] = "--max-num-seqs=128"
    trainer = {
        "metadata": {
            "name": "finetune-0",
            "namespace": "training",
            "uid": "finetune-uid",
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            "ownerReferences": owner("Job", "finetune", "finetune-job"),
        },
        "spec": {"nodeName": "karpenter-b", "containers": [{"name": "train", "resources": {}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    everything_needed = {
        "metadata": _metadata("llama"),
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "isvc.llama-predictor"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3},
    }
    pools = [{"karpenter.sh/nodepool": "gpu", "topology.kubernetes.io/zone": zone} for zone in zones]
    return ClusterSnapshot(
        at=NOW,
        workload=workload,
        replica_sets=(replica_set(1, older, of=f"{name}-uid", of_name=name), newest),
        pods=pods,
        all_pods=(*pods, trainer),
        services=({"metadata": _metadata(name), "spec": {"selector": {"app": "isvc.llama-predictor"}}},),
        endpoint_slices=(_slice(name, *pods),),
        pdbs=(everything_needed,),
        nodes=tuple(
            _node(f"karpenter-{zone}", 2, labels, karpenter_sh__do_not_disrupt="true")
            for zone, labels in zip(zones, pools, strict=True)
        ),
        load={one["metadata"]["name"]: BUSY for one in pods},
    )
