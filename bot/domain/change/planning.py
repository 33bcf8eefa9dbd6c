"""Planning: a verb, its arguments and a snapshot of the cluster give the exact calls, or the reason why there are none.

Pure, so that planning again right before applying gives the same calls unless something that matters has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bot.domain.change.context import NoPlanError, PlanContext, Situation, impossible
from bot.domain.change.plan import Plan, PlanResult
from bot.domain.change.verbs.canary import plan_canary, plan_remove_canary
from bot.domain.change.verbs.replicas import plan_isolate, plan_replace, plan_return
from bot.domain.change.verbs.rollback import plan_rollback
from bot.domain.change.verbs.scale import plan_scale
from bot.domain.change.verbs.set_flags import plan_set_flags
from bot.domain.change.verbs.undo import plan_undo
from bot.domain.change.world import World
from bot.domain.redaction import redacted

VERBS: dict[str, tuple[Callable[[Situation], Plan], frozenset[str]]] = {
    "scale": (plan_scale, frozenset({"by", "to"})),
    "canary": (plan_canary, frozenset({"edits"})),
    "remove_canary": (plan_remove_canary, frozenset()),
    "set_flags": (plan_set_flags, frozenset({"edits"})),
    "isolate_replica": (plan_isolate, frozenset({"replica"})),
    "replace_replica": (plan_replace, frozenset({"replica"})),
    "return_replica": (plan_return, frozenset({"replica"})),
    "rollback": (plan_rollback, frozenset({"revision"})),
    "undo": (plan_undo, frozenset({"of"})),
}
"""Each verb with the arguments that it takes."""


def plan_change(verb: str, arguments: Mapping[str, Any], world: World, context: PlanContext) -> PlanResult:
    try:
        return PlanResult(outcome="planned", plan=_planned(verb, arguments, world, context))
    except NoPlanError as declined:
        return PlanResult(outcome=declined.outcome, reason=redacted(declined.reason), hint=redacted(declined.hint))


def _planned(verb: str, arguments: Mapping[str, Any], world: World, context: PlanContext) -> Plan:
    if verb not in VERBS:
        raise impossible(f"unknown verb {verb!r}", f"known verbs: {', '.join(VERBS)}")
    plan_verb, known = VERBS[verb]
    strangers = sorted(arguments.keys() - known)
    if strangers:
        raise impossible(
            f"{verb} does not take {', '.join(strangers)}", f"it takes {', '.join(sorted(known)) or 'nothing'}"
        )
    return plan_verb(Situation(world, context, arguments))
