"""No residual change remains at an end without a question: canaries, and rollouts that stopped half-way."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import Call, Plan, PlanResult
from bot.domain.incidents.event import AlertChanged
from bot.domain.incidents.machine.residual import residual_changes
from bot.domain.incidents.run import PARKED_REMINDER, Question
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.changes.snapshots import planned
from tests.domain.changes.test_held_rollout import EDIT, emptied_by_label
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

HELD: Plan = planned("set_flags", EDIT, emptied_by_label(2))
ENDS_FIRST = next(number for number, step in enumerate(HELD.steps) if step.title.startswith("Let llm-1 end"))


def under_way(plan: Plan = HELD) -> Story:
    return (
        Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
        .presses("approve").presses("approve", user="ben")
    )  # fmt: skip


def stopped_after(steps: int) -> Story:
    """That many steps went well, the next one failed, and a person resolves the incident."""
    story = under_way()
    for _ in range(steps):
        story.settles()
    return story.settles("failed", detail="it did not start").says("resolve")


def question(story: Story) -> Question:
    asked = story.run.open_question
    assert asked is not None
    return asked


@pytest.mark.parametrize("steps", [1, ENDS_FIRST + 1], ids=["held before the first ends", "held between two"])
def test_a_rollout_that_stands_still_is_asked_about_before_the_end(steps: int) -> None:
    story = stopped_after(steps)
    assert story.run.is_open
    assert "a rollout of Deployment serving/llm half-way" in question(story).text
    assert "Still firing: VllmKVCacheThrash." in question(story).text
    assert list(question(story).choices) == ["undo", "keep", "stay"]


@pytest.mark.parametrize(
    ("verbs", "first"),
    [(("cordon_node",), "keep"), (("cordon_node", "drain_node"), "keep"), (("cordon_node", "canary"), "undo")],
    ids=["a node", "a node that was drained", "a canary too"],
)
def test_a_node_out_of_use_is_kept_by_the_first_button(verbs: tuple[str, ...], first: str) -> None:
    story = under_way(builders.plan(verb=verbs[0], title="A change", steps=(builders.call(),))).settles()
    (entry,) = story.run.ledger
    more = (entry.model_copy(update={"call_id": f"INC-1/R9/{n}", "verb": verb}) for n, verb in enumerate(verbs[1:]))
    story.run = story.run.with_(ledger=(entry, *more))
    assert next(iter(question(story.says("resolve")).choices)) == first


def test_the_button_that_closes_asks_about_it_too() -> None:
    story = under_way().settles().settles("failed", detail="it did not start").chooses("close")
    assert story.run.is_open
    assert "Ana wants to close it" in question(story).text
    assert list(question(story).choices) == ["undo", "keep", "stay"]


def test_taking_it_back_proposes_the_undo_of_every_call_of_that_rollout() -> None:
    story = stopped_after(ENDS_FIRST + 1)
    held = tuple(entry.call_id for entry in story.run.held)
    assert len(held) > 1
    story.chooses("undo")
    assert story.run.change is not None
    assert story.run.change.undo_of == held


def test_keeping_it_closes_the_incident_and_names_who_owns_it() -> None:
    story = stopped_after(1).chooses("keep", user="ben")
    assert not story.run.is_open
    assert story.run.lead == "ben"


def test_a_rollout_that_was_let_go_is_no_leftover() -> None:
    story = under_way()
    for _ in HELD.steps:
        story.settles()
    assert story.says("resolve").run.ending == "resolved_by_hand"
    assert story.run.held


def test_the_end_names_what_is_in_force_and_has_to_be_committed() -> None:
    story = under_way(HELD.model_copy(update={"commit": "# Deployment serving/llm: helm upgrade"}))
    for _ in HELD.steps:
        story.settles()
    story.says("resolve")
    (closed,) = (post for post in story.run.posts if post.kind == "closed")
    assert closed.data["to_commit"] == [f"R2 · {HELD.title}"]


def test_what_was_not_applied_need_not_be_committed() -> None:
    story = under_way(HELD.model_copy(update={"commit": "# Deployment serving/llm: helm upgrade"}))
    story.settles("failed", detail="it did not start").says("resolve")
    (closed,) = (post for post in story.run.posts if post.kind == "closed")
    assert closed.data["to_commit"] == []


def test_before_its_first_call_nothing_is_left() -> None:
    assert stopped_after(0).run.ending == "resolved_by_hand"


def test_an_undo_that_stands_still_has_no_undo_to_offer() -> None:
    story = stopped_after(1)
    undo = tuple(s.model_copy(update={"undo": (), "restores": True}) if isinstance(s, Call) else s for s in HELD.steps)
    taken_back = HELD.model_copy(update={"verb": "undo", "steps": undo, "risk": "medium"})
    story.chooses("undo").planned(PlanResult(outcome="planned", plan=taken_back)).posted().presses("approve").settles()
    assert all(entry.undone_by for entry in story.run.ledger[:-1])
    story.settles("failed", detail="it did not start").says("resolve")
    assert "half-way" in question(story).text
    assert list(question(story).choices) == ["keep", "stay"]


def test_resolving_by_hand_takes_back_what_is_left_and_not_the_last_change() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = under_way(canary).settles()
    ledger = story.run.ledger
    later = ledger[0].model_copy(update={"call_id": "INC-1/R9/0", "verb": "set_flags", "title": "The fix"})
    story.run = story.run.with_(ledger=(*ledger, later))
    story.says("resolve").chooses("undo")
    assert story.run.change is not None
    assert story.run.change.undo_of == (ledger[0].call_id,)


def test_what_another_change_holds_is_no_part_of_a_rollout_that_stands_still() -> None:
    story = under_way().settles()
    still = story.run.ledger[0]
    earlier = still.model_copy(update={"call_id": "INC-1/R0/0", "holds": None, "title": "scaled before"})
    story.run = story.run.with_(ledger=(earlier, still))
    assert [entry.call_id for entry in residual_changes(story.run)] == [still.call_id]


@pytest.mark.parametrize(("verb", "ending"), [("cordon_node", "backed_out"), ("canary", "fixed")])
def test_a_node_that_is_given_back_at_the_end_is_not_called_fixed(verb: str, ending: str) -> None:
    plan = builders.plan(verb=verb, title="Cordon node n1", steps=(builders.call(title="Cordon node n1"),))
    story = under_way(plan).settles().watched("held").chooses("undo")
    undo = plan.model_copy(update={"verb": "undo", "steps": (builders.call(undo=(), restores=True),)})
    story.planned(PlanResult(outcome="planned", plan=undo)).posted().presses("approve").settles()
    assert story.run.ending == ending
    (closed,) = (post for post in story.run.posts if post.kind == "closed")
    assert ("What was wrong there is not repaired." in closed.data["text"]) == (ending == "backed_out")


def test_what_was_given_back_and_taken_again_by_an_undo_is_asked_about() -> None:
    cordon = builders.plan(verb="cordon_node", title="Cordon node n1", steps=(builders.call(title="Cordon node n1"),))
    story = under_way(cordon).settles()
    (cordoned,) = story.run.ledger
    uncordoned = cordoned.model_copy(update={"call_id": "INC-1/R9/0", "verb": "uncordon_node", "title": "Uncordon n1"})
    given_back = cordoned.model_copy(update={"undone_by": uncordoned.call_id})
    story.run = story.run.with_(ledger=(given_back, uncordoned))
    assert not residual_changes(story.run)
    again = cordon.model_copy(
        update={"verb": "undo", "steps": (builders.call(undo=(), restores=True, undoes=uncordoned.call_id),)}
    )
    story.says("undo").planned(PlanResult(outcome="planned", plan=again)).posted().presses("approve").settles()
    assert story.run.held == (cordoned,)
    assert "Still in place: Cordon node n1." in question(story.says("resolve")).text


def canary_taken_back() -> Story:
    """A person closed the incident by hand, and its canary was taken back first."""
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    back = builders.plan(verb="undo", title="Remove the canary", steps=(builders.call().undo[0],))
    direct = TEXT.replace("{when: usage > settings.ceiling, to: choose}", "{when: usage > settings.ceiling, to: grow}")
    story = Story(Bundle.of(load_text(direct, file="small.yaml"))).opened().reads(0.95)
    story.planned(PlanResult(outcome="planned", plan=canary)).posted().presses("approve").settles()
    story.says("resolve").chooses("undo")
    return story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve", reason="x").settles()


def test_an_undo_in_a_reopened_incident_does_not_close_it() -> None:
    """That it was to be closed belongs to its life before."""
    story = canary_taken_back()
    assert story.run.ending == "resolved_by_hand"
    story.happens(AlertChanged(event_id=story.id(), alert=builders.alert()))
    story.reads(0.95).planned().posted().presses("approve", reason="again").settles().says("undo")
    back = builders.plan(verb="undo", title="Scale back", steps=(builders.call().undo[0],))
    story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve", reason="x").settles()
    assert story.run.is_open
    assert story.run.open_question is not None


def test_a_parked_incident_that_is_closed_while_a_canary_is_left_still_reminds() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = under_way(canary).settles().watched("unknown", detail="no page answered")
    story.due(f"question:{story.run.question}:unanswered").says("resolve")
    assert story.run.open_question is not None
    assert PARKED_REMINDER in story.run.deadlines
