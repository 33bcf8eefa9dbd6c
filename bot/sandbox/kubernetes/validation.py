"""Everything that a real API server refuses with 422: invalid values, and changes of immutable fields.

A rule is here if the bot can break it; each yields causes in the server's own wording.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from bot.domain.kernel.quantity import parse_quantity
from bot.sandbox.kubernetes.errors import Cause
from bot.sandbox.kubernetes.quantities import resolve_int_or_percent
from bot.sandbox.kubernetes.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    INFERENCE_POOLS,
    JOBS,
    LEADER_WORKER_SETS,
    OLDER_INFERENCE_POOLS,
    PODS,
    REPLICA_SETS,
    SCALED_OBJECTS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from bot.sandbox.kubernetes.selectors import matches

Obj = dict[str, Any]
Causes = Iterator[Cause]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NO_NAME = "name or generateName is required"
_BAD_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_BAD_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_BAD_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_POD_UPDATE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_STATEFUL_SET_UPDATE = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STATEFUL_SET_FREE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
IMMUTABLE = "field is immutable"
MAX_TARGET_PORTS = 8
MAX_PORT = 65535


def causes_of(resource: Resource, obj: Obj, before: Obj | None) -> list[Cause]:
    """Every reason to refuse `obj`, which would replace `before` (None: it would be created)."""
    causes = list(_metadata(obj))
    if resource in _RULES:
        causes.extend(_RULES[resource](obj))
    if before is not None and resource in _UPDATE_RULES:
        causes.extend(_UPDATE_RULES[resource](obj, before))
    return causes


def _metadata(obj: Obj) -> Causes:
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    if not name:
        yield Cause.required("metadata.name", _NO_NAME)
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield Cause.invalid("metadata.name", name, _BAD_SUBDOMAIN)
    yield from _labels(metadata.get("labels"), "metadata.labels")
    for key in metadata.get("annotations") or {}:
        if not _QUALIFIED.fullmatch(key.lower()):
            yield Cause.invalid("metadata.annotations", key, _BAD_KEY)


def _labels(labels: Obj | None, path: str) -> Causes:
    for key, value in (labels or {}).items():
        if not _QUALIFIED.fullmatch(key):
            yield Cause.invalid(path, key, _BAD_KEY)
        if len(value) > 63:
            yield Cause(path, f'Invalid value: "{value}": must be no more than 63 bytes')
        elif not _LABEL_VALUE.fullmatch(value):
            yield Cause.invalid(path, value, _BAD_VALUE)


def _pod(obj: Obj) -> Causes:
    yield from _pod_spec(obj.get("spec", {}), "spec")


def _pod_spec(spec: Obj, path: str) -> Causes:
    containers = spec.get("containers") or []
    if not containers:
        yield Cause.required(f"{path}.containers")
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        if container.get("name") in seen:
            yield Cause.duplicate(f"{where}.name", container["name"])
        seen.add(container.get("name", ""))
        yield from _container(container, where)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        yield Cause.unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield Cause.invalid(
            f"{path}.terminationGracePeriodSeconds",
            spec["terminationGracePeriodSeconds"],
            "must be greater than or equal to 0",
        )


def _container(container: Obj, path: str) -> Causes:
    name = container.get("name", "")
    if not name:
        yield Cause.required(f"{path}.name")
    elif not _LABEL.fullmatch(name):
        yield Cause.invalid(f"{path}.name", name, _BAD_LABEL)
    if not container.get("image"):
        yield Cause.required(f"{path}.image")
    for index, one in enumerate(container.get("env") or []):
        if not one.get("name"):
            yield Cause.required(f"{path}.env[{index}].name")
        if one.get("value") and "valueFrom" in one:
            yield Cause.invalid(f"{path}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty")
    for index, port in enumerate(container.get("ports") or []):
        if not 0 < port.get("containerPort", 0) < 65536:
            yield Cause.invalid(
                f"{path}.ports[{index}].containerPort",
                port.get("containerPort", 0),
                "must be between 1 and 65535, inclusive",
            )
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Obj, path: str) -> Causes:
    amounts: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for part, parsed in amounts.items():
        for name, text in (resources.get(part) or {}).items():
            try:
                parsed[name] = parse_quantity(text)
            except ValueError as error:
                yield Cause.invalid(f"{path}.{part}[{name}]", text, str(error))
                continue
            if _is_extended(name) and parsed[name].denominator != 1:
                yield Cause.invalid(f"{path}.{part}[{name}]", text, "must be an integer")
    for name, request in amounts["requests"].items():
        limit = amounts["limits"].get(name)
        if _is_extended(name) and limit is None:
            yield Cause.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif _is_extended(name) and limit != request:
            text = resources["requests"][name]
            yield Cause.invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}")
        elif limit is not None and request > limit:
            text = resources["requests"][name]
            yield Cause.invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}")


def _is_extended(name: str) -> bool:
    return "/" in name and not name.startswith("kubernetes.io/")


def _workload(obj: Obj) -> Causes:
    spec = obj["spec"]
    if spec.get("replicas", 0) < 0:
        yield Cause.invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    selector = spec.get("selector")
    labels = spec["template"].get("metadata", {}).get("labels") or {}
    if selector is None:
        yield Cause.required("spec.selector")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield Cause.invalid("spec.selector", selector, "empty selector is invalid for deployment")
    elif not matches(selector, labels):
        yield Cause.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _labels(labels, "spec.template.labels")
    yield from _pod_spec(spec["template"].get("spec", {}), "spec.template.spec")
    if spec["template"].get("spec", {}).get("restartPolicy") in ("OnFailure", "Never"):
        yield Cause.unsupported(
            "spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"], ("Always",)
        )


def _deployment(obj: Obj) -> Causes:
    yield from _workload(obj)
    spec = obj["spec"]
    strategy = spec["strategy"]
    if strategy["type"] not in ("Recreate", "RollingUpdate"):
        yield Cause.unsupported("spec.strategy.type", strategy["type"], ("Recreate", "RollingUpdate"))
    elif strategy["type"] == "Recreate" and "rollingUpdate" in strategy:
        yield Cause.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif strategy["type"] == "RollingUpdate":
        yield from _rolling(strategy["rollingUpdate"])
    if spec["progressDeadlineSeconds"] <= spec.get("minReadySeconds", 0):
        yield Cause.invalid(
            "spec.progressDeadlineSeconds",
            spec["progressDeadlineSeconds"],
            "must be greater than minReadySeconds",
        )


def _stateful_set(obj: Obj) -> Causes:
    yield from _workload(obj)
    kind = obj["spec"]["updateStrategy"]["type"]
    if kind not in ("RollingUpdate", "OnDelete"):
        yield Cause.invalid("spec.updateStrategy", kind, "must be 'RollingUpdate' or 'OnDelete'")


def _job(obj: Obj) -> Causes:
    yield from _job_template(obj["spec"], "spec")


def _cron_job(obj: Obj) -> Causes:
    if not obj["spec"].get("schedule"):
        yield Cause.required("spec.schedule")
    # Names of its Jobs get a suffix of 11 characters for the time.
    if len(obj["metadata"].get("name", "")) > 52:
        yield Cause.invalid("metadata.name", obj["metadata"]["name"], "must be no more than 52 characters")
    yield from _job_template(obj["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _job_template(spec: Obj, path: str) -> Causes:
    pod = spec["template"]["spec"]
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        yield Cause.required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    yield from _pod_spec(pod, f"{path}.template.spec")


def _leader_worker_set(obj: Obj) -> Causes:
    spec = obj["spec"]
    if spec["replicas"] < 0:
        yield Cause.invalid("spec.replicas", spec["replicas"], "replicas must be equal or greater than 0")
    group = spec["leaderWorkerTemplate"]
    if group["size"] < 1:
        yield Cause.invalid("spec.leaderWorkerTemplate.size", group["size"], "size must be equal or greater than 1")
    for name in ("leaderTemplate", "workerTemplate"):
        if template := group.get(name):
            yield from _containers_of(template, f"spec.leaderWorkerTemplate.{name}.spec")


def _containers_of(template: Obj, path: str) -> Causes:
    if not (template.get("spec") or {}).get("containers"):
        yield Cause.required(f"{path}.containers")


def _rolling(rolling: Obj) -> Causes:
    counts: dict[str, int] = {}
    for name in ("maxUnavailable", "maxSurge"):
        path = f"spec.strategy.rollingUpdate.{name}"
        try:
            # The share of 100 distinguishes zero from a non-zero percentage, whatever the size of the workload.
            counts[name] = resolve_int_or_percent(rolling[name], 100, round_up=True)
        except ValueError as error:
            yield Cause.invalid(path, rolling[name], str(error))
            continue
        if counts[name] < 0:
            yield Cause.invalid(path, rolling[name], "must be greater than or equal to 0")
    if counts == {"maxUnavailable": 0, "maxSurge": 0}:
        yield Cause.invalid(
            "spec.strategy.rollingUpdate.maxUnavailable",
            rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0",
        )


def _service(obj: Obj) -> Causes:
    ports = obj["spec"].get("ports") or []
    if not ports and obj["spec"].get("clusterIP") != "None":
        yield Cause.required("spec.ports")
    for index, port in enumerate(ports):
        if not 0 < port.get("port", 0) < 65536:
            yield Cause.invalid(
                f"spec.ports[{index}].port", port.get("port", 0), "must be between 1 and 65535, inclusive"
            )
        if len(ports) > 1 and not port.get("name"):
            yield Cause.required(f"spec.ports[{index}].name")


def _disruption_budget(obj: Obj) -> Causes:
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield Cause.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            try:
                count = resolve_int_or_percent(spec[name], 100, round_up=True)
            except ValueError as error:
                yield Cause.invalid(f"spec.{name}", spec[name], str(error))
                continue
            if count < 0:
                yield Cause.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")


def _same_selector(obj: Obj, before: Obj) -> Causes:
    if obj["spec"].get("selector") != before["spec"].get("selector"):
        yield Cause.invalid("spec.selector", obj["spec"].get("selector"), IMMUTABLE)


def _stateful_set_update(obj: Obj, before: Obj) -> Causes:
    if any(
        obj["spec"].get(key) != before["spec"].get(key)
        for key in (obj["spec"].keys() | before["spec"].keys()) - _STATEFUL_SET_FREE
    ):
        yield Cause.forbidden("spec", _STATEFUL_SET_UPDATE)


def _pod_update(obj: Obj, before: Obj) -> Causes:
    if _fixed_part(obj["spec"]) != _fixed_part(before["spec"]):
        yield Cause.forbidden("spec", _POD_UPDATE)
    kept = before["spec"].get("tolerations") or []
    if any(one not in (obj["spec"].get("tolerations") or []) for one in kept):
        yield Cause.forbidden(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _fixed_part(spec: Obj) -> Obj:
    free = ("activeDeadlineSeconds", "tolerations", "containers", "initContainers")
    fixed = {key: value for key, value in spec.items() if key not in free}
    for name in ("containers", "initContainers"):
        fixed[name] = [{**one, "image": ""} for one in spec.get(name) or []]
    return fixed


def _endpoint_slice(obj: Obj) -> Causes:
    for index, endpoint in enumerate(obj.get("endpoints") or []):
        for number, address in enumerate(endpoint.get("addresses") or []):
            if address.startswith("127.") or address == "::1":
                path = f"endpoints[{index}].addresses[{number}]"
                yield Cause.invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")


def _scaled_object(obj: Obj) -> Causes:
    """As KEDA's CustomResourceDefinition requires it (keda.sh_scaledobjects.yaml)."""
    spec = obj.get("spec", {})
    if not (spec.get("scaleTargetRef") or {}).get("name"):
        yield Cause.required("spec.scaleTargetRef.name")
    if spec.get("triggers") is None:
        yield Cause.required("spec.triggers")


def _inference_pool(obj: Obj) -> Causes:
    """As its CustomResourceDefinition requires it (inference.networking.k8s.io/v1)."""
    spec = obj.get("spec", {})
    if not (spec.get("selector") or {}).get("matchLabels"):
        yield Cause.required("spec.selector.matchLabels")
    if not spec.get("targetPorts"):
        yield Cause.required("spec.targetPorts")
    elif len(spec["targetPorts"]) > MAX_TARGET_PORTS:
        yield Cause("spec.targetPorts", f"Too many: {len(spec['targetPorts'])}: must have at most 8 items")
    if not (spec.get("endpointPickerRef") or {}).get("name"):
        yield Cause.required("spec.endpointPickerRef.name")


def _older_inference_pool(obj: Obj) -> Causes:
    """As its CustomResourceDefinition requires it (inference.networking.x-k8s.io/v1alpha2); a selector may be empty."""
    spec = obj.get("spec", {})
    if spec.get("selector") is None:
        yield Cause.required("spec.selector")
    if (port := spec.get("targetPortNumber")) is None:
        yield Cause.required("spec.targetPortNumber")
    elif not 1 <= port <= MAX_PORT:
        yield Cause.invalid("spec.targetPortNumber", port, f"should be from 1 to {MAX_PORT}")
    if not (spec.get("extensionRef") or {}).get("name"):
        yield Cause.required("spec.extensionRef.name")


_RULES: dict[Resource, Callable[[Obj], Causes]] = {
    PODS: _pod,
    DEPLOYMENTS: _deployment,
    REPLICA_SETS: _workload,
    STATEFUL_SETS: _stateful_set,
    LEADER_WORKER_SETS: _leader_worker_set,
    SCALED_OBJECTS: _scaled_object,
    INFERENCE_POOLS: _inference_pool,
    OLDER_INFERENCE_POOLS: _older_inference_pool,
    SERVICES: _service,
    ENDPOINT_SLICES: _endpoint_slice,
    DISRUPTION_BUDGETS: _disruption_budget,
    JOBS: _job,
    CRON_JOBS: _cron_job,
}
_UPDATE_RULES: dict[Resource, Callable[[Obj, Obj], Causes]] = {
    PODS: _pod_update,
    DEPLOYMENTS: _same_selector,
    REPLICA_SETS: _same_selector,
    STATEFUL_SETS: _stateful_set_update,
}
