"""Planning: a verb, its arguments and a cluster snapshot yield the exact calls, or the reason why there are none.

Pure: planning again right before applying yields the same calls unless something relevant has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.context import PlanContext, Situation
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import Circumstance, Plan, PlanResult
from bot.domain.changes.startup import start_notes, with_node_time, with_own_start_time
from bot.domain.cluster.rotation import rotation_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import NoPlanError, impossible
from bot.domain.kernel.redaction import redacted


def plan_change(verb: str, arguments: Mapping[str, Any], snapshot: ClusterSnapshot, context: PlanContext) -> PlanResult:
    try:
        return PlanResult(outcome="planned", plan=_planned(verb, arguments, snapshot, context))
    except NoPlanError as declined:
        return PlanResult(
            outcome=declined.outcome,
            reason=redacted(declined.reason),
            hint=redacted(declined.hint),
            handed_out=tuple(dict(each) for each in declined.handed_out),
            owners_edit=None if declined.owners_edit is None else OwnersEdit.model_validate(declined.owners_edit),
        )


def _planned(verb: str, arguments: Mapping[str, Any], snapshot: ClusterSnapshot, context: PlanContext) -> Plan:
    if verb not in VERBS:
        raise impossible(f"unknown verb {verb!r}", f"known verbs: {', '.join(VERBS)}")
    declared = VERBS[verb]
    strangers = sorted(arguments.keys() - declared.takes)
    if strangers:
        raise impossible(
            f"{verb} does not take {', '.join(strangers)}", f"it takes {', '.join(sorted(declared.takes)) or 'nothing'}"
        )
    context = with_node_time(with_own_start_time(context, snapshot), snapshot)
    plan = declared.plan(Situation(snapshot, context, arguments))
    plan = plan.model_copy(update={"circumstances": (*plan.circumstances, *start_notes(plan, snapshot))})
    rotation = rotation_of(snapshot)
    if rotation is None:
        return plan
    if rotation.unread:
        return plan.model_copy(update={"circumstances": (*plan.circumstances, *_unread(plan, rotation.unread))})
    return plan.model_copy(update={"serving": len(rotation.in_rotation)})


def _unread(plan: Plan, why: str) -> tuple[Circumstance, ...]:
    """What it means for a plan that ends replicas that the router's own list of replicas cannot be read."""
    if plan.disrupts == "nothing":
        return ()
    text = (
        f"which replicas get requests cannot be read: {why}. None can be taken out first, so one that ends has only its"
        " own drain; that a new one serves is known from its readiness and its own counters"
    )
    return (Circumstance(name="rotation", grade="note", text=text),)
