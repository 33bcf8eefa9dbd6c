"""set_flags: edit engine flags where they are written, in one template patch that rolls without losing capacity."""

from __future__ import annotations

from bot.domain.change.calls import Wording, patch_call
from bot.domain.change.circumstances import binding_note, refuse_if_owned
from bot.domain.change.context import Situation, require_readable
from bot.domain.change.edited_template import edited_template
from bot.domain.change.objects import name_of
from bot.domain.change.plan import Plan
from bot.domain.change.risks import FLOORS
from bot.domain.change.rollout import capacity_keeping_edits
from bot.domain.change.verbs.rolling import (
    expected_downtime,
    refuse_if_not_rollable,
    refuse_if_rolling,
    rolled_out,
    rollout_circumstances,
    strategy_difference,
    workload_of,
)
from bot.domain.change.workload import kind_of


def plan_set_flags(situation: Situation) -> Plan:
    world, context = situation.world, situation.context
    workload = workload_of(world)
    require_readable(world, "replica_sets", "pods")
    edited = edited_template(workload, situation.arguments)
    refuse_if_not_rollable(workload)
    refuse_if_rolling(workload)
    owner = refuse_if_owned(workload, edited.owners_part)
    strategy_edits = capacity_keeping_edits(workload)
    wording = Wording(
        title=f"Set {edited.summary} on {name_of(workload)}",
        undo_title=f"Put the flags of {name_of(workload)} back",
        differences=(*edited.differences, *map(strategy_difference, strategy_edits)),
    )
    fields = [*edited.fields, *strategy_edits]
    call = patch_call(workload, kind_of(workload), fields, wording, guards=edited.guards)
    return Plan(
        verb="set_flags",
        title=f"Set {edited.summary} on every replica of {name_of(workload)}",
        choices={"edits": edited.choices},
        steps=(call, rolled_out(workload, edited.templates, context)),
        circumstances=(
            owner,
            *rollout_circumstances(world, edited.templates),
            *edited.notes,
            *binding_note(world, edited.flag_edits),
        ),
        risk=FLOORS["set_flags"],
        expected=expected_downtime(world, workload),
        undo_text="the old flags are written back, which is another rolling restart",
    )
