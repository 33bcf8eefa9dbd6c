"""Planning: a verb, its arguments and a snapshot of the cluster give the exact calls, or the reason why there are none.

Pure, so that planning again right before applying gives the same calls unless something that matters has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bot.domain.changes.context import PlanContext, Situation
from bot.domain.changes.plan import Plan, PlanResult
from bot.domain.changes.startup import with_own_start_time
from bot.domain.changes.verbs.canary import plan_canary, plan_remove_canary, plan_rotate_canary
from bot.domain.changes.verbs.nodes import plan_cordon, plan_drain_node, plan_uncordon
from bot.domain.changes.verbs.probe_request import plan_probe_request
from bot.domain.changes.verbs.promote import plan_promote
from bot.domain.changes.verbs.replicas import plan_isolate, plan_replace, plan_return
from bot.domain.changes.verbs.restart import plan_restart
from bot.domain.changes.verbs.rollback import plan_rollback
from bot.domain.changes.verbs.run_job import plan_run_job
from bot.domain.changes.verbs.scale import plan_scale
from bot.domain.changes.verbs.set_flags import plan_set_flags
from bot.domain.changes.verbs.undo import plan_undo
from bot.domain.cluster.snapshot import World
from bot.domain.kernel.errors import NoPlanError, impossible
from bot.domain.kernel.redaction import redacted

VERBS: dict[str, tuple[Callable[[Situation], Plan], frozenset[str]]] = {
    "scale": (plan_scale, frozenset({"by", "to"})),
    "canary": (plan_canary, frozenset({"edits", "rotation"})),
    "rotate_canary": (plan_rotate_canary, frozenset({"rotation"})),
    "promote": (plan_promote, frozenset()),
    "remove_canary": (plan_remove_canary, frozenset()),
    "set_flags": (plan_set_flags, frozenset({"edits"})),
    "isolate_replica": (plan_isolate, frozenset({"replica"})),
    "replace_replica": (plan_replace, frozenset({"replica"})),
    "return_replica": (plan_return, frozenset({"replica"})),
    "rollback": (plan_rollback, frozenset({"revision"})),
    "restart": (plan_restart, frozenset()),
    "cordon_node": (plan_cordon, frozenset({"node", "replica"})),
    "uncordon_node": (plan_uncordon, frozenset({"node", "replica"})),
    "drain_node": (plan_drain_node, frozenset({"node", "replica", "others"})),
    "run_job": (plan_run_job, frozenset({"template", "replica", "env", "within_minutes"})),
    "probe_request": (plan_probe_request, frozenset({"replica", "max_tokens", "within_minutes"})),
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
    return plan_verb(Situation(world, with_own_start_time(context, world), arguments))
