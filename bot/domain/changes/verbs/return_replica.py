"""return_replica: put an isolated replica back into rotation."""

from __future__ import annotations

from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.plan import Plan
from bot.domain.changes.steps.replica_steps import in_rotation, return_call
from bot.domain.changes.steps.rolling import workload_of
from bot.domain.changes.verb import PATCH_POD, REPLICA, ChangeKind, Stub, Verb, everywhere
from bot.domain.cluster.objects import ROTATION_ANNOTATION, annotations_of, is_going_away, is_ready, name_of, uid_of
from bot.domain.cluster.rollout import replicas_of
from bot.domain.cluster.rotation import (
    is_in_rotation,
    is_released,
    is_replica_ready,
    pod_named,
    replicas_present,
    whole_replica,
)
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import impossible, not_needed


def plan_return(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    require_readable(snapshot, "pods", "endpoint_slices")
    name = str(situation.arguments.get("replica") or "")
    pod = pod_named(snapshot, name)
    if pod is None or is_going_away(pod):
        raise not_needed(f"replica {name} does not exist any more; there is nothing to return")
    out = [one for one in whole_replica(snapshot, pod) if annotations_of(one).get(ROTATION_ANNOTATION)]
    if not out:
        if is_in_rotation(pod, snapshot):
            raise not_needed(f"{name_of(pod)} is in rotation")
        raise impossible(
            f"{name_of(pod)} was not taken out of rotation by the bot",
            "it is not Ready" if not is_ready(pod) else "look at its labels and the Service's selector",
        )
    pod = out[0]
    if is_released(snapshot, pod) and _all_serve(snapshot):
        raise impossible(
            f"the replacement of {name_of(pod)} serves already: the ReplicaSet would end one of the two",
            f"end {name_of(pod)} when it is empty",
        )
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Put {name_of(pod)} back into rotation",
        choices={"replica": name_of(pod), "uid": uid_of(pod)},
        steps=(*(return_call(one, annotations_of(one)[ROTATION_ANNOTATION]) for one in out), in_rotation(pod, context)),
        risk=VERB.risk,
        expected="none",
        undo_text="take it out of rotation again",
    )


def _all_serve(snapshot: ClusterSnapshot) -> bool:
    """Otherwise the ReplicaSet ends a replica that is not Ready when it takes the released pod back."""
    ready = [pod for pod in replicas_present(snapshot) if is_replica_ready(snapshot, pod)]
    return len(ready) >= replicas_of(workload_of(snapshot))


VERB = Verb(
    name="return_replica",
    help="Put an isolated replica back into rotation.",
    stage="Replacement",
    plan=plan_return,
    kinds=(ChangeKind("return_replica", "low", minutes=30),),
    access=everywhere(PATCH_POD),
    arguments=(REPLICA,),
    restores=True,
    cleans_up=True,
    stub=Stub(of="replica", has_undo=False),
)
