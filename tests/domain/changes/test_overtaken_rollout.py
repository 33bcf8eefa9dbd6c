"""Somebody deploys while the bot holds a rollout: what holds it is still ours to take back, and nothing else."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.changes.context import PlanContext
from bot.domain.changes.interference import interference
from bot.domain.changes.plan import Wait
from bot.domain.cluster.json_patch import applied
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from tests.domain.changes.ledgers import entry
from tests.domain.changes.snapshots import (
    ARGS,
    CONTEXT,
    declined,
    deployment,
    grade,
    node,
    planned,
    snapshot,
    template,
    weighed,
)

pytestmark = pytest.mark.fast
EDIT = {"edits": [{"flag": "--max-num-seqs", "value": 6}]}
OWN = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
LAST = {"of": "last"}
FULL = tuple(node(number, gpus=2 if number == 1 else 1) for number in (1, 2, 3))
Fleet = tuple[Obj, dict[str, Any]]
HELD: Fleet = (template(lifecycle={}), {})
IN_PLACE: Fleet = (template(), {"nodes": FULL})


def half_way(how: Fleet, calls: int) -> tuple[ClusterSnapshot, PlanContext]:
    """A rollout after its first calls on the workload, and its ledger."""
    made, parts = how
    seen = snapshot(workload=deployment(made, strategy=OWN), **parts)
    first = [call for call in planned("set_flags", EDIT, seen).calls if call.target.kind == "Deployment"][:calls]
    workload = seen.workload or {}
    for call in first:
        workload = applied(call.body, workload)
    ledger = tuple(entry(call, number, holds=call.holds) for number, call in enumerate(first))
    return replace(seen, workload=workload), replace(CONTEXT, ledger=ledger)


def deployed(seen: ClusterSnapshot, **spec: Any) -> ClusterSnapshot:
    """Somebody else writes other arguments, and with them these parts of the spec."""
    workload = copy.deepcopy(seen.workload or {})
    workload["spec"] |= spec
    workload["spec"]["template"]["spec"]["containers"][0]["args"] = [*ARGS, "--seed=3"]
    return replace(seen, workload=workload)


def without_template(workload: Obj | None) -> Obj:
    return {name: value for name, value in (workload or {})["spec"].items() if name != "template"}


@pytest.mark.parametrize(
    ("how", "calls"),
    [
        pytest.param(HELD, 1, id="held"),
        pytest.param(HELD, 3, id="held-after-two-replicas"),
        pytest.param(IN_PLACE, 1, id="in-place"),
    ],
)
def test_an_undo_lets_go_what_the_bot_held_and_keeps_what_was_deployed(how: Fleet, calls: int) -> None:
    seen, context = half_way(how, calls)
    seen = deployed(seen)
    plan = planned("undo", LAST, seen, context)
    (call,) = plan.calls
    left = applied(call.body, seen.workload or {})
    assert without_template(left) == without_template(deployment(strategy=OWN))
    assert left["spec"]["template"] == (seen.workload or {})["spec"]["template"]
    assert plan.title == "Let the rollout of llm that somebody else began go on"
    assert plan.choices["of"] == [each.call_id for each in reversed(context.ledger)]
    assert (call.restores, call.undo, call.undoes) == (True, (), context.ledger[0].call_id)
    last = plan.steps[-1]
    assert isinstance(last, Wait)
    assert last.condition == "rolled_out"


def test_the_undo_says_what_the_rollout_that_goes_on_does() -> None:
    seen, context = half_way(HELD, 1)
    plan = planned("undo", LAST, deployed(seen), context)
    assert grade(plan, "drain") == "warning"
    assert "cuts" in weighed(plan, "drain") or "unknown number of streams" in weighed(plan, "drain")
    assert plan.expected == (
        "the rollout that somebody else began goes on; at most 1 of the replicas may be missing meanwhile"
    )


def test_settings_that_were_deployed_too_are_kept() -> None:
    seen, context = half_way(HELD, 3)
    theirs = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 3}}
    seen = deployed(seen, strategy=theirs)
    (call,) = planned("undo", LAST, seen, context).calls
    left = applied(call.body, seen.workload or {})
    assert without_template(left) == without_template(deployment(strategy=OWN)) | {"strategy": theirs}


def test_where_nothing_is_held_any_more_both_sides_are_shown() -> None:
    seen, context = half_way(HELD, 1)
    seen = deployed(seen, **without_template(deployment(strategy=OWN)), minReadySeconds=5, progressDeadlineSeconds=700)
    assert "the object changed since" in declined("undo", LAST, seen, context).reason


@pytest.mark.parametrize("how", [HELD, IN_PLACE], ids=["held", "in-place"])
def test_a_hold_is_not_lost_with_what_somebody_else_deployed(how: Fleet) -> None:
    seen, context = half_way(how, 1)
    (found,) = interference(context.ledger, deployed(seen))
    assert found.still_holds
    assert found.text.endswith("; the bot still holds the rollout: take that back to let it go on")


def test_without_a_hold_the_change_is_lost() -> None:
    seen, context = half_way((template(), {}), 1)
    (found,) = interference(context.ledger, deployed(seen))
    assert not found.still_holds


@pytest.mark.parametrize("how", [HELD, IN_PLACE], ids=["held", "in-place"])
def test_these_rollouts_are_held(how: Fleet) -> None:
    assert half_way(how, 1)[1].ledger[0].holds
