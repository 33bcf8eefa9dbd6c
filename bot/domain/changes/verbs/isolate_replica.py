"""isolate_replica: take a replica out of rotation, and wait until nothing runs on it."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.changes.circumstances import others_carry_on
from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.plan import ROOM, Call, Circumstance, Plan
from bot.domain.changes.steps.replica_steps import (
    called,
    emptied_steps,
    isolate_call,
    others_in_rotation,
    refuse_if_last,
    releases,
    replica_of,
    spare_ready,
)
from bot.domain.changes.steps.rolling import workload_of
from bot.domain.changes.verb import PATCH_POD, REPLICA, ChangeKind, Stub, Verb, everywhere
from bot.domain.cluster.capacity import Capacity, capacity_of
from bot.domain.cluster.objects import ROTATION_ANNOTATION, annotations_of, name_of, uid_of
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.rotation import is_in_rotation, whole_replica
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import impossible, not_needed


def plan_isolate(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "pods", "replica_sets", "services", "endpoint_slices")
    pod = replica_of(situation)
    together = whole_replica(snapshot, pod)
    pod = together[0]
    if ROTATION_ANNOTATION in annotations_of(pod) and not is_in_rotation(pod, snapshot):
        raise not_needed(f"{name_of(pod)} is out of rotation already")
    refuse_if_last(snapshot, pod)
    if not others_in_rotation(snapshot, pod):
        raise impossible(f"no replica is in rotation, so {name_of(pod)} takes no requests", "replace it")
    # In a group only the pods that a Service sends requests to have to leave; the others work for them.
    listed = [one for one in together if one is pod or is_in_rotation(one, snapshot)]
    calls = [isolate_call(snapshot, one, context) for one in listed]
    if releases(snapshot, pod):
        return _released(situation, pod, calls)
    return Plan(
        verb=VERB.name,
        disrupts="replica",
        title=f"Take {called(together)} out of rotation and let it run empty",
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=(*calls, *emptied_steps(pod, context, ends=False)),
        circumstances=(others_carry_on(snapshot, pod),),
        risk=VERB.risk,
        expected="none: its running requests finish, new ones go to the other replicas",
        undo_text="the label is put back and it serves again",
    )


def _released(situation: Situation, pod: Obj, calls: Sequence[Call]) -> Plan:
    """The replacement that its ReplicaSet creates is the spare: where there is room it serves before the pod ends."""
    snapshot, context, name = situation.snapshot, situation.context, name_of(pod)
    room = capacity_of(snapshot)
    fits = isinstance(room, Capacity) and room.replicas_that_fit >= 1
    if fits:
        spare = Circumstance(name=ROOM, grade="fine", text="there is room for its replacement, which starts at once")
    else:
        why = room if isinstance(room, str) else "no accelerator is free"
        text = f"{why}: its replacement may have to wait until {name} has ended, with one replica fewer until then"
        spare = Circumstance(name=ROOM, grade="warning", text=text)
    waits = (spare_ready(snapshot, pod, replicas_of(workload_of(snapshot)), context),) if fits else ()
    return Plan(
        verb=VERB.name,
        disrupts="replica",
        title=f"Take {name} out of rotation and let it run empty; its ReplicaSet replaces it",
        choices={"replica": name, "uid": uid_of(pod)},
        steps=(*calls, *waits, *emptied_steps(pod, context, ends=False)),
        circumstances=(others_carry_on(snapshot, pod), spare),
        risk=VERB.risk,
        expected="one replica fewer until the replacement is Ready; the running requests finish where they are",
        undo_text=f"until the replacement serves it can be returned; afterwards {name} ends when it is empty",
    )


VERB = Verb(
    name="isolate_replica",
    help="Take a replica out of rotation, and wait until nothing runs on it.",
    stage="Replacement",
    plan=plan_isolate,
    kinds=(ChangeKind("isolate_replica", "medium", minutes=15),),
    access=everywhere(PATCH_POD),
    arguments=(REPLICA,),
    undo_cleans_up=True,
    leaves_behind=True,
    stub=Stub(of="replica"),
)
