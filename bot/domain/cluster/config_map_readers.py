"""Who reads a ConfigMap besides the workload: known only of workloads that have pods now."""

from __future__ import annotations

from collections.abc import Iterator

from bot.domain.cluster.objects import (
    TEMPLATE_HASH_LABEL,
    controller_of,
    dig,
    is_finished,
    labels_of,
    name_of,
    namespace_of,
    selects,
    uid_of,
)
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import SET_NAME_LABEL, kind_of


def other_readers(snapshot: ClusterSnapshot, config_map: Obj) -> list[str]:
    """Returns the other workloads of its namespace whose pods read it, as variables or as files."""
    own = {uid_of(pod) for pod in snapshot.pods}
    pods = [pod for pod in snapshot.all_pods if namespace_of(pod) == namespace_of(config_map) and not is_finished(pod)]
    others = [pod for pod in pods if uid_of(pod) not in own and not _is_selected(pod, snapshot.workload)]
    return sorted({_workload_of(pod) for pod in others if name_of(config_map) in _read_by(pod)})


def _is_selected(pod: Obj, workload: Obj | None) -> bool:
    """The lists of a snapshot are not of the same moment: the workload's newest pod may be in one of them only."""
    if kind_of(workload) == "LeaderWorkerSet":
        return labels_of(pod).get(SET_NAME_LABEL) == name_of(workload or {})
    return selects(dig(workload, "spec", "selector"), labels_of(pod))


def _read_by(pod: Obj) -> Iterator[str]:
    for container in [*(dig(pod, "spec", "containers") or []), *(dig(pod, "spec", "initContainers") or [])]:
        yield from (dig(source, "configMapRef", "name") for source in container.get("envFrom") or [])
        yield from (dig(entry, "valueFrom", "configMapKeyRef", "name") for entry in container.get("env") or [])
    for volume in dig(pod, "spec", "volumes") or []:
        for source in (volume, *(dig(volume, "projected", "sources") or [])):
            yield dig(source, "configMap", "name")


def _workload_of(pod: Obj) -> str:
    """A pod's controller is its Deployment's ReplicaSet, which is named after both."""
    owner = controller_of(pod) or {}
    kind, name = str(owner.get("kind") or "Pod"), str(owner.get("name") or name_of(pod))
    template_hash = labels_of(pod).get(TEMPLATE_HASH_LABEL)
    if kind == "ReplicaSet" and template_hash:
        return f"Deployment {name.removesuffix(f'-{template_hash}')}"
    return f"{kind} {name}"
