"""The defaults of a real API server, so that an object read back looks as it does on a real cluster.

Defaults are filled into a copy that the caller owns; a given value is never changed.
"""

from collections.abc import Callable
from typing import Any

from bot.sandbox.kubernetes.resources import (
    AUTOSCALERS,
    CRON_JOBS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JOBS,
    LEADER_WORKER_SETS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)

Obj = dict[str, Any]

NOT_READY_TOLERATIONS = tuple(
    {
        "effect": "NoExecute",
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
)


def fill(resource: Resource, obj: Obj) -> None:
    """Fills in the defaults of this kind, in place."""
    filler = _FILLERS.get(resource)
    if filler is not None:
        filler(obj)


def _namespace(obj: Obj) -> None:
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _node(obj: Obj) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])


def _pod(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec.setdefault("tolerations", [])
    for one in NOT_READY_TOLERATIONS:
        if not any(have.get("key") == one["key"] for have in tolerations):
            tolerations.append(dict(one))
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", _quality_of_service(spec))


def _quality_of_service(spec: Obj) -> str:
    resources = [container.get("resources") or {} for container in spec.get("containers") or []]
    wanted = ("cpu", "memory")
    if all(
        one.get("limits", {}).get(name) and one["limits"][name] == one.get("requests", {}).get(name)
        for one in resources
        for name in wanted
    ):
        return "Guaranteed"
    mentioned = any(
        name in one.get(part, {}) for one in resources for part in ("limits", "requests") for name in wanted
    )
    return "Burstable" if mentioned else "BestEffort"


def pod_spec(spec: Obj) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        _container(container)


def _container(container: Obj) -> None:
    image = str(container.get("image", ""))
    is_latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for port in container.get("ports", []):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", []):
        if variable.get("value") == "":
            del variable["value"]
        if "fieldRef" in variable.get("valueFrom", {}):
            variable["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])


def _probe(probe: Obj) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("scheme", "HTTP")
        probe["httpGet"].setdefault("path", "/")


def _template(spec: Obj) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}))


def _deployment(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    _template(spec)
    obj.setdefault("status", {})


def _replica_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _template(spec)
    obj.setdefault("status", {}).setdefault("replicas", 0)


def _stateful_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    _template(spec)
    obj.setdefault("status", {}).setdefault("replicas", 0)


def _leader_worker_set(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("startupPolicy", "LeaderCreated")
    group = spec.setdefault("leaderWorkerTemplate", {})
    group.setdefault("size", 1)
    group.setdefault("restartPolicy", "RecreateGroupOnPodRestart")
    strategy = spec.setdefault("rolloutStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    rolling = strategy.setdefault("rollingUpdateConfiguration", {})
    for key, value in (("partition", 0), ("maxUnavailable", 1), ("maxSurge", 0)):
        rolling.setdefault(key, value)
    obj.setdefault("status", {})


def _autoscaler(obj: Obj) -> None:
    obj.setdefault("spec", {}).setdefault("minReplicas", 1)


def _job(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _job_spec(spec)
    # Each Job selects its own pods by a label that the server generates.
    uid, name = obj["metadata"].get("uid", ""), obj["metadata"].get("name", "")
    if uid and "selector" not in spec:
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        own = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        labels = spec["template"]["metadata"].get("labels") or {}
        spec["template"]["metadata"]["labels"] = {**labels, **own, "controller-uid": uid, "job-name": name}
    obj.setdefault("status", {})


def _job_spec(spec: Obj) -> None:
    for key, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6), ("suspend", False)):
        spec.setdefault(key, value)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    _template(spec)


def _cron_job(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    _template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))
    obj.setdefault("status", {})


def _service(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4"])
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def _disruption_budget(obj: Obj) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    for key in ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"):
        status.setdefault(key, 0)


_FILLERS: dict[Resource, Callable[[Obj], None]] = {
    NAMESPACES: _namespace,
    NODES: _node,
    PODS: _pod,
    SERVICES: _service,
    DEPLOYMENTS: _deployment,
    REPLICA_SETS: _replica_set,
    STATEFUL_SETS: _stateful_set,
    LEADER_WORKER_SETS: _leader_worker_set,
    AUTOSCALERS: _autoscaler,
    DISRUPTION_BUDGETS: _disruption_budget,
    JOBS: _job,
    CRON_JOBS: _cron_job,
}
