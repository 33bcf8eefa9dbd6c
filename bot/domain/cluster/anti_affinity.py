"""Pods that must not share a node: required anti-affinity by host, of the pod itself and of existing pods.

Stricter rules (zones, required topology spread, required affinity) are named. They make the capacity unknown, unless no
accelerator is free.
"""

from __future__ import annotations

from collections.abc import Iterator

from bot.domain.cluster.objects import dig, is_finished, labels_of, name_of, namespace_of, selects
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def not_worked_out(template: Obj) -> str:
    """Returns which scheduling rules of such a pod are not evaluated here; empty if there are none."""
    spec = dig(template, "spec") or {}
    for spread in spec.get("topologySpreadConstraints") or []:
        if spread.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            return f"its pods must spread over {spread.get('topologyKey')}"
    if dig(spec, "affinity", "podAffinity", _REQUIRED):
        return "its pods must be near other pods"
    strange = [term for term in _terms(template) if not _is_by_host(term)]
    return f"its pods must be apart from others by {strange[0].get('topologyKey')}" if strange else ""


def nodes_shunned(snapshot: ClusterSnapshot, template: Obj) -> dict[str, str]:
    """Maps each node to the pod there, or in its zone, that conflicts with such a pod, in either direction."""
    namespace, nodes = (
        namespace_of(snapshot.workload or {}),
        {name_of(node): labels_of(node) for node in snapshot.nodes},
    )
    shunned: dict[str, str] = {}
    for pod in snapshot.all_pods:
        node = dig(pod, "spec", "nodeName")
        if not node or is_finished(pod):
            continue
        for key in _keys_apart(template, namespace, pod):
            there = nodes.get(node, {}).get(key)
            alike = [other for other, labels in nodes.items() if there is not None and labels.get(key) == there]
            shunned |= {other: name_of(pod) for other in {node, *alike} if other not in shunned}
    return shunned


def shuns_its_like(template: Obj) -> bool:
    """Whether a node accepts only one such pod."""
    return any(selects(term.get("labelSelector"), labels_of(template)) for term in _terms(template))


def _keys_apart(template: Obj, namespace: str, pod: Obj) -> Iterator[str]:
    """Returns the node labels by which the two must be apart. A rule of either pod applies to both."""
    is_near = namespace == namespace_of(pod)
    for term in _terms(template):
        if is_near and selects(term.get("labelSelector"), labels_of(pod)):
            yield str(term.get("topologyKey"))
    for term in _terms(pod):
        # The namespaces of the other's term are not resolved: they may include ours.
        reaches_us = is_near or term.get("namespaces") or term.get("namespaceSelector") is not None
        if reaches_us and selects(term.get("labelSelector"), labels_of(template)):
            yield str(term.get("topologyKey"))


def _terms(pod: Obj) -> Iterator[Obj]:
    yield from dig(pod, "spec", "affinity", "podAntiAffinity", _REQUIRED) or []


def _is_by_host(term: Obj) -> bool:
    beyond = ("namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys")
    return term.get("topologyKey") == HOST and all(term.get(key) in (None, []) for key in beyond)
