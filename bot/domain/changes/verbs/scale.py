"""scale: more or fewer replicas through the Scale subresource. A scale-in ends chosen, drained replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.domain.changes.calls import Wording, patch_call
from bot.domain.changes.circumstances import (
    drain_circumstance,
    last_room,
    no_autoscaler,
    ownership_of,
    room_for_replicas,
)
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.differences import changed
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import LAST_ROOM, Call, Circumstance, Plan, Risk, Step, Wait
from bot.domain.changes.steps.replica_steps import emptied_steps, unready_below, unready_now, victim_call
from bot.domain.changes.steps.rolling import workload_of
from bot.domain.changes.verb import FLOORS_OF_AUTOSCALERS, PATCH_POD, Access, Argument, ChangeKind, Verb
from bot.domain.cluster.json_patch import ABSENT, FieldEdit, edit_of, pointer
from bot.domain.cluster.objects import controller_of, dig, grace_seconds, is_going_away, name_of, ref_of, uid_of
from bot.domain.cluster.owner import Autoscaler, autoscaler_of
from bot.domain.cluster.pod_state import first_broken
from bot.domain.cluster.rollout import new_and_old_pods, replicas_of
from bot.domain.cluster.rotation import in_order_of_leaving, is_in_rotation, pods_of_workload, replicas_present
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS as WORKLOADS
from bot.domain.cluster.workload import NUMBERED, is_ordered, kind_of, number_of, template_of
from bot.domain.kernel.errors import impossible, not_needed

MAX_REPLICAS = 1000
LAST_ACCELERATOR_TEAMS = ("serving", "platform")
"""Approvers if no surge, canary or replacement finds capacity afterwards."""
MORE_SERVE = "nothing is restarted; what is added takes requests once it is Ready"


def fewer_serve(count: int, victims: Sequence[Obj], *, left: int) -> str:
    text = f"{count} fewer replica{' serves' if count == 1 else 's serve'}" if left else "no replica serves any more"
    names = ", ".join(map(name_of, victims))
    return f"{text}: {names} end{'s' if len(victims) == 1 else ''}" if names else text


def plan_scale(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    workload = workload_of(snapshot)
    now = replicas_of(workload)
    wanted = wanted_replicas(situation.arguments, now)
    if wanted == now:
        raise not_needed(f"{name_of(workload)} has {now} replicas already")
    if wanted < 1:
        raise impossible("the last replica is never taken away")
    scaler = autoscaler_of(snapshot)
    if scaler is not None and not _is_off(scaler, now):
        return _through_autoscaler(situation, scaler, now, wanted)
    unscaled = no_autoscaler(snapshot)
    if scaler is not None:
        wanted, unscaled = _within_bounds(scaler, wanted)
    owned = ownership_of(snapshot, workload, {"replicas": wanted})
    call = scale_call(workload, now, wanted)
    if wanted > now:
        _refuse_if_stuck(snapshot, wanted)
        wait = scaled(snapshot, wanted, context) if scaler is None else _grown(snapshot, wanted, context)
        steps: tuple[Step, ...] = (call, wait)
        room = _room_for_more(snapshot, wanted - now)
        circumstances: tuple[Circumstance, ...] = (owned.circumstance, unscaled, *room)
        victims: list[Obj] = []
    else:
        require_readable(snapshot, "pods", "replica_sets", "endpoint_slices", "services")
        if runs_two_revisions(snapshot):
            raise impossible(
                f"replicas of two revisions run: {name_of(workload)}'s controller decides of which one fewer are left",
                "wait for its rollout, or roll it back",
            )
        victims = victims_of(snapshot, wanted)
        drain = drain_mode(snapshot)
        ends = tuple(uid_of(pod) for pod in victims)
        call = call.model_copy(update={"ends": ends})
        steps = (*drained_first(snapshot, victims, context), call, scaled(snapshot, wanted, context, ends))
        leaving = drain_circumstance(snapshot, drain, victims, is_empty=drain.mode == "label")
        circumstances = (owned.circumstance, unscaled, leaving)
    return Plan(
        verb=VERB.name,
        disrupts="nothing" if wanted > now else "workload",
        title=f"Scale {name_of(workload)} from {now} to {wanted} replicas",
        choices={"to": wanted} | ({"ends": [uid_of(pod) for pod in victims]} if victims else {}),
        steps=steps,
        circumstances=circumstances,
        risk=_risk(now, wanted),
        approved_by=_deciders(circumstances),
        expected=MORE_SERVE if wanted > now else fewer_serve(now - wanted, victims, left=wanted),
        undo_text=f"scale back to {now}",
        commit=owned.commit,
        owners_edit=owned.edit,
    )


def runs_two_revisions(snapshot: ClusterSnapshot) -> bool:
    """Whether a Deployment is between two: a deletion cost chooses only among the pods of one ReplicaSet."""
    parted = new_and_old_pods(snapshot) if kind_of(snapshot.workload) == "Deployment" else None
    return parted is not None and all(any(not is_going_away(pod) for pod in pods) for pods in parted)


def _is_off(scaler: Autoscaler, now: int) -> bool:
    """Whether the autoscaler does nothing because somebody scaled to 0; KEDA starts a workload at 0 all the same."""
    return now == 0 and scaler.kind == "HorizontalPodAutoscaler" and controller_of(scaler.obj) is None


def _within_bounds(scaler: Autoscaler, wanted: int) -> tuple[int, Circumstance]:
    """Returns as many replicas as it leaves alone once it is on again."""
    if scaler.most is not None and wanted > scaler.most:
        raise impossible(f"{scaler.text} allows at most {scaler.most} replicas", scaler.how)
    text = f"{scaler.text} is off at 0 replicas, and decides again once there are some"
    return max(wanted, scaler.least), Circumstance(name="autoscaler", grade="note", text=text)


def _risk(now: int, wanted: int) -> Risk:
    one_more, more, over_half = (kind.risk for kind in VERB.kinds)
    if abs(wanted - now) * 2 > max(now, 2):
        return over_half
    return one_more if wanted == now + 1 else more


def _room_for_more(snapshot: ClusterSnapshot, more: int) -> tuple[Circumstance, ...]:
    what = "new replica" if more == 1 else f"{more} new replicas"
    room, last = room_for_replicas(snapshot, more, what), last_room(snapshot, more)
    return (room,) if last is None else (room, last)


def _deciders(circumstances: Iterable[Circumstance]) -> tuple[str, ...]:
    """Adds the platform team if no accelerator stays free."""
    return LAST_ACCELERATOR_TEAMS if any(each.name == LAST_ROOM for each in circumstances) else ()


def _through_autoscaler(situation: Situation, scaler: Autoscaler, now: int, wanted: int) -> Plan:
    """More replicas: raise the autoscaler's minimum. Fewer replicas are the autoscaler's own decision."""
    snapshot, context, workload = situation.snapshot, situation.context, workload_of(situation.snapshot)
    _refuse_if_not_raisable(snapshot, scaler, now, wanted)
    is_above = scaler.most is not None and wanted > scaler.most
    if is_above and situation.arguments.get("above_maximum") is not True:
        raise impossible(f"{scaler.text} allows at most {scaler.most} replicas", scaler.how)
    # The maximum comes first: no controller may see a floor above it.
    fields = (scaler.maximum_field, scaler.floor_field) if is_above else (scaler.floor_field,)
    owned = ownership_of(snapshot, scaler.obj, dict.fromkeys(fields, wanted), kind=scaler.kind)
    edits = [edit_of(scaler.obj, pointer("spec", name), wanted) for name in fields]
    named, bounds = f"{scaler.kind} {name_of(scaler.obj)}", f"{scaler.least} to {scaler.most}"
    wording = Wording(
        title=f"Let {named} keep at least {wanted} replicas ({bounds} before)",
        undo_title=f"Give {scaler.text} its old {'bounds' if is_above else 'floor'} back",
        differences=tuple(
            changed(f"{named}: {name}", edit.path, None if edit.before is ABSENT else edit.before, wanted)
            for name, edit in zip(fields, edits, strict=True)
        ),
    )
    wait = _grown(snapshot, wanted, context)
    if scaler.most is not None and wanted >= scaler.most:
        note = f"{named} stays at exactly {wanted} replicas until its old bounds ({bounds}) are back"
    else:
        note = f"{scaler.text} owns the replica count: its floor is raised, and it may add even more"
    note += f"; {scaler.idle}" if scaler.idle else ""
    room = _room_for_more(snapshot, wanted - now)
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Scale {name_of(workload)} from {now} to at least {wanted} replicas",
        choices={"to": wanted, "through": scaler.kind} | ({"above_maximum": True} if is_above else {}),
        steps=(patch_call(scaler.obj, scaler.kind, edits, wording), wait),
        circumstances=(
            owned.circumstance,
            Circumstance(name="autoscaler", grade="note", text=note),
            *([_above_maximum(scaler, wanted)] if is_above else []),
            *room,
        ),
        risk=_risk(now, wanted),
        approved_by=_deciders(room),
        expected=MORE_SERVE,
        undo_text=f"the old {'bounds are' if is_above else 'floor is'} put back; "
        "the autoscaler then takes replicas away when they are not needed",
        commit=owned.commit,
        owners_edit=owned.edit,
    )


def _refuse_if_not_raisable(snapshot: ClusterSnapshot, scaler: Autoscaler, now: int, wanted: int) -> None:
    """Raise unless raising the autoscaler's minimum has that effect."""
    if (maker := controller_of(scaler.obj) or {}).get("kind") == "ScaledObject":
        name = f"ScaledObject {maker.get('name')} (KEDA)"
        why = snapshot.unreadable.get("scaled_objects", "it is not there")
        hint = f"edit minReplicaCount and maxReplicaCount of {name} so that it keeps {wanted}"
        raise impossible(f"{name} owns the replica count, and it could not be read: {why}", hint)
    if scaler.is_fixed or (scaler.paused and wanted > now):
        is_number = "paused-replicas" in scaler.paused
        hint = "change the annotation, or remove it" if is_number else "resume it, or scale by hand"
        raise impossible(f"{scaler.text} is paused: {scaler.paused}", hint)
    if wanted < now:
        raise impossible(f"{scaler.text} owns the replica count and decides itself when fewer are enough", scaler.how)
    if wanted <= scaler.least:
        text = f"{scaler.text} keeps at least {scaler.least} replicas already, and {now} are requested now"
        raise impossible(text, "find out why it does not add them, or scale by hand")


def _above_maximum(scaler: Autoscaler, wanted: int) -> Circumstance:
    """A warning: what was approved ahead is a replica within the maximum, never a higher maximum."""
    text = f"the maximum of {scaler.text} becomes {wanted}: somebody chose it, often because of quota or cost"
    return Circumstance(name="maximum", grade="warning", text=text)


def wanted_replicas(arguments: Mapping[str, Any], now: int) -> int:
    given = {key: arguments[key] for key in ("by", "to") if arguments.get(key) is not None}
    if len(given) != 1:
        raise impossible("scale needs either by or to", "write: with: {by: 1}")
    ((key, value),) = given.items()
    if isinstance(value, str):
        value = _number(key, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise impossible(f"scale {key} has to be a whole number, not {value!r}")
    wanted = now + int(value) if key == "by" else int(value)
    if wanted > MAX_REPLICAS:
        raise impossible(f"{wanted} replicas are more than the bot ever asks for ({MAX_REPLICAS})")
    return wanted


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise impossible(f"scale {key} has to be a whole number, not {value!r}") from None


def scale_call(workload: Obj, now: int, wanted: int) -> Call:
    wording = Wording(
        title=f"Scale {name_of(workload)} to {wanted}",
        undo_title=f"Scale {name_of(workload)} back to {now}",
        differences=(changed("replicas", "/spec/replicas", now, wanted),),
    )
    edits = [FieldEdit("/spec/replicas", now, wanted)]
    return patch_call(workload, kind_of(workload), edits, wording, subresource="scale")


def scaled(snapshot: ClusterSnapshot, wanted: int, context: PlanContext, ends: tuple[str, ...] = ()) -> Wait:
    """`ends`: UIDs of the pods chosen to end; no others must have ended instead."""
    workload = workload_of(snapshot)
    return Wait(
        condition="scaled",
        about=ref_of(workload, kind_of(workload)),
        parameters={"replicas": wanted} | ({"ends": list(ends)} if ends else {}) | unready_now(snapshot),
        within_seconds=_time_to_scale(snapshot, wanted, context),
        title=f"{wanted} replicas of {name_of(workload)} are Ready",
    )


def _grown(snapshot: ClusterSnapshot, wanted: int, context: PlanContext) -> Wait:
    """As `scaled`, beside an autoscaler that may add more."""
    workload = workload_of(snapshot)
    return Wait(
        condition="grown",
        about=ref_of(workload, kind_of(workload)),
        parameters={"replicas": wanted, **unready_now(snapshot)},
        within_seconds=_time_to_scale(snapshot, wanted, context),
        title=f"At least {wanted} replicas of {name_of(workload)} are Ready",
    )


def _time_to_scale(snapshot: ClusterSnapshot, wanted: int, context: PlanContext) -> float:
    """An ordered StatefulSet starts, and ends, one replica after the other."""
    more = wanted - replicas_of(workload_of(snapshot))
    turns = abs(more) if is_ordered(snapshot.workload) else 1
    if more > 0:
        return turns * context.available_seconds + MARGIN_SECONDS
    return context.available_seconds + turns * grace_seconds(template_of(snapshot.workload)) + MARGIN_SECONDS


def victims_of(snapshot: ClusterSnapshot, wanted: int) -> list[Obj]:
    """Returns the replicas to end: those beyond `wanted` that exist. Raise if none of those that stay serves."""
    _refuse_if_stuck(snapshot, wanted)
    victims = _victims(snapshot, wanted)
    serving = [pod for pod in replicas_present(snapshot) if is_in_rotation(pod, snapshot)]
    if wanted and serving and all(pod in victims for pod in serving):
        last = f"the last replica{'s' if len(serving) > 1 else ''} in rotation: {', '.join(map(name_of, serving))}"
        raise impossible(f"scaling in to {wanted} ends {last}", "replace those that do not serve first")
    return victims


def _refuse_if_stuck(snapshot: ClusterSnapshot, wanted: int) -> None:
    """Raise if the controller of a StatefulSet makes and ends no replica, because of one that stays and is broken."""
    if broken := first_broken(unready_below(snapshot, _first_to_end(snapshot, wanted)), snapshot.at):
        raise impossible(
            f"{broken}; until it is Ready, the controller makes and ends no other (podManagementPolicy OrderedReady)",
            "replace it first",
        )


def _victims(snapshot: ClusterSnapshot, wanted: int) -> list[Obj]:
    """Numbered replicas leave no choice: from a number on all go, also where one below is missing or ending.

    Of others, a replica that was requested but never created (a quota, no capacity) needs no other to end for it.
    """
    there = [pod for pod in pods_of_workload(snapshot) if not is_going_away(pod)]
    if kind_of(snapshot.workload) in NUMBERED:
        staying = [pod for pod in replicas_present(snapshot) if not is_going_away(pod)]
        ending = [pod for pod in staying if number_of(pod) >= _first_to_end(snapshot, wanted)]
        return sorted(ending, key=number_of, reverse=True)
    return in_order_of_leaving(there, snapshot)[: max(0, len(there) - wanted)]


def _first_to_end(snapshot: ClusterSnapshot, wanted: int) -> int:
    """Returns the lowest number that its controller ends, of numbered replicas."""
    return int(dig(snapshot.workload, "spec", "ordinals", "start") or 0) + wanted


def drained_first(snapshot: ClusterSnapshot, victims: list[Obj], context: PlanContext) -> list[Step]:
    """Make the controller choose these pods, and drain them if their end would cut streams."""
    drain = drain_mode(snapshot)
    if kind_of(snapshot.workload) in NUMBERED:
        # No choice of pods: they are only drained, if their end would cut streams.
        victims = [pod for pod in victims if is_in_rotation(pod, snapshot)] if drain.mode == "label" else []
    marks: list[Step] = [victim_call(snapshot, pod, context, out=drain.mode == "label") for pod in victims]
    if drain.mode != "label":
        return marks
    # A pod out of rotation has nothing to finish, and may be too broken to report.
    serving = [pod for pod in victims if is_in_rotation(pod, snapshot)]
    return marks + [step for pod in serving for step in emptied_steps(pod, context)]


VERB = Verb(
    name="scale",
    help="More or fewer replicas; fewer ends chosen, emptied ones.",
    stage="Scaling",
    plan=plan_scale,
    kinds=(
        ChangeKind("scale", "low", minutes=20),  # one more: reversible, restarts nothing
        ChangeKind("scale_more", "medium", minutes=20),  # more than one replica, or fewer than now: a pod ends
        ChangeKind("scale_over_half", "high"),  # more than half of the workload at once
    ),
    access={kind: (Access("patch", kind, "scale"), PATCH_POD, *FLOORS_OF_AUTOSCALERS) for kind in WORKLOADS},
    arguments=(
        Argument("by", "how many replicas more; fewer where negative", "one_of", kind="a whole number"),
        Argument("to", "how many replicas there are to be", "one_of", kind="a whole number", least=0),
        Argument(
            "above_maximum",
            "true: raise an autoscaler's maximum too, where it is lower",
            "optional",
            kind="true or false",
        ),
    ),
    editable="replicas",
)
