"""cordon, uncordon and drain a node: no new pods there, new pods again, and the pods that are there moved elsewhere.

Cordon before evict, or the replacement lands on the same accelerator. Pods of others are left where they are unless the
request says otherwise, and are listed with their owners either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.circumstances import budget_circumstance, drain_circumstance, room_for
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.differences import changed
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Call, Circumstance, Plan, Step, Wait
from bot.domain.changes.risks import FLOORS, TEAMS
from bot.domain.changes.verbs.replicas import (
    annotation_edit,
    emptied_steps,
    evict_call,
    isolate_call,
    others_in_rotation,
    replaced,
)
from bot.domain.changes.verbs.rolling import only_for
from bot.domain.cluster.disruption import budget_for
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, edit_of
from bot.domain.cluster.node_disruption import NodeDisruption, node_disruption
from bot.domain.cluster.objects import (
    INCIDENT_ANNOTATION,
    annotations_of,
    controller_of,
    dig,
    is_finished,
    is_going_away,
    name_of,
    namespace_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.rotation import is_in_rotation, pod_named, pods_of_canary, pods_of_workload
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.kernel.errors import impossible, not_needed

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
UNSCHEDULABLE = "/spec/unschedulable"
CORDON_SECONDS = 30.0
NOT_GROUPS = "a group of pods on several nodes moves as one, by replace_replica on a cordoned node"


def plan_cordon(situation: Situation) -> Plan:
    node = _node(situation)
    if dig(node, "spec", "unschedulable"):
        raise not_needed(f"node {name_of(node)} is cordoned already{_by_us(node, situation.context)}")
    return Plan(
        verb="cordon_node",
        title=f"Cordon node {name_of(node)}: no new pods there",
        choices={"node": name_of(node), "uid": uid_of(node)},
        steps=(cordon_call(node, situation.context), _seen(node, cordoned=True)),
        circumstances=(_schedulable_without(situation.world, node), _passengers(situation.world, node)),
        risk=FLOORS["cordon_node"],
        expected="none: what runs there goes on running",
        undo_text="the node takes new pods again",
    )


def plan_uncordon(situation: Situation) -> Plan:
    node = _node(situation)
    if not dig(node, "spec", "unschedulable"):
        raise not_needed(f"node {name_of(node)} takes pods")
    ours = bool(_by_us(node, situation.context))
    whose = "by this incident" if ours else f"by {annotations_of(node).get(INCIDENT_ANNOTATION) or 'somebody else'}"
    owner = Circumstance(name="cordon", grade="fine" if ours else "warning", text=f"it was cordoned {whose}")
    return Plan(
        verb="uncordon_node",
        title=f"Uncordon node {name_of(node)}: it takes pods again",
        choices={"node": name_of(node), "uid": uid_of(node)},
        steps=(_uncordon_call(node), _seen(node, cordoned=False)),
        circumstances=(owner,),
        risk=FLOORS["uncordon_node"],
        approved_by=TEAMS["uncordon_node"],
        expected="none: nothing moves by itself",
        undo_text="the node is cordoned again",
    )


def _node(situation: Situation) -> Obj:
    """The node that is named, or the one of the named replica."""
    world, arguments = situation.world, situation.arguments
    require_readable(world, "nodes", "all_pods", "pods")
    name = str(arguments.get("node") or "")
    replica = str(arguments.get("replica") or "")
    if not name and replica:
        pod = pod_named(world, replica)
        name = str(dig(pod, "spec", "nodeName") or "")
        if not name:
            raise impossible(f"replica {replica} runs on no node")
    if not name:
        raise impossible("no node given", "write: with: {replica: '${picked.replica}'}")
    node = next((node for node in world.nodes if name_of(node) == name), None)
    if node is None:
        raise impossible(f"there is no node {name}")
    return node


def _by_us(node: Obj, context: PlanContext) -> str:
    return " by this incident" if annotations_of(node).get(INCIDENT_ANNOTATION) == context.incident_id else ""


def cordon_call(node: Obj, context: PlanContext) -> Call:
    wording = Wording(
        title=f"Cordon node {name_of(node)}",
        undo_title=f"Uncordon node {name_of(node)}",
        differences=(changed(f"{name_of(node)}: takes new pods", UNSCHEDULABLE, True, False),),
    )
    edits = [edit_of(node, UNSCHEDULABLE, True), annotation_edit(node, INCIDENT_ANNOTATION, context.incident_id)]
    return patch_call(node, "Node", [edit for edit in edits if edit.before != edit.after], wording)


def _uncordon_call(node: Obj) -> Call:
    edits = [edit_of(node, UNSCHEDULABLE, ABSENT)]
    if INCIDENT_ANNOTATION in annotations_of(node):
        edits.append(
            FieldEdit(
                annotation_edit(node, INCIDENT_ANNOTATION, "").path, annotations_of(node)[INCIDENT_ANNOTATION], ABSENT
            )
        )
    wording = Wording(
        title=f"Uncordon node {name_of(node)}",
        undo_title=f"Cordon node {name_of(node)} again",
        differences=(changed(f"{name_of(node)}: takes new pods", UNSCHEDULABLE, False, True),),
    )
    return patch_call(node, "Node", edits, wording).model_copy(update={"restores": True})


def _seen(node: Obj, *, cordoned: bool) -> Wait:
    return Wait(
        condition="cordoned",
        about=ref_of(node, "Node"),
        parameters={"uid": uid_of(node), "cordoned": cordoned},
        within_seconds=CORDON_SECONDS,
        title=f"{name_of(node)} {'takes no new pods' if cordoned else 'takes pods again'}",
    )


def _schedulable_without(world: World, node: Obj) -> Circumstance:
    """A second and third cordoned node is a facility's problem, or the bot's, and no single node's."""
    others = [one for one in world.nodes if uid_of(one) != uid_of(node)]
    left = sum(not dig(one, "spec", "unschedulable") for one in others)
    text = f"{left} of {len(world.nodes)} nodes still take pods"
    already = len(others) - left
    if already:
        text += f"; {already} cordoned already"
    stake = node_disruption(world, name_of(node))
    if isinstance(stake, NodeDisruption) and stake.fleet_gpus:
        out = stake.gpus + sum(stake.cordoned.values())
        text += f"; {out} of {stake.fleet_gpus} GPUs would be cordoned"
    return Circumstance(name="nodes", grade="warning" if already > 1 or left == 0 else "note", text=text)


# --- drain ------------------------------------------------------------------------------------------------------------


def plan_drain_node(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    require_readable(world, "replica_sets", "services", "endpoint_slices", "pdbs")
    node, workload = _node(situation), only_for(world, ["Deployment", "StatefulSet"], NOT_GROUPS)
    evicts_others = _others_wanted(situation)
    ours, others, staying = _on_node(world, node)
    moved = others if evicts_others else []
    if not ours and not moved:
        raise not_needed(
            f"nothing on {name_of(node)} is to be moved; {_listed(others) or 'it holds no pods of others'}"
        )
    cordoned = bool(dig(node, "spec", "unschedulable"))
    steps: list[Step] = [] if cordoned else [cordon_call(node, context), _seen(node, cordoned=True)]
    for pod in ours:
        steps += _ours_moved(world, workload, pod, context)
    for pod in moved:
        steps += [evict_call(pod), _pod_gone(pod)]
    return Plan(
        verb="drain_node",
        title=f"Drain node {name_of(node)}: {len(ours)} of ours{f', {len(moved)} of others' if moved else ''}",
        choices={"node": name_of(node), "uid": uid_of(node), "pods": [uid_of(pod) for pod in (*ours, *moved)]},
        steps=tuple(steps),
        circumstances=(
            *([] if cordoned else [_schedulable_without(world, node)]),
            *_ours_weighed(world, node, ours),
            _others_weighed(others, evicts=evicts_others),
            *([Circumstance(name="staying", grade="note", text=staying)] if staying else []),
        ),
        risk=FLOORS["drain_node"],
        approved_by=TEAMS["drain_others"] if moved else (),
        expected="one replica fewer at a time, until its replacement elsewhere is Ready" if ours else "none for ours",
        undo_text="the node takes new pods again; evicted pods do not come back to it by themselves",
    )


def _others_wanted(situation: Situation) -> bool:
    wanted = str(situation.arguments.get("others") or "leave")
    if wanted not in ("leave", "evict"):
        raise impossible(f"others is 'leave' or 'evict', not {wanted!r}")
    return wanted == "evict"


def _on_node(world: World, node: Obj) -> tuple[list[Obj], list[Obj], str]:
    """Our replicas, others' pods that could be moved, and a line about those that stay whatever happens."""
    here = [pod for pod in world.all_pods if dig(pod, "spec", "nodeName") == name_of(node)]
    here = sorted((pod for pod in here if not is_finished(pod) and not is_going_away(pod)), key=name_of)
    mine = {uid_of(pod) for pod in pods_of_workload(world)}
    spare = {uid_of(pod) for pod in pods_of_canary(world)}
    ours = [pod for pod in here if uid_of(pod) in mine]
    others: list[Obj] = []
    kept: Counter[str] = Counter()
    for pod in here:
        if uid_of(pod) in mine:
            continue
        reason = "the incident's spare" if uid_of(pod) in spare else _stays(pod)
        if reason:
            kept[reason] += 1
        else:
            others.append(pod)
    line = ", ".join(f"{count} {reason}" for reason, count in sorted(kept.items()))
    return ours, others, f"passed by: {line}" if line else ""


def others_on(world: World, node: Obj) -> tuple[list[Obj], str]:
    """Others' pods on the node that could be moved, and a line that names their owners."""
    others = _on_node(world, node)[1]
    return others, _listed(others)


def _stays(pod: Obj) -> str:
    """Why a pod is passed by, as kubectl does; empty for one that may be evicted."""
    if MIRROR_ANNOTATION in annotations_of(pod):
        return "mirror pods"
    owner = controller_of(pod)
    if owner is None:
        return "without a controller (they would not come back)"
    return "of DaemonSets" if owner.get("kind") == "DaemonSet" else ""


def _ours_moved(world: World, workload: Obj, pod: Obj, context: PlanContext) -> list[Step]:
    """Out of rotation and empty where the engine does not empty itself, then evicted, then replaced elsewhere."""
    serves = is_in_rotation(pod, world.endpoint_slices)
    first: list[Step] = []
    if serves and drain_mode(world).mode == "label":
        first = [isolate_call(world, pod, context), *emptied_steps(pod, context)]
    return [*first, evict_call(pod), replaced(workload, pod, context)]


def _ours_weighed(world: World, node: Obj, ours: Sequence[Obj]) -> list[Circumstance]:
    if not ours:
        return []
    if len(ours) == 1 and not others_in_rotation(world, ours[0]):
        raise impossible(f"{name_of(ours[0])} is the last replica in rotation", "scale out first")
    template = {"spec": dig(world.workload, "spec", "template", "spec") or {}}
    what = "replacement" if len(ours) == 1 else "replacements"
    drain = drain_mode(world)
    return [
        room_for(_cordoned(world, node), template, len(ours), what),
        budget_circumstance(budget_for(ours[0], world)),
        drain_circumstance(world, drain, ours, is_empty=drain.mode == "label"),
    ]


def _cordoned(world: World, node: Obj) -> World:
    """The world as it is once the node takes no more pods."""
    nodes = tuple(
        {**one, "spec": {**(one.get("spec") or {}), "unschedulable": True}} if uid_of(one) == uid_of(node) else one
        for one in world.nodes
    )
    return replace(world, nodes=nodes)


def _passengers(world: World, node: Obj) -> Circumstance:
    ours, others, _staying = _on_node(world, node)
    text = f"{len(ours)} of ours stay there" + (f"; {_listed(others)}" if others else "")
    return Circumstance(name="passengers", grade="note", text=text)


def _others_weighed(others: Sequence[Obj], *, evicts: bool) -> Circumstance:
    if not others:
        return Circumstance(name="others_pods", grade="fine", text="no pods of others on it")
    local = sum(any("emptyDir" in volume for volume in dig(pod, "spec", "volumes") or []) for pod in others)
    lost = f"; {local} of them lose local data (emptyDir)" if local and evicts else ""
    what = "are evicted: the platform team and their owners have to know" if evicts else "are left where they are"
    return Circumstance(
        name="others_pods", grade="warning" if evicts else "note", text=f"{_listed(others)} {what}{lost}"
    )


def _listed(others: Sequence[Obj]) -> str:
    """Pods of others by their owner, the largest first."""
    owners = Counter(_owner_of(pod) for pod in others)
    listed = ", ".join(f"{count} of {owner}" for owner, count in sorted(owners.items(), key=lambda o: (-o[1], o[0])))
    return f"{len(others)} pods of others: {listed}" if others else ""


def _owner_of(pod: Obj) -> str:
    owner = controller_of(pod) or {}
    return f"{owner.get('kind', 'Pod')} {namespace_of(pod)}/{owner.get('name', name_of(pod))}"


def _pod_gone(pod: Obj) -> Wait:
    grace = float(dig(pod, "spec", "terminationGracePeriodSeconds") or 30)
    return Wait(
        condition="pod_gone",
        about=ref_of(pod, "Pod"),
        parameters={"uid": uid_of(pod)},
        within_seconds=grace + MARGIN_SECONDS,
        title=f"{namespace_of(pod)}/{name_of(pod)} is gone",
    )
