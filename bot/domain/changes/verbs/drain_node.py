"""drain_node: move the pods of a node elsewhere, one replica at a time.

Cordon before evicting, or the replacement lands on the same accelerator. Pods of others stay unless the request
includes them; they are listed with their owners either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.domain.changes.circumstances import budget_circumstance, drain_circumstance, room_for
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Circumstance, Plan, Step, Wait
from bot.domain.changes.steps.node_steps import cordon_call, cordon_circumstances, listed, node_of, node_seen, on_node
from bot.domain.changes.steps.replica_steps import (
    emptied_steps,
    evict_call,
    isolate_call,
    refuse_if_last,
    refuse_if_not_made_again,
)
from bot.domain.changes.steps.rolling import only_for
from bot.domain.changes.verb import CORDON, EVICT, NODE, PATCH_POD, Argument, ChangeKind, Stub, Verb
from bot.domain.changes.verbs.replace_replica import replaced
from bot.domain.cluster.disruption import budget_for
from bot.domain.cluster.objects import (
    annotations_of,
    dig,
    grace_seconds,
    is_cordoned,
    name_of,
    namespace_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.rotation import in_order_of_leaving, is_in_rotation
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import template_of
from bot.domain.kernel.errors import impossible, not_needed

NOT_GROUPS = "a group of pods on several nodes moves as one, by replace_replica on a cordoned node"


def plan_drain_node(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "replica_sets", "services", "endpoint_slices", "pdbs")
    node = node_of(situation)
    only_for(snapshot, ["Deployment", "StatefulSet"], NOT_GROUPS)
    evicts_others = _others_wanted(situation)
    ours, others, staying = on_node(snapshot, node)
    # Those that serve leave last, when the replacements of the others may serve.
    ours = in_order_of_leaving(ours, snapshot)
    moved = others if evicts_others else []
    if not ours and not moved:
        raise not_needed(f"nothing on {name_of(node)} is to be moved; {listed(others) or 'it holds no pods of others'}")
    cordoned = is_cordoned(node)
    steps: list[Step] = [] if cordoned else [cordon_call(node, context), node_seen(node, cordoned=True)]
    for pod in ours:
        steps += _ours_moved(snapshot, pod, context)
    for pod in moved:
        steps += [evict_call(pod), _pod_gone(pod)]
    return Plan(
        verb=VERB.name,
        title=f"Drain node {name_of(node)}: {len(ours)} of ours{f', {len(moved)} of others' if moved else ''}",
        choices={"node": name_of(node), "uid": uid_of(node), "pods": [uid_of(pod) for pod in (*ours, *moved)]},
        steps=tuple(steps),
        circumstances=(
            *(() if cordoned else cordon_circumstances(snapshot, node)),
            *_ours_weighed(snapshot, node, ours),
            _others_weighed(others, evicts=evicts_others),
            *([Circumstance(name="staying", grade="note", text=staying)] if staying else []),
        ),
        risk=VERB.risk,
        approved_by=VERB.teams if moved else (),
        expected="one replica fewer at a time, until its replacement elsewhere is Ready" if ours else "none for ours",
        undo_text="the node takes new pods again; evicted pods do not come back to it by themselves",
    )


OTHERS = ("leave", "evict")


def _others_wanted(situation: Situation) -> bool:
    wanted = str(situation.arguments.get("others") or "leave")
    if wanted not in OTHERS:
        raise impossible(f"others is 'leave' or 'evict', not {wanted!r}")
    return wanted == "evict"


def _ours_moved(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext) -> list[Step]:
    """Take the pod out and drain it if the engine does not drain itself; then evict it and replace it elsewhere."""
    serves = is_in_rotation(pod, snapshot)
    first: list[Step] = []
    if serves and drain_mode(snapshot).mode == "label":
        first = [isolate_call(snapshot, pod, context), *emptied_steps(pod, context)]
    return [*first, evict_call(pod), replaced(snapshot, pod, context)]


def _ours_weighed(snapshot: ClusterSnapshot, node: Obj, ours: Sequence[Obj]) -> list[Circumstance]:
    if not ours:
        return []
    for pod in ours:
        refuse_if_last(snapshot, pod)
        refuse_if_not_made_again(snapshot, pod, leaving=ours)
    what = "replacement" if len(ours) == 1 else "replacements"
    rest = tuple(pod for pod in snapshot.all_pods if uid_of(pod) != uid_of(ours[0]))
    drain = drain_mode(snapshot)
    return [
        # The first pod's volumes and each pod's quota are released with them, and not counted again.
        room_for(
            replace(_cordoned(snapshot, node), all_pods=rest, quotas=()),
            template_of(snapshot.workload),
            len(ours),
            what,
        ),
        # The last to leave is Ready if any is, and a budget may be stricter with those.
        budget_circumstance(budget_for(ours[-1], snapshot)),
        drain_circumstance(snapshot, drain, ours, is_empty=drain.mode == "label"),
    ]


def _cordoned(snapshot: ClusterSnapshot, node: Obj) -> ClusterSnapshot:
    """Returns the cluster as it is once the node accepts no more pods."""
    nodes = tuple(
        {**one, "spec": {**(one.get("spec") or {}), "unschedulable": True}} if uid_of(one) == uid_of(node) else one
        for one in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes)


def _others_weighed(others: Sequence[Obj], *, evicts: bool) -> Circumstance:
    if not others:
        return Circumstance(name="others_pods", grade="fine", text="no pods of others on it")
    local = sum(any("emptyDir" in volume for volume in dig(pod, "spec", "volumes") or []) for pod in others)
    lost = f"; {local} of them lose local data (emptyDir)" if local and evicts else ""
    protected = [pod for pod in others if _asks_to_stay(pod)]
    if protected and evicts:
        asks = "asks" if len(protected) == 1 else "ask"
        lost += f"; {len(protected)} of them {asks} not to be disturbed ({_asks_to_stay(protected[0])})"
    evicted, left = "are evicted: the platform team and their owners have to know", "are left where they are"
    if len(others) == 1:
        evicted, left = "is evicted: the platform team and its owner have to know", "is left where it is"
    text = f"{listed(others)} {evicted if evicts else left}{lost}"
    return Circumstance(name="others_pods", grade="warning" if evicts else "note", text=text)


def _asks_to_stay(pod: Obj) -> str:
    """Returns the annotation that keeps node autoscalers from evicting the pod; it does not keep us from it."""
    annotations = annotations_of(pod)
    if annotations.get("karpenter.sh/do-not-disrupt") not in (None, "", "false"):
        return "karpenter.sh/do-not-disrupt"
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    return f"{key}: false" if annotations.get(key) == "false" else ""


def _pod_gone(pod: Obj) -> Wait:
    return Wait(
        condition="pod_gone",
        about=ref_of(pod, "Pod"),
        parameters={"uid": uid_of(pod)},
        within_seconds=grace_seconds(pod) + MARGIN_SECONDS,
        title=f"{namespace_of(pod)}/{name_of(pod)} is gone",
    )


VERB = Verb(
    name="drain_node",
    help="Move what is on a node elsewhere, one replica at a time.",
    stage="Drain",
    plan=plan_drain_node,
    kinds=(ChangeKind("drain_node", "high", "platform + serving", minutes=10),),
    access=dict.fromkeys(("Deployment", "StatefulSet"), (CORDON, PATCH_POD, EVICT)),
    arguments=(
        *NODE,
        Argument(
            "others", "leave or evict: what becomes of pods that are not the workload's", "optional", known=OTHERS
        ),
    ),
    teams=("platform", "serving"),  # other people's pods move
    leaves_behind=True,
    takes_node=True,
    stub=Stub(method="evict", of="node"),
)
