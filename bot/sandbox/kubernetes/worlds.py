"""The initial worlds of a server, as plain objects in the order of their creation.

`demo` is the serving cluster of the demo, `demo-of-two` a smaller one for real engines, `plain` two nodes for the
contract tests.
"""

from collections.abc import Callable
from typing import Any

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.registry import Options, Registry
from bot.sandbox.kubernetes.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    SERVICES,
    Resource,
)

Obj = dict[str, Any]
World = list[tuple[Resource, Obj]]

GPUS_PER_NODE = 4
REPLICAS = 4
ARGS = (
    "--served-model-name=tiny-llama",
    "--max-model-len=2048",
    "--block-size=32",
    "--num-gpu-blocks-override=128",
    "--max-num-seqs=64",
    "--shutdown-timeout=20",
)


SEEDED_BY = "kubectl-create"


def seed(registry: Registry, name: str, *, image: str = "") -> None:
    """Creates every namespace that a new cluster has, then the world's objects. `image` replaces that of the engine."""
    for namespace in ("default", "kube-system"):
        registry.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    for resource, obj in WORLDS[name]():
        if image and resource is DEPLOYMENTS:
            obj["spec"]["template"]["spec"]["containers"][0]["image"] = image
        registry.create(resource, obj["metadata"].get("namespace", ""), obj, Options(manager=SEEDED_BY))


def empty() -> World:
    return []


def plain() -> World:
    return [(NODES, node(f"node-{number}", gpus=0)) for number in (1, 2)]


def demo(replicas: int = REPLICAS) -> World:
    """Cluster `sandbox`: three GPU nodes, and replicas of one model, of which one may be away."""
    namespaces: World = [(NAMESPACES, {"metadata": {"name": name}}) for name in ("serving", "monitoring")]
    nodes: World = [(NODES, node(f"gpu-node-{number}", gpus=GPUS_PER_NODE)) for number in (1, 2, 3)]
    return [
        *namespaces,
        *nodes,
        (SERVICES, _service()),
        (DISRUPTION_BUDGETS, _budget(replicas - 1)),
        (DEPLOYMENTS, _deployment(replicas)),
    ]


def node(name: str, *, gpus: int) -> Obj:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "a",
    }
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    if gpus:
        labels["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
        amounts["nvidia.com/gpu"] = str(gpus)
    healthy = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
    }
    stamp = clock.stamp()
    conditions = [
        {
            "type": kind,
            "status": truth,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind, (truth, reason, message) in healthy.items()
    ]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": conditions,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "sandbox://1",
                "kernelVersion": "6.8.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.0",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "sandbox",
                "systemUUID": "",
            },
        },
    }


def _deployment(replicas: int) -> Obj:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve", "tiny-llama"],
        "args": list(ARGS),
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "96Gi"}, "requests": {"memory": "64Gi"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": 10}}},
    }
    return {
        "metadata": {"name": "llm", "namespace": "serving", "labels": {"app": "llm"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "llm"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "llm", "serving": "active", "model": "tiny-llama"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 60},
            },
        },
    }


def _service() -> Obj:
    # `serving` is in this selector and not in the ReplicaSet's: changing it takes a pod out of rotation alone.
    return {
        "metadata": {"name": "llm", "namespace": "serving", "labels": {"app": "llm"}},
        "spec": {
            "selector": {"app": "llm", "serving": "active"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def _budget(least: int) -> Obj:
    return {
        "metadata": {"name": "llm", "namespace": "serving"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "llm"}}},
    }


def demo_of_two() -> World:
    """As many replicas as two cores run of real engines."""
    return demo(replicas=2)


WORLDS: dict[str, Callable[[], World]] = {"empty": empty, "plain": plain, "demo": demo, "demo-of-two": demo_of_two}
