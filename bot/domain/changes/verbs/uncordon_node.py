"""uncordon_node: allow new pods on a node again."""

from __future__ import annotations

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.context import Situation
from bot.domain.changes.differences import changed
from bot.domain.changes.plan import Call, Circumstance, Plan
from bot.domain.changes.steps.node_steps import UNSCHEDULABLE, by_us, node_of, node_seen
from bot.domain.changes.steps.replica_steps import annotation_edit
from bot.domain.changes.verb import CORDON, NODE, ChangeKind, Stub, Verb, everywhere
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, edit_of
from bot.domain.cluster.objects import INCIDENT_ANNOTATION, annotations_of, is_cordoned, name_of, uid_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import not_needed


def plan_uncordon(situation: Situation) -> Plan:
    node = node_of(situation)
    if not is_cordoned(node):
        raise not_needed(f"node {name_of(node)} takes pods")
    ours = bool(by_us(node, situation.context))
    whose = "by this incident" if ours else f"by {annotations_of(node).get(INCIDENT_ANNOTATION) or 'somebody else'}"
    owner = Circumstance(name="cordon", grade="fine" if ours else "warning", text=f"it was cordoned {whose}")
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Uncordon node {name_of(node)}: it takes pods again",
        choices={"node": name_of(node), "uid": uid_of(node)},
        steps=(_uncordon_call(node), node_seen(node, cordoned=False)),
        circumstances=(owner,),
        risk=VERB.risk,
        approved_by=VERB.teams,
        expected="none: nothing moves by itself",
        undo_text="cordon the node again",
    )


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
        differences=(changed(f"{name_of(node)}: schedulable", UNSCHEDULABLE, False, True),),
    )
    call = patch_call(node, "Node", edits, wording)
    # What somebody else cordoned is not the bot's to give back: a freeze holds for it.
    return call.model_copy(update={"restores": INCIDENT_ANNOTATION in annotations_of(node)})


VERB = Verb(
    name="uncordon_node",
    help="New pods on a node again.",
    stage="Uncordon",
    plan=plan_uncordon,
    kinds=(ChangeKind("uncordon_node", "medium", "platform", minutes=60),),  # it may place users on faulty hardware
    access=everywhere(CORDON),
    arguments=NODE,
    teams=("platform",),  # serving may want the GPU back; platform knows whether it is sound
    restores=True,
    stub=Stub(of="node", has_undo=False),
)
