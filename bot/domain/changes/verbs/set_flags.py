"""set_flags: edit flags, variables and the image where they are written, in one rollout that preserves capacity.

ConfigMaps are patched first; the template's annotation then rolls the pods. The undo follows the same order: the
ConfigMap first, so that the pods that roll back read the old text. A ConfigMap that other workloads read is left alone
where the template can hold the edit.
"""

from __future__ import annotations

from typing import Any

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.circumstances import Ownership, binding_note, ownership_of, ownership_of_config_map
from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.edited_template import EditedConfigMap, EditedTemplate, edited_template
from bot.domain.changes.owners_edit import STRATEGY, OwnersEdit, owners_edit
from bot.domain.changes.plan import Call, Circumstance, Plan, Step
from bot.domain.changes.steps.autoscaler_steps import scale_in_note, without_scale_in
from bot.domain.changes.steps.rolling import (
    expected_downtime,
    no_surge,
    refuse_if_not_rollable,
    refuse_if_rolling,
    rollout_circumstances,
    strategy_difference,
    strategy_edits,
    unavailable_in_place,
    workload_of,
)
from bot.domain.changes.steps.rollout_steps import TemplateChange, rollout_steps, without_surge
from bot.domain.changes.verb import EDITS, PATCH_CONFIG_MAP, ChangeKind, Verb, rolled
from bot.domain.cluster.config_map_readers import other_readers
from bot.domain.cluster.objects import name_of
from bot.domain.cluster.owner import owner_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS
from bot.domain.cluster.workload import KINDS as WORKLOADS
from bot.domain.flags.mitigations import refuse_what_harms
from bot.domain.kernel.errors import NoPlanError


def plan_set_flags(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    workload = workload_of(snapshot)
    require_readable(snapshot, "replica_sets", "pods", "services", "endpoint_slices")
    edited, shared = _edited(situation, workload)
    refuse_what_harms(edited.moves, context.against)
    refuse_if_not_rollable(workload)
    refuse_if_rolling(snapshot)
    drifting = _owners(snapshot, workload, edited)
    edits = strategy_edits(snapshot, edited.template)
    to_commit = "\n---\n".join(filter(None, dict.fromkeys(one.commit for one in drifting)))
    wording = Wording(
        title=f"Set {edited.summary} on {name_of(workload)}",
        undo_title=f"Put the flags of {name_of(workload)} back",
        differences=(*edited.differences, *map(strategy_difference, edits)),
    )
    change = TemplateChange([*edited.fields, *edits], edited.templates, wording, guards=edited.guards)
    return Plan(
        verb=VERB.name,
        title=f"Set {edited.summary} on every replica of {name_of(workload)}",
        choices={"edits": edited.choices},
        steps=without_scale_in(
            snapshot, _config_maps_first(edited.config_maps, rollout_steps(snapshot, change, context))
        ),
        circumstances=(
            *dict.fromkeys(one.circumstance for one in drifting),
            *rollout_circumstances(snapshot, edited.templates),
            *scale_in_note(snapshot),
            *edited.notes,
            *shared,
            *binding_note(snapshot, edited.moves),
        ),
        risk=VERB.risk,
        expected=expected_downtime(snapshot, edited.template),
        undo_text="put the old flags back, which is another rolling restart",
        commit=to_commit,
        owners_edit=_owners_edit(snapshot, workload, edited) if to_commit else None,
    )


def _edited(situation: Situation, workload: Obj) -> tuple[EditedTemplate, list[Circumstance]]:
    """Returns the edits, and what they mean for other workloads that read the same ConfigMaps."""
    snapshot, arguments = situation.snapshot, situation.arguments
    edited = edited_template(workload, arguments, snapshot.config_maps)
    if not edited.config_maps:
        return edited, []
    names = ", ".join(name_of(one.obj) for one in edited.config_maps)
    readers = sorted({who for one in edited.config_maps for who in other_readers(snapshot, one.obj)})
    if not readers:
        unread = snapshot.unreadable.get("all_pods")
        text = f"ConfigMap {names} is edited: other pods that read it get the new values at their next start"
        text += f"; who reads it is not known: {unread}" if unread else ""
        return edited, [Circumstance(name="config_map", grade="note", text=text)]
    who = f"{', '.join(readers)} {'reads' if len(readers) == 1 else 'read'} it too"
    try:
        apart = edited_template(workload, arguments, snapshot.config_maps, only_template=True)
    except NoPlanError:
        apart = edited
    if not apart.config_maps:
        text = f"ConfigMap {names} stays as it is, since {who}; the pod template overrides it"
        return apart, [Circumstance(name="config_map", grade="note", text=text)]
    text = f"ConfigMap {names} is edited, and {who}: the new values apply there from the next start of a pod"
    return apart, [Circumstance(name="config_map", grade="warning", text=text)]


def _owners(snapshot: ClusterSnapshot, workload: Obj, edited: EditedTemplate) -> list[Ownership]:
    """Raise if an owner reverts the edit: what it has to change is handed out."""
    try:
        of_maps = [
            ownership_of_config_map(snapshot, one.obj, [line.text for line in one.differences])
            for one in edited.config_maps
        ]
        return list(
            filter(None, [ownership_of(snapshot, workload, _owners_part(snapshot, workload, edited)), *of_maps])
        )
    except NoPlanError as error:
        edit = _owners_edit(snapshot, workload, edited)
        raise NoPlanError(
            error.outcome,
            error.reason,
            error.hint,
            handed_out=edited.edits,
            owners_edit=None if edit is None else edit.model_dump(),
        ) from None


def _owners_edit(snapshot: ClusterSnapshot, workload: Obj, edited: EditedTemplate) -> OwnersEdit | None:
    """None if a ConfigMap has to be edited: it may be kept in another file."""
    if edited.config_maps:
        return None
    part = _owners_part(snapshot, workload, edited)
    fields = {STRATEGY: part[STRATEGY]} if STRATEGY in part else {}
    return owners_edit(workload, fields, flags=edited.edits)


def _owners_part(snapshot: ClusterSnapshot, workload: Obj, edited: EditedTemplate) -> dict[str, Any]:
    """What the owner has to change. Where no surge pod fits, its rollout would wait for one forever."""
    owner = owner_of(workload, snapshot)
    if owner is None or not owner.reverts or not no_surge(snapshot, edited.template):
        return edited.owners_part
    return edited.owners_part | {STRATEGY: without_surge(unavailable_in_place(snapshot))}


def _config_maps_first(edited: tuple[EditedConfigMap, ...], rollout: tuple[Step, ...]) -> tuple[Step, ...]:
    """Patch the ConfigMaps, then roll out the pods that read them; the undo restores the texts before the pods."""
    first = [_config_map_call(one) for one in edited]
    if not first:
        return rollout
    undo = tuple(inverse for one in reversed(first) for inverse in one.undo)
    at, begin = next(
        (at, step) for at, step in enumerate(rollout) if isinstance(step, Call) and step.target.kind in KINDS
    )
    begin = begin.model_copy(update={"undo": (*undo, *begin.undo)})
    return (*first, *rollout[:at], begin, *rollout[at + 1 :])


def _config_map_call(edited: EditedConfigMap) -> Call:
    name = name_of(edited.obj)
    wording = Wording(
        title=f"Edit ConfigMap {name}",
        undo_title=f"Put the text of ConfigMap {name} back",
        differences=edited.differences,
    )
    return patch_call(edited.obj, "ConfigMap", edited.fields, wording)


VERB = Verb(
    name="set_flags",
    help="Edit flags, variables or the image where they are written, in one rollout that keeps the capacity.",
    stage="Rollout",
    plan=plan_set_flags,
    kinds=(ChangeKind("set_flags", "high", "serving + lead", minutes=10),),  # restarts every replica, unproven
    access=rolled(*WORKLOADS, besides=(PATCH_CONFIG_MAP,)),
    arguments=(EDITS,),
    edits_engines=True,
    proven_kind="promote",
    editable="edits",
)
