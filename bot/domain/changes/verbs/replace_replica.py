"""replace_replica: evict a replica under its disruption budget, and wait for the new one; several one by one.

If the incident added a replica before, that one is the replacement: the replica is scaled away, and as many
replicas are left as before the incident. If it was added through an autoscaler's floor, the replica is evicted, and
the floor goes back: the autoscaler then decides how many are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bot.domain.changes.circumstances import (
    budget_circumstance,
    drain_circumstance,
    others_carry_on,
    room_for_replicas,
    streams_of,
)
from bot.domain.changes.context import MARGIN_SECONDS, PlanContext, Situation, require_readable
from bot.domain.changes.drain import drain_mode
from bot.domain.changes.plan import Call, Circumstance, LedgerEntry, Plan, Step, Wait
from bot.domain.changes.steps.replica_steps import (
    called,
    evict_call,
    refuse_if_last,
    refuse_if_not_made_again,
    replicas_named,
    unready_now,
    victim_call,
)
from bot.domain.changes.steps.rolling import workload_of
from bot.domain.changes.verb import (
    EVICT,
    FLOORS_OF_AUTOSCALERS,
    PATCH_POD,
    REPLICA,
    Access,
    Argument,
    ChangeKind,
    Stub,
    Verb,
)
from bot.domain.changes.verbs.scale import runs_two_revisions, scaled
from bot.domain.cluster.disruption import budget_for
from bot.domain.cluster.json_patch import applied, broken_tests
from bot.domain.cluster.objects import created_at, dig, grace_seconds, name_of, ref_of, uid_of
from bot.domain.cluster.owner import autoscaler_of
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.rotation import (
    ends_first,
    in_order_of_leaving,
    is_in_rotation,
    is_released,
    replicas_present,
    whole_replica,
)
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import KINDS as WORKLOADS
from bot.domain.cluster.workload import NUMBERED, kind_of
from bot.domain.kernel.errors import impossible

RECORDED_WITHIN_SECONDS = 10.0
"""An autoscaler may have created a pod before the call that raised its floor was recorded."""


def plan_replace(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    workload = workload_of(snapshot)
    require_readable(snapshot, "pods", "replica_sets", "services", "endpoint_slices")
    chosen = replicas_named(situation)
    if len(chosen) > 1:
        return _replace_several(situation, in_order_of_leaving(chosen, snapshot))
    together = whole_replica(snapshot, chosen[0])
    pod = together[0]
    serves = is_in_rotation(pod, snapshot)
    refuse_if_last(snapshot, pod)
    refuse_if_not_made_again(snapshot, pod)
    budget = budget_circumstance(budget_for(pod, snapshot))
    if len(together) > 1:
        refuse_if_group_survives(workload)
    drain = drain_mode(snapshot)
    is_empty = streams_of(snapshot, [pod]) == 0 and not serves
    cuts = drain.cuts_streams and not is_empty
    if is_released(snapshot, pod):
        return _end_released(situation, pod, cuts=cuts)
    added = _added(snapshot, pod, context)
    floor = () if added else _floor_back(snapshot, pod, context)
    return Plan(
        verb=VERB.name,
        disrupts="replica",
        title=f"Replace {called(together)}" + (" by the replica that was added" if added else ""),
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=_scaled_away(snapshot, pod, added, context)
        if added
        else (evict_call(pod, called(together)), replaced(snapshot, pod, context), *floor),
        circumstances=(
            budget,
            *map(_floor_note, floor),
            drain_circumstance(snapshot, drain, [pod], is_empty=is_empty),
            others_carry_on(snapshot, pod),
            *(() if added else (_room_without(snapshot, together),)),
        ),
        risk=VERB.kinds[1 if cuts else 0].risk,
        expected="as many replicas as before the incident"
        if added or floor
        else "one replica fewer until the new one is Ready",
        undo_text="none: the replacement runs the same template",
    )


def _replace_several(situation: Situation, chosen: Sequence[Obj]) -> Plan:
    """One after the other, so that each takes the place of the one before it, and budgets allow it."""
    snapshot, context = situation.snapshot, situation.context
    replicas = [whole_replica(snapshot, pod) for pod in chosen]
    pods = [pod for together in replicas for pod in together]
    steps: list[Step] = []
    for together in replicas:
        refuse_if_last(snapshot, together[0])
        refuse_if_not_made_again(snapshot, together[0], leaving=pods)
        if len(together) > 1:
            refuse_if_group_survives(workload_of(snapshot))
        steps += [evict_call(together[0], called(together)), replaced(snapshot, together[0], context)]
    drain = drain_mode(snapshot)
    is_empty = streams_of(snapshot, pods) == 0 and not any(is_in_rotation(pod, snapshot) for pod in chosen)
    names = ", ".join(called(together) for together in replicas)
    return Plan(
        verb=VERB.name,
        disrupts="replica",
        title=f"Replace {len(replicas)} replicas, one after the other: {names}",
        choices={"replicas": [name_of(pod) for pod in chosen], "uids": [uid_of(pod) for pod in chosen]},
        steps=tuple(steps),
        circumstances=(
            # The last to leave serves if any does, and a budget may be stricter with those.
            budget_circumstance(budget_for(chosen[-1], snapshot)),
            drain_circumstance(snapshot, drain, pods, is_empty=is_empty),
            others_carry_on(snapshot, *chosen),
            _room_without(snapshot, replicas[0]),
        ),
        risk=VERB.kinds[1 if drain.cuts_streams and not is_empty else 0].risk,
        expected="one replica fewer at a time, until its replacement is Ready",
        undo_text="none: the replacements run the same template",
    )


def _end_released(situation: Situation, pod: Obj, *, cuts: bool) -> Plan:
    """Ends a pod that was released by its ReplicaSet; that created the replacement when it was."""
    snapshot, context, name = situation.snapshot, situation.context, name_of(pod)
    return Plan(
        verb=VERB.name,
        disrupts="replica",
        title=f"End {name}; its replacement was created when it was taken out",
        choices={"replica": name, "uid": uid_of(pod)},
        steps=(evict_call(pod), replaced(snapshot, pod, context)),
        circumstances=(
            budget_circumstance(budget_for(pod, snapshot)),
            drain_circumstance(snapshot, drain_mode(snapshot), [pod], is_empty=not cuts),
        ),
        risk=VERB.kinds[1 if cuts else 0].risk,
        expected="as many replicas as before the incident",
        undo_text="none: the replacement runs the same template",
    )


def _added(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext) -> LedgerEntry | None:
    """The call that added one replica, if the workload still has it and its controller would end `pod` for it."""
    workload = workload_of(snapshot)
    if kind_of(workload) in NUMBERED or runs_two_revisions(snapshot):
        return None
    if any(ends_first(other, pod) for other in replicas_present(snapshot)):
        return None
    for entry in _scales(context):
        call = entry.undo[0]
        if call.subresource != "scale" or call.target.uid != uid_of(workload):
            continue
        is_ours = not broken_tests(call.body, workload)
        return entry if is_ours and replicas_of(applied(call.body, workload)) == replicas_of(workload) - 1 else None
    return None


def _scales(context: PlanContext) -> Iterator[LedgerEntry]:
    """The changes of the number of replicas that are in place and can be undone, newest first."""
    return (each for each in reversed(context.ledger) if each.verb == "scale" and not each.undone_by and each.undo)


def _floor_back(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext) -> tuple[Call, ...]:
    """The call that gives an autoscaler its floor back, if that was raised for the one replica that replaces `pod`."""
    scaler, entry = autoscaler_of(snapshot), next(_scales(context), None)
    if scaler is None or entry is None:
        return ()
    back = entry.undo[0]
    if back.target.uid != uid_of(scaler.obj) or broken_tests(back.body, scaler.obj):
        return ()
    raised_at = entry.applied_at - RECORDED_WITHIN_SECONDS
    created = [created_at(one) or 0.0 for one in replicas_present(snapshot) if uid_of(one) != uid_of(pod)]
    if sum(at >= raised_at for at in created) != 1:
        return ()
    why = "the replica that it was raised for has replaced the other one"
    return (back.model_copy(update={"undoes": entry.call_id, "restores": True, "no_undo": why}),)


def _floor_note(back: Call) -> Circumstance:
    text = f"{back.target.kind} {back.target.name} gets its old floor back afterwards, and decides how many are needed"
    return Circumstance(name="autoscaler", grade="note", text=text)


def _scaled_away(snapshot: ClusterSnapshot, pod: Obj, added: LedgerEntry, context: PlanContext) -> tuple[Step, ...]:
    workload = workload_of(snapshot)
    back = added.undo[0].model_copy(
        update={
            "title": f"End {name_of(pod)}",
            "undoes": added.call_id,
            "no_undo": "as many replicas as before the incident serve; there is nothing to put back",
            "ends": (uid_of(pod),),
            "node": dig(pod, "spec", "nodeName") or "",
        }
    )
    fewer = replicas_of(workload) - 1
    return victim_call(snapshot, pod, context, out=False), back, scaled(snapshot, fewer, context, (uid_of(pod),))


def refuse_if_group_survives(workload: Obj) -> None:
    """The leader is evicted, and its whole group must end and restart with it."""
    policy = dig(workload, "spec", "leaderWorkerTemplate", "restartPolicy") or "RecreateGroupOnPodRestart"
    if not policy.startswith("RecreateGroup"):
        raise impossible(
            f"{name_of(workload)} restarts its pods one by one (restartPolicy {policy}): a group is not renewed as one",
            "its restartPolicy has to be RecreateGroupOnPodRestart",
        )


def replaced(snapshot: ClusterSnapshot, pod: Obj, context: PlanContext) -> Wait:
    return Wait(
        condition="replaced",
        about=ref_of(pod, "Pod"),
        parameters={
            "uid": uid_of(pod),
            "replicas": replicas_of(workload_of(snapshot)),
            **unready_now(snapshot),
        },
        within_seconds=context.startup_seconds + grace_seconds(pod) + MARGIN_SECONDS,
        title=f"{name_of(pod)} is gone and its replacement is Ready",
    )


def _room_without(snapshot: ClusterSnapshot, leaving: Sequence[Obj]) -> Circumstance:
    """Capacity for the replacement once these pods have released their accelerators."""
    gone = {uid_of(pod) for pod in leaving}
    rest = tuple(pod for pod in snapshot.all_pods if uid_of(pod) not in gone)
    # Its quota is released with it, and not counted again.
    freed = replace(snapshot, all_pods=rest, quotas=())
    return room_for_replicas(freed, 1, "replacement")


VERB = Verb(
    name="replace_replica",
    help="Evict a replica under its disruption budget, and wait for the new one; several one by one.",
    stage="Replacement",
    plan=plan_replace,
    kinds=(
        ChangeKind("replace_replica", "medium", minutes=15),
        ChangeKind("replace_busy_replica", "high", "serving + lead", minutes=10),  # streams would be cut
    ),
    access={kind: (EVICT, PATCH_POD, Access("patch", kind, "scale"), *FLOORS_OF_AUTOSCALERS) for kind in WORKLOADS},
    arguments=(Argument("replica", f"{REPLICA.help}; or several names, with commas"),),
    stub=Stub(method="evict", of="replica", has_undo=False),
)
