"""A playbook's own `change: undo` clears the same items from the run's ledger as a requested one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import PlanResult
from bot.domain.cluster.json_patch import applied
from bot.domain.playbooks.bundle import Bundle
from tests.domain.changes.snapshots import CONTEXT, deployment, planned, snapshot
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

WRITTEN = load_text(
    TEXT.replace("change: scale", "change: set_flags")
    .replace("with: {by: 1}", "against: kv_thrash\n    with: {edits: [{flag: --max-num-seqs, value: 6}]}")
    .replace("done: watch\n", "done: back\n")
    .replace(
        "  watch:\n    watch:",
        "  back:\n    change: undo\n    with: {of: last}\n    why: It did not help.\n    done: calm\n"
        "    failed: left\n  watch:\n    watch:",
    )
    .replace("refused: choose\n", "refused: watch\n"),
    file="small.yaml",
)
CAP = planned("set_flags", {"edits": [{"flag": "--max-num-seqs", "value": 6}]}, snapshot())


def capped() -> Story:
    story = Story(Bundle.of(WRITTEN)).opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="planned", plan=CAP)).posted()
    for user in ("ana", "ben"):
        story.presses("approve", user=user)
    for _ in CAP.steps:
        story.settles()
    return story


def test_what_it_has_taken_back_is_held_no_longer() -> None:
    story = capped()
    assert (story.run.state, [entry.verb for entry in story.run.held]) == ("back", ["set_flags"])
    call = CAP.calls[0]
    seen = snapshot(workload=applied(call.body, deployment()))
    back = planned("undo", {"of": "last"}, seen, replace(CONTEXT, ledger=story.run.ledger))
    story.planned(PlanResult(outcome="planned", plan=back)).posted()
    for user in ("ana", "ben"):
        if story.run.open_request is not None:
            story.presses("approve", user=user)
    for _ in back.steps:
        story.settles()
    assert story.run.held == ()
    assert (story.run.is_open, story.run.state) == (False, "calm")
