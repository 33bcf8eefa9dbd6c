"""canary: an extra replica with edited flags, beside the workload.

The canary is a separate Deployment. It selects a label that no other pod has, so the two Deployments never claim each
other's ReplicaSets. Its pods keep the workload's labels, so the same Services send them traffic. A canary that starts
out of rotation differs in one of these labels, until another change puts it in.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from bot.domain.changes.calls import TAKES_BACK, delete_call
from bot.domain.changes.circumstances import room_for
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.edited_template import EditedTemplate, edited_template
from bot.domain.changes.plan import Call, Difference, Plan, Wait
from bot.domain.changes.steps.canary_steps import EDITS_ANNOTATION, rotation_wanted
from bot.domain.changes.steps.rolling import only_for
from bot.domain.changes.verb import CREATE, DELETE, EDITS, ROTATION_HELP, ROTATIONS, Argument, ChangeKind, Stub, Verb
from bot.domain.cluster.objects import (
    CANARY_LABEL,
    CANARY_OF_ANNOTATION,
    INCIDENT_ANNOTATION,
    ROTATION_ANNOTATION,
    ObjectRef,
    annotations_of,
    is_going_away,
    name_of,
    namespace_of,
)
from bot.domain.cluster.rotation import OUT_VALUE, rotation_key
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.mitigations import refuse_what_harms
from bot.domain.kernel.errors import impossible, not_needed

MAX_NAME_LENGTH = 52
"""Leaves room for the ReplicaSet's and the pod's suffix within the 63 characters of a host name."""
DEADLINE_SECONDS = 86400
"""Longer than any start: the wait for the canary judges it. Not measured, or a new measurement changes the digest."""
NO_CANARY = "its replicas have names and volumes of their own, which a canary beside them would not have"


def plan_canary(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    workload = only_for(snapshot, ["Deployment"], NO_CANARY)
    require_readable(snapshot, "canary")
    rotation = rotation_wanted(situation, default="in")
    edits = {"edits": situation.arguments.get("edits")}
    edited = edited_template(workload, edits, snapshot.config_maps, only_template=True)
    refuse_what_harms(edited.moves, context.against)
    body = canary_object(workload, edited.template, context)
    annotations_of(body)[EDITS_ANNOTATION] = json.dumps(edited.edits, sort_keys=True)
    if rotation == "out":
        _keep_out(snapshot, body)
    if snapshot.canary is not None:
        raise _there_already(snapshot.canary, body)
    call = create_call(body, edited)
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Start one canary replica of {name_of(workload)} with {edited.summary}"
        + (", out of rotation" if rotation == "out" else ""),
        choices={"edits": edited.choices, "name": name_of(body), "rotation": rotation},
        steps=(call, canary_ready(call.target, workload, context)),
        circumstances=(room_for(snapshot, edited.template, 1, "canary"), *edited.notes),
        risk=VERB.risk,
        expected="none: nothing that runs is touched; "
        + (
            "the canary answers nobody"
            if rotation == "out"
            else "the canary takes its share of new requests when Ready"
        ),
        undo_text="remove the canary",
    )


def _keep_out(snapshot: ClusterSnapshot, body: Obj) -> None:
    """Create the canary's pods with the label that no Service selects, and with the note that returns them."""
    metadata = body["spec"]["template"]["metadata"]
    key = rotation_key(snapshot, metadata["labels"])
    if isinstance(key, str):
        raise impossible(f"the canary cannot be kept out of rotation: {key}")
    metadata["labels"] = metadata["labels"] | {key.key: OUT_VALUE}
    notes = {ROTATION_ANNOTATION: f"{key.key}={key.value}"}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}


def canary_name(workload: Obj, context: PlanContext) -> str:
    suffix = f"-incident-bot-canary-{context.slug}"
    return name_of(workload)[: MAX_NAME_LENGTH - len(suffix)].rstrip("-.") + suffix


def canary_object(workload: Obj, template: Obj, context: PlanContext) -> Obj:
    template = copy.deepcopy(template)
    mark = {CANARY_LABEL: context.slug}
    metadata: dict[str, Any] = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **mark}
    spec: dict[str, Any] = {
        "replicas": 1,
        "revisionHistoryLimit": 1,
        "progressDeadlineSeconds": DEADLINE_SECONDS,
        "selector": {"matchLabels": dict(mark)},
        "template": template,
    }
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
        return impossible(f"the canary {name_of(canary)} is still going away", "plan again in a moment")
    if annotations_of(canary).get(EDITS_ANNOTATION) == annotations_of(body)[EDITS_ANNOTATION]:
        return not_needed(f"the canary {name_of(canary)} runs these flags already")
    return impossible(f"a canary with other flags runs already: {name_of(canary)}", "remove it first")


def create_call(body: Obj, edited: EditedTemplate) -> Call:
    target = ObjectRef(kind="Deployment", namespace=namespace_of(body), name=name_of(body))
    of = annotations_of(body)[CANARY_OF_ANNOTATION]
    undo = delete_call(target, title=f"Remove the canary of {of}", no_undo=TAKES_BACK)
    one = Difference(path="", after=target.name, text=f"one more replica: {target.name}")
    return Call(
        method="create",
        target=target,
        body=body,
        differences=(one, *edited.differences),
        title=f"Start a canary of {of}",
        undo=(undo,),
    )


def canary_ready(target: ObjectRef, workload: Obj, context: PlanContext) -> Wait:
    return Wait(
        condition="canary_ready",
        about=target,
        within_seconds=context.startup_seconds + MARGIN_SECONDS,
        title=f"The canary of {name_of(workload)} is Ready",
    )


VERB = Verb(
    name="canary",
    help="Start a canary: one more replica, with edited flags, beside the workload.",
    stage="Canary",
    plan=plan_canary,
    kinds=(ChangeKind("canary", "medium", minutes=15),),
    access={"Deployment": (CREATE, DELETE)},
    arguments=(EDITS, Argument("rotation", ROTATION_HELP, "optional", known=ROTATIONS)),
    edits_engines=True,
    editable="edits",
    undo_cleans_up=True,
    leaves_behind=True,
    lasts=False,
    stub=Stub(method="create", of="canary"),
)
