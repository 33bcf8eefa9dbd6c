"""Plans for rehearsals, which have no cluster to plan against: one call per verb, with its residual changes.

They are never sent: the writer needs an object of an API server, and these name no existing object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Call, Plan
from bot.domain.changes.verb import Stub
from bot.domain.cluster.objects import ObjectRef
from bot.domain.incidents.run import Run

UNKNOWN = Stub()


def stub_plan(verb: str, arguments: Mapping[str, Any], run: Run) -> Plan:
    """Returns a plan with one call of this verb, so that the ledger and the built-in questions get their input."""
    declared = VERBS.get(verb)
    stub = declared.stub if declared else UNKNOWN
    target = _object(stub, arguments, run)
    title = f"{verb}({', '.join(f'{name}: {value}' for name, value in arguments.items())})"
    call = Call(
        method=stub.method,
        target=target,
        body=dict(arguments),
        title=title,
        restores=declared is not None and declared.restores,
        ends=(target.uid,) if stub.of == "replica" and stub.method == "evict" else (),
    )
    if stub.has_undo:
        back = Call(method="patch", target=target, title=f"take back {title}", restores=True)
        call = call.model_copy(update={"undo": (back,)})
    return Plan(
        verb=verb,
        title=title,
        choices=_choices(verb, arguments, run),
        steps=(call,),
        risk=declared.risk if declared else "medium",
    )


def _choices(verb: str, arguments: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """A rollout has the edits of the canary that it follows; a canary and what is asked of it have its name."""
    canaries = [one.plan.choices for one in run.requests.values() if one.plan.verb == "canary"]
    edits = {"edits": canaries[-1]["edits"]} if verb == "promote" and canaries and "edits" in canaries[-1] else {}
    name = _object(Stub(of="canary"), arguments, run).name
    own = {"name": name} if verb == "canary" else {"canary": name} if arguments.get("replica") == "canary" else {}
    return {**arguments, **edits, **own}


def _object(stub: Stub, arguments: Mapping[str, Any], run: Run) -> ObjectRef:
    match stub.of:
        case "canary":
            return _named("Deployment", f"{run.target.name}-canary", run)
        case "replica":
            return _named("Pod", str(arguments.get("replica", "?")), run)
        case "node":
            return _named("Node", str(arguments.get("node") or arguments.get("replica")), run)
        case "last_change" if run.held:
            return run.held[-1].target
        case _:
            return _named(run.target.kind, run.target.name, run)


def _named(kind: str, name: str, run: Run) -> ObjectRef:
    return ObjectRef(kind=kind, namespace=run.target.namespace, name=name, uid=f"rehearsed-{name}")
