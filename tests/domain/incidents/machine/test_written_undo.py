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


GROWN = planned("scale", {"by": 1}, snapshot())


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
    assert (story.run.visit.state, [entry.verb for entry in story.run.held]) == ("back", ["set_flags"])
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
    assert (story.run.is_open, story.run.visit.state) == (False, "calm")


def asks(of: str = "last") -> Bundle:
    """A playbook with a choice that takes something back."""
    text = TEXT.replace(
        "      stop: {label: Stop, to: calm}",
        "      back: {label: Take the last change back, to: back}\n      stop: {label: Stop, to: calm}",
    ).replace(
        "  watch:\n    watch:",
        f"  back:\n    change: undo\n    with: {{of: {of}}}\n    why: It did not help.\n    done: calm\n"
        "    failed: left\n  watch:\n    watch:",
    )
    return Bundle.of(load_text(text, file="small.yaml"))


def note_of_the_choice(bundle: Bundle, later: tuple[str, ...]) -> str | None:
    """The note beside it, once a replica was added and these calls without an undo came after that."""
    story = Story(bundle).opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="planned", plan=GROWN)).posted().presses("approve").presses("approve", user="ben")
    for _ in GROWN.steps:
        story.settles()
    entry = story.run.ledger[0].model_copy(update={"title": "Scale llm from 4 to 5"})
    done = entry.model_copy(update={"verb": "replace_replica", "undo": (), "no_undo": "none"})
    more = (done.model_copy(update={"title": title, "call_id": f"INC-1/R9/{n}"}) for n, title in enumerate(later))
    story.run = story.run.with_(ledger=(entry, *more))
    asked = story.watched("not_held").run.open_question
    assert asked is not None
    return asked.notes.get("back")


@pytest.mark.parametrize(
    ("later", "note"),
    [
        ((), ""),
        (
            ("Evict llm-2",),
            " An earlier change goes back (Scale llm from 4 to 5): what was done since has no undo (Evict llm-2).",
        ),
        (
            ("Evict llm-2", "Evict llm-3", "Evict llm-4", "Evict llm-5"),
            " An earlier change goes back (Scale llm from 4 to 5): what was done since has no undo "
            "(Evict llm-2, Evict llm-3 and 2 more).",
        ),
    ],
    ids=["it is the last one", "a replacement came after it", "many came after it"],
)
def test_a_button_that_takes_back_an_earlier_change_says_so(later: tuple[str, ...], note: str) -> None:
    assert note_of_the_choice(asks(), later) == f"Proposes a change: back.{note}"


@pytest.mark.parametrize("of", ["autoscaler", "all"])
def test_a_button_that_takes_something_else_back_says_nothing_of_the_last_change(of: str) -> None:
    assert note_of_the_choice(asks(of), ("Evict llm-2",)) == "Proposes a change: back."
