"""promote: write the canary's edits to the workload, as set_flags does."""

from __future__ import annotations

import json
from dataclasses import replace

from bot.domain.changes.context import Situation, require_readable
from bot.domain.changes.edited_template import edited_template
from bot.domain.changes.plan import Circumstance, Plan
from bot.domain.changes.steps.canary_steps import EDITS_ANNOTATION, own_canary
from bot.domain.changes.template_differences import template_differences
from bot.domain.changes.verb import FLOORS_OF_AUTOSCALERS, PATCH, PATCH_CONFIG_MAP, PATCH_POD, ChangeKind, Verb
from bot.domain.changes.verbs.set_flags import plan_set_flags
from bot.domain.cluster.objects import annotations_of, is_ready, name_of, seconds_of
from bot.domain.cluster.objects import condition as condition_of
from bot.domain.cluster.owner import AUTOSCALERS
from bot.domain.cluster.rotation import is_in_rotation, pods_of_canary
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.cluster.workload import template_of
from bot.domain.kernel.errors import impossible


def plan_promote(situation: Situation) -> Plan:
    snapshot = situation.snapshot
    require_readable(snapshot, "canary", "pods", "endpoint_slices")
    canary = own_canary(snapshot, situation.context)
    edits = _edits(canary)
    pod = next((pod for pod in pods_of_canary(snapshot) if is_ready(pod)), None)
    if pod is None:
        raise impossible(f"the canary {name_of(canary)} is not Ready: it shows nothing", "wait for it, or remove it")
    plan = plan_set_flags(replace(situation, arguments={"edits": edits}))
    workload = name_of(snapshot.workload or {})
    return plan.model_copy(
        update={
            "verb": VERB.name,
            "title": f"Roll out to every replica of {workload}: {_summary(plan)}",
            "circumstances": (*plan.circumstances, _proof(snapshot, pod, _unproven(snapshot, canary, edits))),
            "risk": VERB.risk,
        }
    )


def _edits(canary: Obj) -> object:
    try:
        return json.loads(annotations_of(canary).get(EDITS_ANNOTATION, ""))
    except ValueError:
        raise impossible(f"{name_of(canary)} does not say which edits it was started with") from None


def _summary(plan: Plan) -> str:
    edit = next(call for call in plan.calls if call.target.kind not in AUTOSCALERS)
    return "; ".join(line.text for line in edit.differences)


def _unproven(snapshot: ClusterSnapshot, canary: Obj, edits: object) -> str:
    """Returns what a canary started now would have and this one has not: the workload or the canary was edited since.

    Labels and annotations are left out: they differ by design, and after a restart.
    """
    workload = snapshot.workload or {}
    rolled = edited_template(workload, {"edits": edits}, snapshot.config_maps, only_template=True).template
    found = template_differences({"spec": template_of(canary)["spec"]}, {"spec": rolled["spec"]})
    return "; ".join(each.text for each in found)


def _proof(snapshot: ClusterSnapshot, pod: Obj, unproven: str) -> Circumstance:
    """How long the canary has served; one that answered no requests proves only that it starts."""
    since = seconds_of(condition_of(pod, "Ready").get("lastTransitionTime"))
    span = "for an unknown time" if since is None else f"for {max(0.0, snapshot.at - since) / 60:.0f} min"
    serves = is_in_rotation(pod, snapshot)
    text = f"the canary has been Ready {span}{' and serves' if serves else ', but has answered nobody'}"
    if unproven:
        text += f"; it does not show what would be rolled out, which differs from it: {unproven}"
        return Circumstance(name="canary", grade="warning", text=text)
    return Circumstance(name="canary", grade="fine" if serves else "note", text=text)


VERB = Verb(
    name="promote",
    help="Write the canary's edits to the workload, and roll them out.",
    stage="Rollout",
    plan=plan_promote,
    kinds=(ChangeKind("promote", "high", minutes=15),),  # like set_flags, after a canary has proven it
    access={"Deployment": (PATCH, PATCH_CONFIG_MAP, PATCH_POD, *FLOORS_OF_AUTOSCALERS)},
    edits_engines=True,
    follows="canary",
)
