"""probe_request: one long generation on a replica that serves no users, to measure how many blocks it takes.

It changes no object. It still needs a grant and is sent once: in rotation it would compete with users, and afterwards
there is no evidence that it was sent.
"""

from __future__ import annotations

from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.generation import PARTS
from bot.domain.changes.plan import Call, Circumstance, Difference, Plan
from bot.domain.changes.verb import REPLICA, WITHIN_MINUTES, Argument, ChangeKind, Verb, everywhere
from bot.domain.cluster.objects import (
    ROTATION_ANNOTATION,
    annotations_of,
    dig,
    is_going_away,
    is_ready,
    name_of,
    ref_of,
    uid_of,
)
from bot.domain.cluster.rotation import is_in_rotation, pod_named, pods_of_canary
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import impossible

CANARY = "canary"
DEFAULT_MINUTES = 15.0
MAX_MINUTES = 60.0
MIN_TOKENS, MAX_TOKENS = 16, 1_000_000


def plan_probe_request(situation: Situation) -> Plan:
    snapshot = situation.snapshot
    require_readable(snapshot, "pods", "endpoint_slices")
    pod = replica_asked_for(situation)
    if is_in_rotation(pod, snapshot):
        raise impossible(
            f"{name_of(pod)} is in rotation: a probe would compete with users", "take it out of rotation first"
        )
    if ROTATION_ANNOTATION not in annotations_of(pod):
        # A gateway that picks pods itself may still reach a pod that no Service lists.
        raise impossible(f"{name_of(pod)} was not taken out of rotation by the bot", "take it out of rotation first")
    if not is_ready(pod) or not dig(pod, "status", "podIP"):
        raise impossible(f"{name_of(pod)} is not Ready", "wait for it")
    company = _other_requests(snapshot, pod)
    tokens = _tokens(situation)
    seconds = within_seconds(situation, default_minutes=DEFAULT_MINUTES, most_minutes=MAX_MINUTES)
    request = f"one request of {tokens} tokens to {name_of(pod)}, at most {seconds / 60:.0f} minutes"
    call = Call(
        method="generate",
        target=ref_of(pod, "Pod"),
        body={"max_tokens": tokens, "within_seconds": seconds},
        differences=(Difference(path="", after=tokens, text=request),),
        title=f"Generate {tokens} tokens on {name_of(pod)}",
        no_undo="it changes nothing: the request has ended",
        stamped=False,
    )
    return Plan(
        verb=VERB.name,
        disrupts="nothing",
        title=f"Send {request}, and watch its free blocks",
        choices={"replica": name_of(pod), "uid": uid_of(pod)} | canary_asked_for(situation),
        steps=(call,),
        circumstances=(company,),
        risk=VERB.risk,
        expected="none: the replica serves nobody",
        undo_text="none is needed: the request ends, and a halt ends it sooner",
    )


def replica_asked_for(situation: Situation) -> Obj:
    """Returns the pod that `replica` names; `canary` is the incident's own."""
    snapshot, name = situation.snapshot, str(situation.arguments.get("replica") or "")
    if not name:
        raise impossible("no replica given", "write: with: {replica: canary} or {replica: '${picked.replica}'}")
    require_readable(snapshot, "pods")
    present = [pod for pod in pods_of_canary(snapshot) if not is_going_away(pod)]
    pod = next(iter(present), None) if name == CANARY else pod_named(snapshot, name)
    if pod is None:
        raise impossible("there is no canary" if name == CANARY else f"replica {name} does not exist any more")
    if is_going_away(pod):
        raise impossible(f"replica {name_of(pod)} is ending already")
    return pod


def canary_asked_for(situation: Situation) -> dict[str, str]:
    """Returns the choice of a plan that is only about the incident's own canary: its approval may cover this plan."""
    canary = situation.snapshot.canary
    is_asked = situation.arguments.get("replica") == CANARY
    return {"canary": name_of(canary)} if is_asked and canary is not None else {}


def _other_requests(snapshot: ClusterSnapshot, pod: Obj) -> Circumstance:
    """Raise if there are other requests: their blocks would be counted as the probe's."""
    load = snapshot.load.get(name_of(pod))
    known = [] if load is None else [each for each in (load.running, load.waiting) if each is not None]
    if busy := sum(known):
        raise impossible(f"{busy:.0f} requests are still on {name_of(pod)}", "let it run empty first")
    if len(known) == 2:
        return Circumstance(name="company", grade="fine", text=f"no other request is on {name_of(pod)}")
    text = f"how many requests run on {name_of(pod)} is not known: nothing is sent unless it is seen empty"
    return Circumstance(name="company", grade="warning", text=text)


def _tokens(situation: Situation) -> int:
    asked = situation.arguments.get("max_tokens")
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not MIN_TOKENS <= asked <= MAX_TOKENS:
        raise impossible(f"max_tokens is a number from {MIN_TOKENS} to {MAX_TOKENS}, not {asked!r}")
    return int(asked)


def within_seconds(situation: Situation, *, default_minutes: float, most_minutes: float) -> float:
    asked = situation.arguments.get("within_minutes", default_minutes)
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not 1 <= asked <= most_minutes:
        raise impossible(f"within_minutes is a number from 1 to {most_minutes:.0f}, not {asked!r}")
    return float(asked) * 60


VERB = Verb(
    name="probe_request",
    help="One long generation on a replica out of rotation: how many blocks it really takes.",
    stage="Test",
    plan=plan_probe_request,
    kinds=(ChangeKind("probe_request", "low", minutes=30),),  # no user sees it
    access=everywhere(),
    arguments=(
        REPLICA,
        Argument("max_tokens", "how many tokens to generate", kind="a whole number", least=1),
        WITHIN_MINUTES,
    ),
    lasts=False,
    results=PARTS,
)
