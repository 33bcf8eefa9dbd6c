"""rollback: restore an earlier revision's template, as `kubectl rollout undo` does; every difference is listed."""

from __future__ import annotations

from typing import Any

from bot.domain.changes.calls import Wording
from bot.domain.changes.circumstances import ownership_of
from bot.domain.changes.context import PlanContext, Situation, require_readable
from bot.domain.changes.deployer import deployer_circumstance, deployers_of
from bot.domain.changes.plan import DIFFERENCES, Circumstance, Difference, Plan
from bot.domain.changes.steps.autoscaler_steps import scale_in_note, without_scale_in
from bot.domain.changes.steps.rolling import (
    expected_downtime,
    only_for,
    refuse_if_not_rollable,
    rollout_circumstances,
    strategy_difference,
    strategy_edits,
)
from bot.domain.changes.steps.rollout_steps import TemplateChange, rollout_steps
from bot.domain.changes.template_differences import template_differences
from bot.domain.changes.verb import Argument, ChangeKind, Verb, rolled
from bot.domain.cluster.json_patch import edit_of, pointer
from bot.domain.cluster.objects import CONFIG_ANNOTATION, name_of
from bot.domain.cluster.rollout import (
    TEMPLATE,
    Revision,
    current_revision,
    revisions_of,
    same_template,
)
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.cluster.workload import template_of
from bot.domain.flags.flag_table import text_of
from bot.domain.kernel.errors import impossible, not_needed


def plan_rollback(situation: Situation) -> Plan:
    snapshot, context = situation.snapshot, situation.context
    workload = only_for(snapshot, ["Deployment", "StatefulSet"], "its earlier revisions are not kept as a whole")
    require_readable(snapshot, "replica_sets", "revisions", "pods", "services", "endpoint_slices")
    refuse_if_not_rollable(workload)
    earlier = _revision_wanted(snapshot, situation.arguments.get("revision"))
    revision, present, template = earlier.number, template_of(workload), earlier.template
    differences = template_differences(present, template)
    owned = ownership_of(snapshot, workload, {"template": template})
    deployers = deployers_of(snapshot)
    edits = strategy_edits(snapshot, template)
    wording = Wording(
        title=f"Roll {name_of(workload)} back to revision {revision}",
        undo_title=f"Undo the rollback of {name_of(workload)}",
        differences=(*differences, *map(strategy_difference, edits)),
    )
    change = TemplateChange([edit_of(workload, TEMPLATE, template), *edits], [template], wording)
    return Plan(
        verb=VERB.name,
        title=f"Roll {name_of(workload)} back to revision {revision}",
        choices={"revision": revision},
        steps=without_scale_in(snapshot, rollout_steps(snapshot, change, context)),
        circumstances=(
            owned.circumstance,
            deployer_circumstance(snapshot, deployers),
            *rollout_circumstances(snapshot, [template]),
            *scale_in_note(snapshot),
            _differences(differences),
            *_own_work(context, differences),
            *_config_maps_stay(differences),
        ),
        risk=VERB.risk,
        told=deployers,
        expected=expected_downtime(snapshot, template),
        undo_text="put the present template back, which is another rolling restart",
        commit=owned.commit,
    )


def _revision_wanted(snapshot: ClusterSnapshot, wanted: Any) -> Revision:
    """Returns the revision to go back to: the given one, else the newest that differs from the running one."""
    present, kept = template_of(snapshot.workload), revisions_of(snapshot)
    if wanted not in (None, "", 0):
        number = _revision(wanted)
        found = next((one for one in kept if one.number == number), None)
        if found is None:
            have = ", ".join(str(one.number) for one in kept) or "none"
            raise impossible(f"there is no revision {number} any more", f"kept revisions: {have}")
        if same_template(found.template, present):
            raise not_needed(f"revision {number} is what runs")
        return found
    current = current_revision(snapshot)
    for candidate in kept:
        is_older = current is None or candidate.number < current.number
        if is_older and not same_template(candidate.template, present):
            return candidate
    raise impossible("no earlier revision with another template is kept")


def _revision(wanted: Any) -> int:
    text = text_of(wanted) if isinstance(wanted, int | float | str) else str(wanted)
    if not text.isdigit():
        raise impossible(f"a revision is a whole number, not {wanted!r}")
    return int(text)


def _differences(differences: tuple[Difference, ...]) -> Circumstance:
    listed = "; ".join(d.text for d in differences)
    many = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
    return Circumstance(name=DIFFERENCES, grade="note", text=f"{many}: {listed}")


def _config_maps_stay(differences: tuple[Difference, ...]) -> list[Circumstance]:
    """A revision contains no ConfigMap: one that was edited in place keeps its text through a rollback."""
    if not any(d.path.endswith(pointer(CONFIG_ANNOTATION)) for d in differences):
        return []
    text = "the edited ConfigMap keeps its present text: only the change's undo puts that back"
    return [Circumstance(name="config_map", grade="warning", text=text)]


def _own_work(context: PlanContext, differences: tuple[Difference, ...]) -> list[Circumstance]:
    """Warns if a rollback reverts the bot's own fix."""
    changed = {d.text.split(" ", 1)[0] for d in differences if d.text.startswith("--")}
    taken_back = [
        f"{d.text} ({entry.call_id})"
        for entry in context.ledger
        if not entry.undone_by
        for d in entry.differences
        if d.text.split(" ", 1)[0] in changed
    ]
    if not taken_back:
        return []
    text = f"this takes back the bot's own change of this incident: {', '.join(taken_back)}"
    return [Circumstance(name="own_work", grade="warning", text=text)]


VERB = Verb(
    name="rollback",
    help="Write an earlier revision's template back, as `kubectl rollout undo` does.",
    stage="Rollback",
    plan=plan_rollback,
    kinds=(ChangeKind("rollback", "high", minutes=15),),  # known state; two people at 3 a.m. cost more than they save
    access={**rolled("Deployment"), **rolled("StatefulSet")},
    arguments=(
        Argument(
            "revision",
            "the revision to go back to; absent, the newest that differs",
            "optional",
            kind="a whole number",
            least=1,
        ),
    ),
)
