"""isolate, replace and return one replica: out of rotation by a label, evicted under its budget, back by that label.

The pod itself carries what it needs to come back (incident id, the label as it was), so that a crash of the bot between
two calls leaves nothing that cannot be put right.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.circumstances import (
    budget_circumstance,
    drain_circumstance,
    others_carry_on,
    room_for_replicas,
    streams_of,
)
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.differences import changed
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Call, Circumstance, Difference, Plan, Step, Wait
from bot.domain.changes.risks import FLOORS
from bot.domain.changes.verbs.rolling import workload_of
from bot.domain.cluster.disruption import budget_for
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, edit_of, pointer
from bot.domain.cluster.objects import (
    DELETION_COST_ANNOTATION,
    INCIDENT_ANNOTATION,
    ROTATION_ANNOTATION,
    annotations_of,
    dig,
    is_going_away,
    is_ready,
    labels_of,
    name_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.rotation import (
    OUT_VALUE,
    RotationKey,
    is_in_rotation,
    is_replica_ready,
    pod_named,
    replicas_present,
    rotation_key,
    whole_replica,
)
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.cluster.workload import NUMBERED, kind_of
from bot.domain.kernel.errors import impossible, not_needed

OUT_SECONDS = 120.0
"""A label change reaches every proxy within seconds; longer means that something else keeps the pod in rotation."""
DELETION_COST = "-1000"


def plan_isolate(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    require_readable(world, "pods", "replica_sets", "services", "endpoint_slices")
    pod = _replica(situation)
    together = whole_replica(world, pod)
    pod = together[0]
    if ROTATION_ANNOTATION in annotations_of(pod) and not is_in_rotation(pod, world.endpoint_slices):
        raise not_needed(f"{name_of(pod)} is out of rotation already")
    if not others_in_rotation(world, pod):
        raise impossible(f"{name_of(pod)} is the last replica in rotation", "scale out first")
    # Of a group only the pods that a Service sends requests to have to leave; the others work for them.
    listed = [one for one in together if one is pod or is_in_rotation(one, world.endpoint_slices)]
    calls = [isolate_call(world, one, context) for one in listed]
    return Plan(
        verb="isolate_replica",
        title=f"Take {_called(together)} out of rotation and let it run empty",
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=(*calls, *emptied_steps(pod, context)),
        circumstances=(others_carry_on(world, pod),),
        risk=FLOORS["isolate_replica"],
        expected="none: its running requests finish, new ones go to the other replicas",
        undo_text="the label is put back and it serves again",
    )


def _called(together: tuple[Obj, ...]) -> str:
    first = name_of(together[0])
    return first if len(together) == 1 else f"the group of {first} ({len(together)} pods)"


def _replica(situation: Situation) -> Obj:
    name = str(situation.arguments.get("replica") or "")
    if not name:
        raise impossible("no replica given", "write: with: {replica: '${picked.replica}'}")
    pod = pod_named(situation.world, name)
    if pod is None:
        raise impossible(f"replica {name} does not exist any more")
    if is_going_away(pod):
        raise impossible(f"replica {name} is ending already")
    return pod


def others_in_rotation(world: World, pod: Obj) -> list[Obj]:
    leaves = {uid_of(one) for one in whole_replica(world, pod)}
    rest = [other for other in replicas_present(world) if uid_of(other) not in leaves]
    return [other for other in rest if is_replica_ready(world, other) and is_in_rotation(other, world.endpoint_slices)]


def isolate_call(world: World, pod: Obj, context: PlanContext) -> Call:
    """Raise `NoPlanError` when no label takes the pod out without orphaning it."""
    key = rotation_key(world, labels_of(pod))
    if isinstance(key, str):
        raise impossible(f"{name_of(pod)} cannot be taken out of rotation: {key}")
    wording = Wording(
        title=f"Take {name_of(pod)} out of rotation",
        undo_title=f"Put {name_of(pod)} back into rotation",
        differences=(_label_difference(pod, key),),
    )
    return patch_call(pod, "Pod", [_label_edit(pod, key), *_notes(pod, context, key)], wording)


def _label_edit(pod: Obj, key: RotationKey) -> FieldEdit:
    return edit_of(pod, pointer("metadata", "labels", key.key), OUT_VALUE)


def _label_difference(pod: Obj, key: RotationKey) -> Difference:
    path = pointer("metadata", "labels", key.key)
    return changed(f"{name_of(pod)}: label {key.key}", path, key.value, OUT_VALUE)


def _notes(pod: Obj, context: PlanContext, key: RotationKey) -> list[FieldEdit]:
    wanted = {INCIDENT_ANNOTATION: context.incident_id, ROTATION_ANNOTATION: f"{key.key}={key.value}"}
    return [annotation_edit(pod, name, value) for name, value in wanted.items()]


def annotation_edit(obj: Obj, name: str, value: str) -> FieldEdit:
    return FieldEdit(pointer("metadata", "annotations", name), annotations_of(obj).get(name, ABSENT), value)


def victim_call(world: World, pod: Obj, context: PlanContext, *, out: bool) -> Call:
    """Mark the pod as the one to end in a scale-in, and take it out of rotation where that is needed."""
    if kind_of(world.workload) in NUMBERED:
        return isolate_call(world, pod, context)
    edits = [annotation_edit(pod, DELETION_COST_ANNOTATION, DELETION_COST)]
    before = annotations_of(pod).get(DELETION_COST_ANNOTATION)
    differences = [changed(f"{name_of(pod)}: pod-deletion-cost", edits[0].path, before, DELETION_COST)]
    key = rotation_key(world, labels_of(pod)) if out else None
    if isinstance(key, RotationKey) and ROTATION_ANNOTATION not in annotations_of(pod):
        edits += [_label_edit(pod, key), *_notes(pod, context, key)]
        differences.append(_label_difference(pod, key))
    else:
        edits.append(annotation_edit(pod, INCIDENT_ANNOTATION, context.incident_id))
    wording = Wording(
        title=f"Choose {name_of(pod)} as the replica that ends",
        undo_title=f"Keep {name_of(pod)} after all",
        differences=tuple(differences),
    )
    return patch_call(pod, "Pod", [edit for edit in edits if edit.before != edit.after], wording)


def emptied_steps(pod: Obj, context: PlanContext) -> tuple[Step, ...]:
    about, parameters = ref_of(pod, "Pod"), {"uid": uid_of(pod)}
    return (
        Wait(
            condition="out_of_rotation",
            about=about,
            parameters=parameters,
            within_seconds=OUT_SECONDS,
            title=f"No EndpointSlice lists {name_of(pod)} any more",
        ),
        Wait(
            condition="emptied",
            about=about,
            parameters={**parameters, "quiet_seconds": context.quiet_seconds},
            within_seconds=context.drain_seconds,
            title=f"{name_of(pod)} has finished its requests and gets no new ones",
        ),
    )


def plan_replace(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    workload = workload_of(world)
    require_readable(world, "pods", "replica_sets", "services", "endpoint_slices")
    together = whole_replica(world, _replica(situation))
    pod = together[0]
    serves = is_in_rotation(pod, world.endpoint_slices)
    if serves and not others_in_rotation(world, pod):
        raise impossible(f"{name_of(pod)} is the last replica in rotation", "scale out first")
    budget = budget_circumstance(budget_for(pod, world))
    if len(together) > 1:
        refuse_if_group_survives(workload)
    drain = drain_mode(world)
    is_empty = streams_of(world, [pod]) == 0 and not serves
    cuts = drain.cuts_streams and not is_empty
    return Plan(
        verb="replace_replica",
        title=f"Replace {_called(together)}",
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=(evict_call(pod, _called(together)), replaced(workload, pod, context)),
        circumstances=(
            budget,
            drain_circumstance(world, drain, [pod], is_empty=is_empty),
            others_carry_on(world, pod),
            _room_without(world, together),
        ),
        risk=FLOORS["replace_busy_replica" if cuts else "replace_replica"],
        expected="one replica fewer until the new one is Ready",
        undo_text="none: the replacement runs the same template",
    )


def evict_call(pod: Obj, called: str = "") -> Call:
    """`called`: what ends with it, where that is more than the pod."""
    called = called or name_of(pod)
    return Call(
        method="evict",
        target=ref_of(pod, "Pod"),
        title=f"Evict {name_of(pod)}",
        differences=(Difference(path="", before=name_of(pod), text=f"{called} ends and is replaced"),),
        no_undo="its replacement runs the same template; there is nothing to put back",
        stamped=False,
        ends=(uid_of(pod),),
        node=dig(pod, "spec", "nodeName") or "",
    )


def refuse_if_group_survives(workload: Obj) -> None:
    """The leader is evicted, and its group has to go and come with it."""
    policy = dig(workload, "spec", "leaderWorkerTemplate", "restartPolicy") or "RecreateGroupOnPodRestart"
    if not policy.startswith("RecreateGroup"):
        raise impossible(
            f"{name_of(workload)} restarts its pods one by one (restartPolicy {policy}): a group is not renewed as one",
            "its restartPolicy has to be RecreateGroupOnPodRestart",
        )


def replaced(workload: Obj, pod: Obj, context: PlanContext) -> Wait:
    grace = float(dig(pod, "spec", "terminationGracePeriodSeconds") or 30)
    return Wait(
        condition="replaced",
        about=ref_of(pod, "Pod"),
        parameters={"uid": uid_of(pod), "replicas": replicas_of(workload)},
        within_seconds=context.startup_seconds + grace + MARGIN_SECONDS,
        title=f"{name_of(pod)} is gone and its replacement is Ready",
    )


def _room_without(world: World, leaving: Sequence[Obj]) -> Circumstance:
    """Room for the replacement once these pods have let go of their accelerators."""
    gone = {uid_of(pod) for pod in leaving}
    rest = tuple(pod for pod in world.all_pods if uid_of(pod) not in gone)
    freed = World(at=world.at, workload=world.workload, nodes=world.nodes, all_pods=rest, unreadable=world.unreadable)
    return room_for_replicas(freed, 1, "replacement")


def plan_return(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    require_readable(world, "pods", "endpoint_slices")
    name = str(situation.arguments.get("replica") or "")
    pod = pod_named(world, name)
    if pod is None or is_going_away(pod):
        raise not_needed(f"replica {name} does not exist any more; there is nothing to return")
    out = [one for one in whole_replica(world, pod) if annotations_of(one).get(ROTATION_ANNOTATION)]
    if not out:
        if is_in_rotation(pod, world.endpoint_slices):
            raise not_needed(f"{name_of(pod)} is in rotation")
        raise impossible(
            f"{name_of(pod)} was not taken out of rotation by the bot",
            "it is not Ready" if not is_ready(pod) else "look at its labels and the Service's selector",
        )
    pod = out[0]
    return Plan(
        verb="return_replica",
        title=f"Put {name_of(pod)} back into rotation",
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=(*(return_call(one, annotations_of(one)[ROTATION_ANNOTATION]) for one in out), in_rotation(pod, context)),
        risk=FLOORS["return_replica"],
        expected="none",
        undo_text="take it out of rotation again",
    )


def return_call(pod: Obj, noted: str) -> Call:
    """The label as the pod's own note says it was, and the notes taken off."""
    key, _, value = noted.partition("=")
    label = edit_of(pod, pointer("metadata", "labels", key), value)
    notes = [
        FieldEdit(pointer("metadata", "annotations", name), annotations_of(pod)[name], ABSENT)
        for name in (INCIDENT_ANNOTATION, ROTATION_ANNOTATION)
        if name in annotations_of(pod)
    ]
    before = label.before if isinstance(label.before, str) else None
    wording = Wording(
        title=f"Put {name_of(pod)} back into rotation",
        undo_title=f"Take {name_of(pod)} out of rotation again",
        differences=(changed(f"{name_of(pod)}: label {key}", label.path, before, value),),
    )
    return patch_call(pod, "Pod", [label, *notes], wording).model_copy(update={"restores": True})


def in_rotation(pod: Obj, context: PlanContext) -> Wait:
    return Wait(
        condition="in_rotation",
        about=ref_of(pod, "Pod"),
        parameters={"uid": uid_of(pod)},
        within_seconds=OUT_SECONDS + context.quiet_seconds,
        title=f"An EndpointSlice lists {name_of(pod)} as ready",
    )
