"""No autoscaler takes replicas away while a rollout replaces them: its floor is raised for as long, and put back."""

from __future__ import annotations

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.differences import changed
from bot.domain.changes.plan import Call, Circumstance, Step
from bot.domain.cluster.json_patch import ABSENT, edit_of, pointer
from bot.domain.cluster.objects import controller_of, name_of
from bot.domain.cluster.owner import Autoscaler, autoscaler_of, owner_of_edit
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.snapshot import ClusterSnapshot


def without_scale_in(snapshot: ClusterSnapshot, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Returns the rollout's steps between the calls that raise the autoscaler's floor and put it back, where needed.

    If the rollout stops in between, the ledger has the inverse of the first call, as of every other one.
    """
    scaler = autoscaler_of(snapshot)
    if scaler is None or not _may_scale_in(scaler, snapshot) or _why_not(scaler, snapshot):
        return steps
    floor = pointer("spec", scaler.floor_field)
    edit = edit_of(scaler.obj, floor, _present(scaler, snapshot))
    named = f"{scaler.kind} {name_of(scaler.obj)}"
    before = None if edit.before is ABSENT else edit.before
    wording = Wording(
        title=f"Keep {named} from scaling in during the rollout",
        undo_title=f"Let {named} scale in again",
        differences=(changed(f"{named}: {scaler.floor_field} for the rollout", floor, before, edit.after),),
    )
    hold = patch_call(scaler.obj, scaler.kind, [edit], wording)
    return hold, *steps, _release(hold)


def scale_in_note(snapshot: ClusterSnapshot) -> tuple[Circumstance, ...]:
    """What the workload's autoscaler may do during a rollout; empty if it cannot take a replica away."""
    scaler = autoscaler_of(snapshot)
    if scaler is None or not _may_scale_in(scaler, snapshot):
        return ()
    if why := _why_not(scaler, snapshot):
        text = f"{scaler.text} may take replicas away meanwhile: {why}"
        return (Circumstance(name="scale_in", grade="note", text=text),)
    text = f"{scaler.text} takes no replica away meanwhile: its floor is raised, and put back when the rollout is over"
    if scaler.idle:
        return (Circumstance(name="scale_in", grade="note", text=f"{text}; {scaler.idle}"),)
    return (Circumstance(name="scale_in", grade="fine", text=text),)


def _release(hold: Call) -> Call:
    """Its body is exactly the inverse of the hold: the ledger takes the hold as undone by it."""
    return hold.undo[0].model_copy(update={"no_undo": "the rollout is over"})


def _may_scale_in(scaler: Autoscaler, snapshot: ClusterSnapshot) -> bool:
    return not scaler.is_fixed and scaler.least < _present(scaler, snapshot)


def _present(scaler: Autoscaler, snapshot: ClusterSnapshot) -> int:
    """Never above its maximum: the API server refuses such a floor."""
    replicas = replicas_of(snapshot.workload or {})
    return replicas if scaler.most is None else min(replicas, scaler.most)


def _why_not(scaler: Autoscaler, snapshot: ClusterSnapshot) -> str:
    if (maker := controller_of(scaler.obj)) is not None:
        return f"its floor belongs to {maker.get('kind')} {maker.get('name')}"
    owner = owner_of_edit(scaler.obj, snapshot, {scaler.floor_field: _present(scaler, snapshot)}, kind=scaler.kind)
    return f"its floor belongs to {owner.text}" if owner is not None and owner.reverts else ""
