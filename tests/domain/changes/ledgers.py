"""What earlier changes of an incident left behind."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from bot.domain.changes.context import PlanContext
from bot.domain.changes.plan import Call, LedgerEntry, Plan
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.domain.changes.snapshots import CONTEXT


def entry(call: Call, number: int = 0, **fields: Any) -> LedgerEntry:
    made = LedgerEntry(
        call_id=f"INC-42/R1/{number}",
        state="cap",
        verb="set_flags",
        title=call.title,
        target=call.target,
        differences=call.differences,
        undo=call.undo,
        no_undo=call.no_undo,
        applied_at=0.0,
    )
    return made.model_copy(update=fields)


def after(seen: ClusterSnapshot, plan: Plan) -> ClusterSnapshot:
    """The snapshot once every call of the plan on the workload has been carried out and rolled out."""
    workload = copy.deepcopy(seen.workload or {})
    for call in plan.calls:
        workload = applied(call.body, workload)
    return replace(seen, workload=workload)


def with_ledger(*entries: LedgerEntry) -> PlanContext:
    return replace(CONTEXT, ledger=entries)
