"""One replica: taken out of rotation by a label, drained, chosen to end, and returned by that label.

The pod itself stores what it needs to return (incident id, original label), so that a crash of the bot between two
calls leaves nothing that cannot be repaired.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation
from bot.domain.changes.differences import changed
from bot.domain.changes.plan import Call, Difference, Step, Wait
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, edit_of, pointer
from bot.domain.cluster.objects import (
    DELETION_COST_ANNOTATION,
    INCIDENT_ANNOTATION,
    ROTATION_ANNOTATION,
    TAKEN_FROM_LABEL,
    annotations_of,
    condition,
    dig,
    is_going_away,
    is_ready,
    labels_of,
    name_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.pod_state import restarts_of
from bot.domain.cluster.refused_pods import refused_replicas
from bot.domain.cluster.rotation import (
    OUT_VALUE,
    RotationKey,
    is_in_rotation,
    is_replica_ready,
    pod_named,
    pods_of_workload,
    releasing_key,
    replicas_present,
    rotation_key,
    whole_replica,
)
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import NUMBERED, is_ordered, kind_of, number_of
from bot.domain.kernel.errors import impossible, not_needed

OUT_SECONDS = 120.0
"""A label change reaches every proxy within seconds; longer means that another cause keeps the pod in rotation."""
DELETION_COST = -1000
LOWEST_DELETION_COST = -(2**31)


def called(together: tuple[Obj, ...]) -> str:
    first = name_of(together[0])
    return first if len(together) == 1 else f"the group of {first} ({len(together)} pods)"


def replica_of(situation: Situation) -> Obj:
    name = str(situation.arguments.get("replica") or "")
    if not name:
        raise impossible("no replica given", "write: with: {replica: '${picked.replica}'}")
    pod = pod_named(situation.snapshot, name)
    if pod is None:
        raise not_needed(f"replica {name} does not exist any more")
    if is_going_away(pod):
        raise not_needed(f"replica {name} is ending already")
    return pod


def replicas_named(situation: Situation) -> list[Obj]:
    """Returns the replicas of a comma-separated list that are still there. A single one has to be."""
    names = [name.strip() for name in str(situation.arguments.get("replica") or "").split(",")]
    if len(names) == 1:
        return [replica_of(situation)]
    found = [pod_named(situation.snapshot, name) for name in names]
    there = [pod for pod in found if pod is not None and not is_going_away(pod)]
    if not there:
        raise not_needed(f"none of the replicas {', '.join(names)} exists any more")
    return there


def others_in_rotation(snapshot: ClusterSnapshot, pod: Obj) -> list[Obj]:
    leaves = {uid_of(one) for one in whole_replica(snapshot, pod)}
    rest = [other for other in replicas_present(snapshot) if uid_of(other) not in leaves]
    return [other for other in rest if is_replica_ready(snapshot, other) and is_in_rotation(other, snapshot)]


def refuse_if_last(snapshot: ClusterSnapshot, pod: Obj) -> None:
    """Raise if the pod serves and no other does."""
    if is_in_rotation(pod, snapshot) and not others_in_rotation(snapshot, pod):
        raise impossible(f"{name_of(pod)} is the last replica in rotation", "scale out first")


def unready_below(snapshot: ClusterSnapshot, number: int) -> list[Obj]:
    """Returns the pods that the controller of an ordered StatefulSet waits for before it turns to pod `number`."""
    if not is_ordered(snapshot.workload):
        return []
    there = sorted(pods_of_workload(snapshot), key=number_of)
    return [pod for pod in there if number_of(pod) < number and not is_ready(pod) and not is_going_away(pod)]


def refuse_if_not_made_again(snapshot: ClusterSnapshot, pod: Obj, leaving: Sequence[Obj] = ()) -> None:
    """Raise if its controller would not replace the pod, unless what it waits for is among `leaving`."""
    waited_for = [name_of(one) for one in unready_below(snapshot, number_of(pod)) if one not in leaving]
    if waited_for:
        are = "is" if len(waited_for) == 1 else "are"
        raise impossible(
            f"{', '.join(waited_for)} {are} not Ready, and before that a StatefulSet's controller does not make"
            f" {name_of(pod)} again (podManagementPolicy OrderedReady)",
            f"replace {waited_for[0]} first",
        )
    if kind_of(snapshot.workload) in NUMBERED and (node := _silent_node(snapshot, pod)):
        raise impossible(
            f"{node} does not report to the API server, so {name_of(pod)} is never gone, and before that its controller"
            " does not make it again",
            f"make sure that {node} is off; then force the deletion of its pods, or give it the taint"
            " node.kubernetes.io/out-of-service",
        )


def _silent_node(snapshot: ClusterSnapshot, pod: Obj) -> str:
    """Returns the first node of this replica whose kubelet is not heard of; empty if there is none."""
    silent = {name_of(node) for node in snapshot.nodes if condition(node, "Ready").get("status") == "Unknown"}
    nodes = (dig(one, "spec", "nodeName") for one in whole_replica(snapshot, pod))
    return next((f"node {node}" for node in nodes if node in silent), "")


def isolate_call(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext) -> Call:
    """Raise `NoPlanError` if no label takes the pod out of rotation."""
    key = rotation_key(snapshot, labels_of(pod))
    if isinstance(key, str):
        releasing = releasing_key(snapshot, labels_of(pod))
        if isinstance(releasing, str):
            reasons = "; ".join(dict.fromkeys((key, releasing)))
            raise impossible(f"{name_of(pod)} cannot be taken out of rotation: {reasons}")
        return _release_call(snapshot, pod, context, releasing)
    wording = Wording(
        title=f"Take {name_of(pod)} out of rotation",
        undo_title=f"Put {name_of(pod)} back into rotation",
        differences=(_label_difference(pod, key),),
    )
    return patch_call(pod, "Pod", [_label_edit(pod, key), *_notes(pod, context, key)], wording)


def releases(snapshot: ClusterSnapshot, pod: Obj) -> bool:
    """Whether taking the pod out of rotation also takes it out of its ReplicaSet, which then replaces it."""
    return isinstance(rotation_key(snapshot, labels_of(pod)), str)


def _release_call(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext, key: RotationKey) -> Call:
    """It has no undo: once the replacement serves, the ReplicaSet would end one of the two, with what runs there."""
    mark = FieldEdit(pointer("metadata", "labels", TAKEN_FROM_LABEL), ABSENT, uid_of(snapshot.workload or {}))
    name = name_of(pod)
    wording = Wording(
        title=f"Take {name} out of rotation and out of its ReplicaSet, which replaces it",
        undo_title=f"Put {name} back",
        differences=(_label_difference(pod, key),),
    )
    call = patch_call(pod, "Pod", [_label_edit(pod, key), mark, *_notes(pod, context, key)], wording)
    return call.model_copy(update={"undo": (), "no_undo": f"its replacement takes over; end {name} when it is empty"})


def evict_call(pod: Obj, called: str = "") -> Call:
    """`called`: name of what ends, if it is more than the pod."""
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


def unready_now(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Returns the parameters of a wait about replicas that are not Ready, have restarted, or are refused now.

    What was so before a change is no failure of it.
    """
    there = [pod for pod in pods_of_workload(snapshot) if not is_going_away(pod)]
    found = {
        "unready": [uid_of(pod) for pod in there if not is_replica_ready(snapshot, pod)],
        "restarts": {uid_of(pod): count for pod in there if (count := restarts_of(pod))},
        "refused": refused_replicas(snapshot.workload, snapshot) if snapshot.workload is not None else 0,
    }
    return {name: value for name, value in found.items() if value}


def spare_ready(snapshot: ClusterSnapshot, pod: Obj, replicas: int, context: PlanContext) -> Wait:
    return Wait(
        condition="spare_ready",
        about=ref_of(pod, "Pod"),
        parameters={"uid": uid_of(pod), "replicas": replicas, **unready_now(snapshot)},
        within_seconds=context.startup_seconds + MARGIN_SECONDS,
        title=f"The replacement of {name_of(pod)} is Ready",
    )


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


def victim_call(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext, *, out: bool) -> Call:
    """Mark the pod as the one to end in a scale-in, and take it out of rotation if that is needed."""
    if kind_of(snapshot.workload) in NUMBERED:
        return isolate_call(snapshot, pod, context)
    cost = _lowest_cost(snapshot, pod)
    edits = [annotation_edit(pod, DELETION_COST_ANNOTATION, cost)]
    before = annotations_of(pod).get(DELETION_COST_ANNOTATION)
    differences = [changed(f"{name_of(pod)}: pod-deletion-cost", edits[0].path, before, cost)]
    key = rotation_key(snapshot, labels_of(pod)) if out else None
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


def _lowest_cost(snapshot: ClusterSnapshot, pod: Obj) -> str:
    """Returns a deletion cost below those that others have given to the other replicas."""
    others = (
        int(cost)
        for other in pods_of_workload(snapshot)
        if uid_of(other) != uid_of(pod)
        and re.fullmatch(r"-?\d{1,10}", cost := annotations_of(other).get(DELETION_COST_ANNOTATION, ""))
    )
    return str(max(LOWEST_DELETION_COST, min(DELETION_COST, min(others, default=0) - 1)))


def emptied_steps(pod: Obj, context: PlanContext, *, ends: bool = True) -> tuple[Step, ...]:
    """`ends`: a later call of the plan ends the pod, also if it hangs and never becomes empty."""
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
            parameters={**parameters, "quiet_seconds": context.quiet_seconds}
            | ({"ends_if_hung": True} if ends else {}),
            within_seconds=context.drain_seconds,
            title=f"{name_of(pod)} has finished its requests and gets no new ones" + (", or it hangs" if ends else ""),
        ),
    )


def return_call(pod: Obj, noted: str) -> Call:
    """Restore the label from the pod's own note, and remove the notes."""
    key, _, value = noted.partition("=")
    label = edit_of(pod, pointer("metadata", "labels", key), value)
    notes = [
        FieldEdit(pointer("metadata", "annotations", name), annotations_of(pod)[name], ABSENT)
        for name in (INCIDENT_ANNOTATION, ROTATION_ANNOTATION)
        if name in annotations_of(pod)
    ]
    if TAKEN_FROM_LABEL in labels_of(pod):
        path = pointer("metadata", "labels", TAKEN_FROM_LABEL)
        notes.append(FieldEdit(path, labels_of(pod)[TAKEN_FROM_LABEL], ABSENT))
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
