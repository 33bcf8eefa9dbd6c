"""restart: roll out the same template again, replica by replica, as `kubectl rollout restart` does."""

from __future__ import annotations

import copy

from bot.domain.changes.calls import Wording
from bot.domain.changes.circumstances import ownership_of
from bot.domain.changes.context import PlanContext, Situation, require_readable
from bot.domain.changes.plan import Difference, Plan
from bot.domain.changes.steps.autoscaler_steps import scale_in_note, without_scale_in
from bot.domain.changes.steps.rolling import (
    expected_downtime,
    refuse_if_not_rollable,
    refuse_if_rolling,
    rollout_circumstances,
    strategy_difference,
    strategy_edits,
    workload_of,
)
from bot.domain.changes.steps.rollout_steps import TemplateChange, rollout_steps
from bot.domain.changes.verb import ChangeKind, Stub, Verb, rolled
from bot.domain.cluster.json_patch import edit_of
from bot.domain.cluster.objects import RESTART_ANNOTATION, name_of
from bot.domain.cluster.rollout import bare
from bot.domain.cluster.snapshot import Obj
from bot.domain.cluster.workload import KINDS, pod_templates


def plan_restart(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    workload = workload_of(snapshot)
    require_readable(snapshot, "replica_sets", "pods", "services", "endpoint_slices")
    refuse_if_not_rollable(workload)
    refuse_if_rolling(snapshot)
    # Marking the serving pods is enough: a group restarts as a whole.
    first, *others = pod_templates(workload)
    metadata, path = _marked(first.template.get("metadata") or {}, context), f"{first.path}/metadata"
    templates = [{**first.template, "metadata": metadata}, *(bare(other.template) for other in others)]
    marks = first.in_spec({"metadata": {"annotations": metadata["annotations"]}})
    owned = ownership_of(snapshot, workload, marks, lasts=True)
    edits = strategy_edits(snapshot, templates[0])
    line = Difference(path=path, text=f"every replica of {name_of(workload)} is restarted, with the flags it has")
    wording = Wording(
        title=f"Restart {name_of(workload)}, replica by replica",
        undo_title=f"Go back to the replicas of before the restart of {name_of(workload)}",
        differences=(line, *map(strategy_difference, edits)),
    )
    # The whole metadata in one edit: its old value is a precondition even where there are no annotations yet.
    change = TemplateChange([edit_of(workload, path, metadata), *edits], templates, wording)
    return Plan(
        verb=VERB.name,
        title=f"Restart every replica of {name_of(workload)}",
        steps=without_scale_in(snapshot, rollout_steps(snapshot, change, context)),
        circumstances=(owned.circumstance, *rollout_circumstances(snapshot, templates), *scale_in_note(snapshot)),
        risk=VERB.risk,
        expected=expected_downtime(snapshot, templates[0]),
        undo_text="nothing to put back once it is done; taken back half-way, it is another rolling restart",
    )


def _marked(metadata: Obj, context: PlanContext) -> Obj:
    """The mark is unique to each restart of an incident, and the same whenever this restart is planned again.

    One that was applied although its answer was lost is in no ledger, but on the template.
    """
    made = sum(entry.verb == VERB.name and entry.target.kind in KINDS for entry in context.ledger)
    incident, _, last = str((metadata.get("annotations") or {}).get(RESTART_ANNOTATION, "")).rpartition("/")
    before = int(last) if incident == context.incident_id and last.isdecimal() else 0
    number = 1 + max(made, before)
    marked = copy.deepcopy(metadata)
    marked["annotations"] = {
        **(metadata.get("annotations") or {}),
        RESTART_ANNOTATION: f"{context.incident_id}/{number}",
    }
    return marked


VERB = Verb(
    name="restart",
    help="Restart every replica, one after another.",
    stage="Restart",
    plan=plan_restart,
    kinds=(ChangeKind("restart", "high", "serving + lead", minutes=10),),
    access=rolled(*KINDS),
    stub=Stub(has_undo=False),
)
