"""remove_canary: delete the canary, once nothing runs on it."""

from __future__ import annotations

from bot.domain.changes.calls import Wording, delete_call, patch_call
from bot.domain.changes.circumstances import drain_circumstance, streams_of
from bot.domain.changes.context import PlanContext, Situation, require_readable
from bot.domain.changes.differences import changed
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Call, Difference, Plan, Step
from bot.domain.changes.steps.canary_steps import gone
from bot.domain.changes.steps.replica_steps import emptied_steps
from bot.domain.changes.verb import DELETE, PATCH_POD, ChangeKind, Stub, Verb
from bot.domain.cluster.json_patch import edit_of, pointer
from bot.domain.cluster.objects import (
    CANARY_OF_ANNOTATION,
    INCIDENT_ANNOTATION,
    annotations_of,
    dig,
    is_going_away,
    labels_of,
    name_of,
    ref_of,
)
from bot.domain.cluster.rotation import OUT_VALUE, RotationKey, is_in_rotation, pods_of_canary, rotation_key
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import impossible, not_needed


def plan_remove_canary(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "canary", "pods", "services", "endpoint_slices")
    canary = snapshot.canary
    if canary is None:
        raise not_needed("there is no canary")
    if is_going_away(canary):
        raise not_needed(f"the canary {name_of(canary)} is going away already")
    if annotations_of(canary).get(INCIDENT_ANNOTATION) != context.incident_id:
        raise impossible(f"{name_of(canary)} does not carry this incident's id: it is not ours to remove")
    drain = drain_mode(snapshot, dig(canary, "spec", "template"))
    first = _out_first(snapshot, context) if drain.cuts_streams else ()
    pods = pods_of_canary(snapshot)
    # One that never came up, or that served nobody, has no streams to cut: its removal only cleans up.
    serves_nobody = not any(is_in_rotation(pod, snapshot) for pod in pods) and streams_of(snapshot, pods) == 0
    target = ref_of(canary, "Deployment")
    of = annotations_of(canary).get(CANARY_OF_ANNOTATION) or name_of(canary)
    delete = delete_call(
        target,
        title=f"Remove the canary of {of}",
        no_undo="a canary is started again with its own change",
    ).model_copy(update={"differences": (Difference(path="", before=target.name, text=f"{target.name} ends"),)})
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Remove the canary of {of}",
        choices={"uid": target.uid},
        steps=(*first, delete, gone(target, context)),
        circumstances=(drain_circumstance(snapshot, drain, pods, is_empty=bool(first) or serves_nobody),),
        risk=VERB.risk,
        expected="none: the workload's own replicas are not touched",
        undo_text="none: a canary is started again with its own change",
    )


def _out_first(snapshot: ClusterSnapshot, context: PlanContext) -> tuple[Step, ...]:
    """If the engine does not drain itself, the canary leaves rotation and drains before it ends."""
    steps: list[Step] = []
    for pod in pods_of_canary(snapshot):
        key = rotation_key(snapshot, labels_of(pod))
        if isinstance(key, RotationKey) and is_in_rotation(pod, snapshot):
            steps += [_out_call(pod, key), *emptied_steps(pod, context)]
    return tuple(steps)


def _out_call(pod: Obj, key: RotationKey) -> Call:
    edit = edit_of(pod, pointer("metadata", "labels", key.key), OUT_VALUE)
    wording = Wording(
        title=f"Take the canary's {name_of(pod)} out of rotation",
        undo_title=f"Put {name_of(pod)} back into rotation",
        differences=(changed(f"{name_of(pod)}: label {key.key}", edit.path, key.value, OUT_VALUE),),
    )
    return patch_call(pod, "Pod", [edit], wording).model_copy(update={"restores": True})


VERB = Verb(
    name="remove_canary",
    help="Delete the canary.",
    stage="Clean-up",
    plan=plan_remove_canary,
    kinds=(ChangeKind("remove_canary", "low", minutes=30),),
    access={"Deployment": (DELETE, PATCH_POD)},
    restores=True,
    cleans_up=True,
    lasts=False,
    stub=Stub(method="delete", of="canary", has_undo=False),
)
