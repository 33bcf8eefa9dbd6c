"""canary, rotate_canary and remove_canary: one spare replica with edited flags beside the workload.

The spare is a Deployment of its own. Its selector is a label that no other pod has, so that the two Deployments never
claim each other's ReplicaSets; its pods keep the workload's labels, so that the same Services send them traffic, unless
it is started out of rotation: then one label differs until a change of its own puts it in.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from bot.domain.changes.calls import TAKES_BACK, Wording, delete_call, patch_call
from bot.domain.changes.circumstances import drain_circumstance, room_for
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.differences import changed
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.edited_template import EditedTemplate, edited_template
from bot.domain.changes.plan import Call, Circumstance, Difference, Plan, Step, Wait
from bot.domain.changes.risks import FLOORS
from bot.domain.changes.verbs.replicas import emptied_steps, in_rotation, isolate_call, return_call
from bot.domain.changes.verbs.rolling import only_for
from bot.domain.cluster.json_patch import edit_of, pointer
from bot.domain.cluster.objects import (
    CANARY_LABEL,
    CANARY_OF_ANNOTATION,
    INCIDENT_ANNOTATION,
    ROTATION_ANNOTATION,
    ObjectRef,
    annotations_of,
    dig,
    is_going_away,
    is_ready,
    labels_of,
    name_of,
    namespace_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.rotation import OUT_VALUE, RotationKey, is_in_rotation, pods_of_canary, rotation_key
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.flags.mitigations import refuse_what_harms
from bot.domain.kernel.errors import impossible, not_needed

EDITS_ANNOTATION = "incident-bot/edits"
"""On the spare: what it was started with, for whoever promotes it."""
LONGEST_NAME = 52
"""Leaves room for the ReplicaSet's and the pod's suffix within the 63 characters of a host name."""

NO_SPARE = "its replicas have names and volumes of their own, which a spare beside them would not have"


def plan_canary(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    workload = only_for(world, ["Deployment"], NO_SPARE)
    require_readable(world, "canary")
    rotation = rotation_wanted(situation, default="in")
    edits = {"edits": situation.arguments.get("edits")}
    edited = edited_template(workload, edits, world.config_maps, only_template=True)
    refuse_what_harms(edited.moves, context.against)
    body = canary_object(workload, edited.template, context)
    annotations_of(body)[EDITS_ANNOTATION] = json.dumps(edits["edits"], sort_keys=True)
    if rotation == "out":
        _keep_out(world, body)
    if world.canary is not None:
        raise _there_already(world.canary, body)
    call = create_call(body, edited)
    return Plan(
        verb="canary",
        title=f"Start one spare replica of {name_of(workload)} with {edited.summary}"
        + (", out of rotation" if rotation == "out" else ""),
        choices={"edits": edited.choices, "name": name_of(body), "rotation": rotation},
        steps=(call, canary_ready(call.target, context)),
        circumstances=(room_for(world, edited.template, 1, "spare"), *edited.notes),
        risk=FLOORS["canary"],
        expected="none: nothing that runs is touched; "
        + ("the spare answers nobody" if rotation == "out" else "the spare takes its share of new requests when Ready"),
        undo_text="the spare is removed",
    )


def rotation_wanted(situation: Situation, *, default: str = "") -> str:
    wanted = str(situation.arguments.get("rotation") or default)
    if wanted not in ("in", "out"):
        raise impossible(f"rotation is 'in' or 'out', not {wanted!r}")
    return wanted


def _keep_out(world: World, body: Obj) -> None:
    """The spare's pods are born with the label that no Service selects, and with the note that brings it back."""
    metadata = body["spec"]["template"]["metadata"]
    key = rotation_key(world, metadata["labels"])
    if isinstance(key, str):
        raise impossible(f"the spare cannot be kept out of rotation: {key}")
    metadata["labels"] = metadata["labels"] | {key.key: OUT_VALUE}
    notes = {ROTATION_ANNOTATION: f"{key.key}={key.value}"}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}


def canary_name(workload: Obj, context: PlanContext) -> str:
    suffix = f"-incident-bot-canary-{context.slug}"
    return name_of(workload)[: LONGEST_NAME - len(suffix)].rstrip("-.") + suffix


def canary_object(workload: Obj, template: Obj, context: PlanContext) -> Obj:
    template = copy.deepcopy(template)
    mark = {CANARY_LABEL: context.slug}
    metadata: dict[str, Any] = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **mark}
    spec: dict[str, Any] = {
        "replicas": 1,
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": dict(mark)},
        "template": template,
    }
    if deadline := dig(workload, "spec", "progressDeadlineSeconds"):
        spec["progressDeadlineSeconds"] = deadline
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": canary_name(workload, context),
            "namespace": namespace_of(workload),
            "labels": {**mark, "app.kubernetes.io/managed-by": "incident-bot"},
            "annotations": {
                INCIDENT_ANNOTATION: context.incident_id,
                CANARY_OF_ANNOTATION: name_of(workload),
            },
        },
        "spec": spec,
    }


def _there_already(canary: Obj, body: Obj) -> Exception:
    if is_going_away(canary):
        return impossible(f"the spare {name_of(canary)} is still going away", "plan again in a moment")
    if annotations_of(canary).get(EDITS_ANNOTATION) == annotations_of(body)[EDITS_ANNOTATION]:
        return not_needed(f"the spare {name_of(canary)} runs these flags already")
    return impossible(f"a spare with other flags runs already: {name_of(canary)}", "remove it first")


def create_call(body: Obj, edited: EditedTemplate) -> Call:
    target = ObjectRef(kind="Deployment", namespace=namespace_of(body), name=name_of(body))
    undo = delete_call(target, title=f"Remove the spare {target.name}", no_undo=TAKES_BACK)
    one = Difference(path="", after=target.name, text=f"one more replica: {target.name}")
    return Call(
        method="create",
        target=target,
        body=body,
        differences=(one, *edited.differences),
        title=f"Create the spare {target.name}",
        undo=(undo,),
    )


def canary_ready(target: ObjectRef, context: PlanContext) -> Wait:
    return Wait(
        condition="canary_ready",
        about=target,
        within_seconds=context.startup_seconds + MARGIN_SECONDS,
        title=f"The spare {target.name} is Ready",
    )


def plan_rotate_canary(situation: Situation) -> Plan:
    """In: it serves people from now on. Out: it finishes what it has and gets nothing new."""
    world, context = situation.world, situation.context
    require_readable(world, "canary", "pods", "services", "endpoint_slices")
    canary = own_canary(world, context)
    wanted = rotation_wanted(situation)
    pod = next((pod for pod in pods_of_canary(world) if not is_going_away(pod)), None)
    if pod is None or not is_ready(pod):
        raise impossible(f"the spare {name_of(canary)} is not Ready", "wait for it, or remove it")
    noted = annotations_of(pod).get(ROTATION_ANNOTATION, "")
    serves = is_in_rotation(pod, world.endpoint_slices)
    if serves == (wanted == "in"):
        raise not_needed(
            f"the spare {name_of(canary)} is {wanted + (' rotation' if serves else ' of rotation')} already"
        )
    if wanted == "in" and not noted:
        raise impossible(f"{name_of(pod)} was not taken out of rotation by the bot", "look at its labels")
    steps: tuple[Step, ...] = (
        (return_call(pod, noted), in_rotation(pod, context))
        if wanted == "in"
        else (isolate_call(world, pod, context), *emptied_steps(pod, context))
    )
    # Unlike a replica that comes back, a spare that enters serves what nobody has judged: it counts as a change.
    steps = tuple(s.model_copy(update={"restores": False}) if isinstance(s, Call) else s for s in steps)
    into = "into" if wanted == "in" else "out of"
    return Plan(
        verb="rotate_canary",
        title=f"Take the spare {name_of(canary)} {into} rotation",
        choices={"uid": uid_of(pod), "rotation": wanted},
        steps=steps,
        circumstances=(_promise(canary),) if wanted == "in" else (),
        risk=FLOORS["rotate_canary"],
        expected="none: it shares the new requests" if wanted == "in" else "none: its running requests finish",
        undo_text=f"it is taken {'out of' if wanted == 'in' else 'into'} rotation again",
    )


def _promise(canary: Obj) -> Circumstance:
    edits = annotations_of(canary).get(EDITS_ANNOTATION, "edits that are not known")
    return Circumstance(name="answers", grade="note", text=f"people get answers from the spare's settings: {edits}")


def own_canary(world: World, context: PlanContext) -> Obj:
    canary = world.canary
    if canary is None:
        raise impossible("there is no spare", "start one with canary")
    if is_going_away(canary):
        raise impossible(f"the spare {name_of(canary)} is going away")
    if annotations_of(canary).get(INCIDENT_ANNOTATION) != context.incident_id:
        raise impossible(f"{name_of(canary)} does not carry this incident's id: it is not ours")
    return canary


def plan_remove_canary(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    require_readable(world, "canary", "pods", "services", "endpoint_slices")
    canary = world.canary
    if canary is None:
        raise not_needed("there is no spare")
    if is_going_away(canary):
        raise not_needed(f"the spare {name_of(canary)} is going away already")
    if annotations_of(canary).get(INCIDENT_ANNOTATION) != context.incident_id:
        raise impossible(f"{name_of(canary)} does not carry this incident's id: it is not ours to remove")
    drain = drain_mode(world, dig(canary, "spec", "template"))
    first = _out_first(world, context) if drain.cuts_streams else ()
    target = ref_of(canary, "Deployment")
    delete = delete_call(
        target,
        title=f"Remove the spare {target.name}",
        no_undo="a spare is started again with its own change",
    ).model_copy(update={"differences": (Difference(path="", before=target.name, text=f"{target.name} ends"),)})
    return Plan(
        verb="remove_canary",
        title=f"Remove the spare {target.name}",
        choices={"uid": target.uid},
        steps=(*first, delete, gone(target, context)),
        circumstances=(drain_circumstance(world, drain, pods_of_canary(world), is_empty=bool(first)),),
        risk=FLOORS["remove_canary"],
        expected="none: the workload's own replicas are not touched",
        undo_text="none: a spare is started again with its own change",
    )


def _out_first(world: World, context: PlanContext) -> tuple[Step, ...]:
    """Where the engine does not drain by itself, the spare leaves rotation and runs empty before it ends."""
    steps: list[Step] = []
    for pod in pods_of_canary(world):
        key = rotation_key(world, labels_of(pod))
        if isinstance(key, RotationKey) and is_in_rotation(pod, world.endpoint_slices):
            steps += [_out_call(pod, key), *emptied_steps(pod, context)]
    return tuple(steps)


def _out_call(pod: Obj, key: RotationKey) -> Call:
    edit = edit_of(pod, pointer("metadata", "labels", key.key), OUT_VALUE)
    wording = Wording(
        title=f"Take the spare's {name_of(pod)} out of rotation",
        undo_title=f"Put {name_of(pod)} back into rotation",
        differences=(changed(f"{name_of(pod)}: label {key.key}", edit.path, key.value, OUT_VALUE),),
    )
    return patch_call(pod, "Pod", [edit], wording).model_copy(update={"restores": True})


def gone(target: ObjectRef, context: PlanContext) -> Wait:
    return Wait(
        condition="gone",
        about=target,
        within_seconds=context.drain_seconds + MARGIN_SECONDS,
        title=f"{target.name} and its pods are gone",
    )
