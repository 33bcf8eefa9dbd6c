"""isolate_replica: take a replica out of rotation, and wait until nothing runs on it."""

from __future__ import annotations

from bot.domain.changes.circumstances import others_carry_on
from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.plan import Plan
from bot.domain.changes.steps.replica_steps import called, emptied_steps, isolate_call, others_in_rotation, replica_of
from bot.domain.changes.verb import PATCH_POD, REPLICA, ChangeKind, Stub, Verb, everywhere
from bot.domain.cluster.objects import ROTATION_ANNOTATION, annotations_of, name_of, uid_of
from bot.domain.cluster.rotation import is_in_rotation, whole_replica
from bot.domain.kernel.errors import impossible, not_needed


def plan_isolate(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "pods", "replica_sets", "services", "endpoint_slices")
    pod = replica_of(situation)
    together = whole_replica(snapshot, pod)
    pod = together[0]
    if ROTATION_ANNOTATION in annotations_of(pod) and not is_in_rotation(pod, snapshot.endpoint_slices):
        raise not_needed(f"{name_of(pod)} is out of rotation already")
    if not others_in_rotation(snapshot, pod):
        raise impossible(f"{name_of(pod)} is the last replica in rotation", "scale out first")
    # In a group only the pods that a Service sends requests to have to leave; the others work for them.
    listed = [one for one in together if one is pod or is_in_rotation(one, snapshot.endpoint_slices)]
    calls = [isolate_call(snapshot, one, context) for one in listed]
    return Plan(
        verb="isolate_replica",
        disrupts="replica",
        title=f"Take {called(together)} out of rotation and let it run empty",
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=(*calls, *emptied_steps(pod, context)),
        circumstances=(others_carry_on(snapshot, pod),),
        risk=VERB.risk,
        expected="none: its running requests finish, new ones go to the other replicas",
        undo_text="the label is put back and it serves again",
    )


VERB = Verb(
    name="isolate_replica",
    help="Take a replica out of rotation, and wait until nothing runs on it.",
    plan=plan_isolate,
    kinds=(ChangeKind("isolate_replica", "medium", minutes=15),),
    access=everywhere(PATCH_POD),
    arguments=(REPLICA,),
    leaves_behind=True,
    stub=Stub(of="replica"),
)
