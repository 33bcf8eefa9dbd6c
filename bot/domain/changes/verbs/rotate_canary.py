"""rotate_canary: put the canary into the Service, or take it out."""

from __future__ import annotations

from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.plan import Call, Circumstance, Plan, Step
from bot.domain.changes.steps.canary_steps import EDITS_ANNOTATION, own_canary, rotation_wanted
from bot.domain.changes.steps.replica_steps import emptied_steps, in_rotation, isolate_call, return_call
from bot.domain.changes.verb import PATCH_POD, ROTATION_HELP, ROTATIONS, Argument, ChangeKind, Stub, Verb
from bot.domain.cluster.objects import ROTATION_ANNOTATION, annotations_of, is_going_away, is_ready, name_of, uid_of
from bot.domain.cluster.rotation import is_in_rotation, pods_of_canary
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import impossible, not_needed


def plan_rotate_canary(situation: Situation) -> Plan:
    """In: it serves users from now on. Out: it finishes its open requests and gets no new ones."""
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "canary", "pods", "services", "endpoint_slices")
    canary = own_canary(snapshot, context)
    wanted = rotation_wanted(situation)
    pod = next((pod for pod in pods_of_canary(snapshot) if not is_going_away(pod)), None)
    if pod is None or not is_ready(pod):
        raise impossible(f"the canary {name_of(canary)} is not Ready", "wait for it, or remove it")
    noted = annotations_of(pod).get(ROTATION_ANNOTATION, "")
    serves = is_in_rotation(pod, snapshot)
    if serves == (wanted == "in"):
        raise not_needed(
            f"the canary {name_of(canary)} is {wanted + (' rotation' if serves else ' of rotation')} already"
        )
    if wanted == "in" and not noted:
        raise impossible(f"{name_of(pod)} was not taken out of rotation by the bot", "look at its labels")
    steps: tuple[Step, ...] = (
        (return_call(pod, noted), in_rotation(pod, context))
        if wanted == "in"
        else (isolate_call(snapshot, pod, context), *emptied_steps(pod, context, ends=False))
    )
    # Unlike a returning replica, a new canary serves unproven answers: it counts as a change.
    steps = tuple(s.model_copy(update={"restores": False}) if isinstance(s, Call) else s for s in steps)
    into = "into" if wanted == "in" else "out of"
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Take the canary {name_of(canary)} {into} rotation",
        choices={"uid": uid_of(pod), "rotation": wanted},
        steps=steps,
        circumstances=(_answers_of_canary(canary),) if wanted == "in" else (),
        risk=VERB.risk,
        expected="none: it shares the new requests" if wanted == "in" else "none: its running requests finish",
        undo_text=f"it is taken {'out of' if wanted == 'in' else 'into'} rotation again",
    )


def _answers_of_canary(canary: Obj) -> Circumstance:
    edits = annotations_of(canary).get(EDITS_ANNOTATION, "edits that are not known")
    return Circumstance(name="answers", grade="note", text=f"people get answers from the canary's settings: {edits}")


VERB = Verb(
    name="rotate_canary",
    help="Take the canary into the Service, or out of it.",
    stage="Canary",
    plan=plan_rotate_canary,
    kinds=(ChangeKind("rotate_canary", "medium", minutes=15),),  # users get unproven answers
    access={"Deployment": (PATCH_POD,)},
    arguments=(Argument("rotation", ROTATION_HELP, known=ROTATIONS),),
    edits_engines=True,
    lasts=False,
    stub=Stub(of="canary"),
)
