"""Plans for rehearsals, where there is no cluster to plan against: one call for each verb, with what it leaves behind.

They are never sent: the writer needs an API server's object, and these name none that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.changes.plan import Call, Plan
from bot.domain.changes.risks import FLOORS
from bot.domain.cluster.objects import ObjectRef
from bot.domain.incidents.run import Run

ONE_WAY = frozenset({"restart", "replace_replica", "remove_canary", "return_replica", "uncordon_node", "undo"})
"""Verbs that leave nothing to take back."""


def stand_in_plan(verb: str, arguments: Mapping[str, Any], run: Run) -> Plan:
    """One call of this verb, so that the ledger and the built-in questions see what they would see."""
    target = _object(verb, arguments, run)
    title = f"{verb}({', '.join(f'{name}: {value}' for name, value in arguments.items())})"
    call = Call(
        method=_METHODS.get(verb, "patch"),
        target=target,
        body=dict(arguments),
        title=title,
        restores=verb in ONE_WAY - {"restart", "replace_replica"},
        ends=(target.uid,) if verb == "replace_replica" else (),
    )
    if verb not in ONE_WAY:
        back = Call(method="patch", target=target, title=f"take back {title}", restores=True)
        call = call.model_copy(update={"undo": (back,)})
    return Plan(verb=verb, title=title, choices=dict(arguments), steps=(call,), risk=FLOORS.get(verb, "medium"))


_METHODS: Mapping[str, Any] = {
    "canary": "create",
    "remove_canary": "delete",
    "replace_replica": "evict",
    "drain_node": "evict",
}


def _object(verb: str, arguments: Mapping[str, Any], run: Run) -> ObjectRef:
    if verb in ("canary", "rotate_canary", "remove_canary"):
        return _named("Deployment", f"{run.target.name}-spare", run)
    if verb.endswith("_replica"):
        return _named("Pod", str(arguments.get("replica", "?")), run)
    if verb.endswith("_node"):
        return _named("Node", str(arguments.get("node") or arguments.get("replica")), run)
    if verb == "undo" and run.held:
        return run.held[-1].target
    return _named(run.target.kind, run.target.name, run)


def _named(kind: str, name: str, run: Run) -> ObjectRef:
    return ObjectRef(kind=kind, namespace=run.target.namespace, name=name, uid=f"rehearsed-{name}")
