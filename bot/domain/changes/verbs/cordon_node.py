"""cordon_node: keep new pods off a node."""

from __future__ import annotations

from bot.domain.changes.context import Situation
from bot.domain.changes.plan import Circumstance, Plan
from bot.domain.changes.steps.node_steps import (
    PODS_STAY,
    by_us,
    cordon_call,
    cordon_circumstances,
    listed,
    node_of,
    node_seen,
    on_node,
)
from bot.domain.changes.verb import CORDON, NODE, ChangeKind, Stub, Verb, everywhere
from bot.domain.cluster.objects import is_cordoned, name_of, uid_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import not_needed


def plan_cordon(situation: Situation) -> Plan:
    node = node_of(situation)
    if is_cordoned(node):
        raise not_needed(f"node {name_of(node)} is cordoned already{by_us(node, situation.context)}")
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Cordon node {name_of(node)}: no new pods there",
        choices={"node": name_of(node), "uid": uid_of(node)},
        steps=(cordon_call(node, situation.context), node_seen(node, cordoned=True)),
        circumstances=(*cordon_circumstances(situation.snapshot, node), _pods_on_it(situation.snapshot, node)),
        risk=VERB.risk,
        expected=PODS_STAY,
        undo_text="uncordon the node",
    )


def _pods_on_it(snapshot: ClusterSnapshot, node: Obj) -> Circumstance:
    ours, others, _staying = on_node(snapshot, node)
    text = f"{len(ours)} of our pods {'runs' if len(ours) == 1 else 'run'} there" + (
        f"; {listed(others)}" if others else ""
    )
    return Circumstance(name="passengers", grade="note", text=text)


VERB = Verb(
    name="cordon_node",
    help="No new pods on a node.",
    stage="Cordon",
    plan=plan_cordon,
    kinds=(ChangeKind("cordon_node", "medium", "serving or platform", minutes=10),),
    access=everywhere(CORDON),
    arguments=NODE,
    leaves_behind=True,
    takes_node=True,
    stub=Stub(of="node"),
)
