"""Nodes: which one a change targets, what runs on it, and the call that cordons it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.context import PlanContext, Situation, require_readable
from bot.domain.changes.differences import changed
from bot.domain.changes.plan import Call, Circumstance, Wait
from bot.domain.changes.steps.replica_steps import annotation_edit
from bot.domain.cluster.json_patch import edit_of
from bot.domain.cluster.node_disruption import NodeDisruption, node_disruption
from bot.domain.cluster.objects import (
    INCIDENT_ANNOTATION,
    annotations_of,
    controller_of,
    dig,
    is_cordoned,
    is_staying,
    labels_of,
    name_of,
    namespace_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.rotation import pod_named, pods_of_canary, pods_of_workload
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import impossible

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
DESCHEDULER_LABELS = ("app.kubernetes.io/name", "app")
UNSCHEDULABLE = "/spec/unschedulable"
CORDON_SECONDS = 30.0
PODS_STAY = "none: pods that run there keep running"
"""What users feel of a cordon."""


def node_of(situation: Situation) -> Obj:
    """Returns the named node, or the node of the named replica."""
    snapshot, arguments = situation.snapshot, situation.arguments
    require_readable(snapshot, "nodes", "all_pods", "pods")
    name = str(arguments.get("node") or "")
    replica = str(arguments.get("replica") or "")
    if not name and replica:
        pod = pod_named(snapshot, replica)
        name = str(dig(pod, "spec", "nodeName") or "")
        if not name:
            raise impossible(f"replica {replica} runs on no node")
    if not name:
        raise impossible("no node given", "write: with: {replica: '${picked.replica}'}")
    node = next((node for node in snapshot.nodes if name_of(node) == name), None)
    if node is None:
        raise impossible(f"there is no node {name}")
    return node


def by_us(node: Obj, context: PlanContext) -> str:
    return " by this incident" if annotations_of(node).get(INCIDENT_ANNOTATION) == context.incident_id else ""


def cordon_call(node: Obj, context: PlanContext) -> Call:
    wording = Wording(
        title=f"Cordon node {name_of(node)}",
        undo_title=f"Uncordon node {name_of(node)}",
        differences=(changed(f"{name_of(node)}: schedulable", UNSCHEDULABLE, True, False),),
    )
    edits = [edit_of(node, UNSCHEDULABLE, True), annotation_edit(node, INCIDENT_ANNOTATION, context.incident_id)]
    return patch_call(node, "Node", [edit for edit in edits if edit.before != edit.after], wording)


def node_seen(node: Obj, *, cordoned: bool) -> Wait:
    return Wait(
        condition="cordoned",
        about=ref_of(node, "Node"),
        parameters={"uid": uid_of(node), "cordoned": cordoned},
        within_seconds=CORDON_SECONDS,
        title=f"{name_of(node)} {'takes no new pods' if cordoned else 'takes pods again'}",
    )


def cordon_circumstances(snapshot: ClusterSnapshot, node: Obj) -> tuple[Circumstance, ...]:
    """What a cordon of this node means for the cluster."""
    return _schedulable_without(snapshot, node), *_descheduler(snapshot)


def _schedulable_without(snapshot: ClusterSnapshot, node: Obj) -> Circumstance:
    """A second or third cordoned node points to a problem of the facility or the bot, not of one node."""
    others = [one for one in snapshot.nodes if uid_of(one) != uid_of(node)]
    left = sum(not is_cordoned(one) for one in others)
    text = f"{left} of {len(snapshot.nodes)} nodes still take pods"
    already = len(others) - left
    if already:
        text += f"; {already} cordoned already"
    stake = node_disruption(snapshot, name_of(node))
    if isinstance(stake, NodeDisruption) and stake.fleet_gpus:
        out = stake.gpus + sum(stake.cordoned.values())
        text += f"; {out} of {stake.fleet_gpus} GPUs would be cordoned"
    return Circumstance(name="nodes", grade="warning" if already > 1 or left == 0 else "note", text=text)


def _descheduler(snapshot: ClusterSnapshot) -> tuple[Circumstance, ...]:
    """A cordon is a taint, and a descheduler may be set up to evict whatever does not tolerate one."""
    if not any("descheduler" in map(labels_of(pod).get, DESCHEDULER_LABELS) for pod in snapshot.all_pods):
        return ()
    text = (
        "a descheduler runs in this cluster: it may evict every pod from a cordoned node at once"
        " (RemovePodsViolatingNodeTaints, unless node.kubernetes.io/unschedulable is excluded)"
    )
    return (Circumstance(name="descheduler", grade="warning", text=text),)


def on_node(snapshot: ClusterSnapshot, node: Obj) -> tuple[list[Obj], list[Obj], str]:
    """Returns our replicas, movable pods of others, and a line about the pods that stay in any case."""
    here = [pod for pod in snapshot.all_pods if dig(pod, "spec", "nodeName") == name_of(node)]
    here = sorted(filter(is_staying, here), key=name_of)
    mine = {uid_of(pod) for pod in pods_of_workload(snapshot)}
    canary = {uid_of(pod) for pod in pods_of_canary(snapshot)}
    ours = [pod for pod in here if uid_of(pod) in mine]
    others: list[Obj] = []
    kept: Counter[str] = Counter()
    for pod in here:
        if uid_of(pod) in mine:
            continue
        reason = "the incident's canary" if uid_of(pod) in canary else _stays(pod)
        if reason:
            kept[reason] += 1
        else:
            others.append(pod)
    line = ", ".join(f"{count} {reason}" for reason, count in sorted(kept.items()))
    return ours, others, f"passed by: {line}" if line else ""


def others_on(snapshot: ClusterSnapshot, node: Obj) -> tuple[list[Obj], str]:
    """Returns others' movable pods on the node, and a line that names their owners."""
    others = on_node(snapshot, node)[1]
    return others, listed(others)


def _stays(pod: Obj) -> str:
    """Returns why a pod is skipped, as in kubectl; empty for one that may be evicted."""
    if MIRROR_ANNOTATION in annotations_of(pod):
        return "mirror pods"
    owner = controller_of(pod)
    if owner is None:
        return "without a controller (they would not come back)"
    return "of DaemonSets" if owner.get("kind") == "DaemonSet" else ""


def listed(others: Sequence[Obj]) -> str:
    """Returns others' pods by owner, the largest first."""
    owners = Counter(_owner_of(pod) for pod in others)
    listed = ", ".join(f"{count} of {owner}" for owner, count in sorted(owners.items(), key=lambda o: (-o[1], o[0])))
    return f"{len(others)} pod{'s' if len(others) > 1 else ''} of others: {listed}" if others else ""


def _owner_of(pod: Obj) -> str:
    owner = controller_of(pod) or {}
    return f"{owner.get('kind', 'Pod')} {namespace_of(pod)}/{owner.get('name', name_of(pod))}"
