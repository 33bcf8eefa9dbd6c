"""The effect of a change on the run: the plan that counts, the ledger of its calls, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import Call, LedgerEntry, Plan, PlanResult, Wait
from bot.domain.cluster.objects import ObjectRef
from bot.domain.incidents.event import Planned, Progressed, StepSettled
from bot.domain.incidents.machine import changing
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Question
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests import builders
from tests.domain.incidents.machine.steps import BUNDLE, TEXT, TWO_STEPS, Story
from tests.domain.incidents.machine.test_interfered import halfway
from tests.domain.incidents.machine.test_residual import stopped_after
from tests.domain.incidents.machine.test_stopped import ROLLOUT, stopped

pytestmark = pytest.mark.fast


def pending(story: Story) -> Question:
    asked = story.run.open_question
    assert asked is not None
    return asked


def result(**plan: Any) -> PlanResult:
    return PlanResult(outcome="planned", plan=builders.plan(**plan))


# --- whose plan counts ------------------------------------------------------------------------------------------------


def test_a_plan_is_taken_once() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned().planned(result(choices={"to": 9}))
    assert [request.plan.choices for request in story.run.requests.values()] == [{}]
    assert story.texts("ignored") == ["a plan for a state that was left"]


def test_a_plan_of_an_earlier_visit_is_not_taken() -> None:
    story = Story().opened().reads(0.95).chooses("grow")
    story.happens(Planned(event_id="old", effect_id="v1/plan/0", result=result()))
    assert (story.run.requests, story.texts("ignored")) == ({}, ["a plan for a state that was left"])


def test_a_plan_that_comes_while_people_are_asked_is_not_taken() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="failed", reason="no answer"))
    story.planned()
    assert story.run.requests == {}


def test_what_a_plan_was_made_from_becomes_part_of_the_run() -> None:
    story = Story().opened().reads(0.95).chooses("grow")
    read = {"usage": Reading(name="usage", value=0.97, at=story.at)}
    story.happens(Planned(event_id="p", effect_id="v3/plan/0", result=result(), readings=read))
    assert story.run.latest["usage"].value == 0.97


def test_only_states_before_this_one_are_offered_for_what_a_plan_lacks() -> None:
    missing = ("results.look.usage", "results.grow.usage", "settings.ceiling")
    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="unknown", reason="not read.", missing=missing))
    assert [key for key, label in pending(story).choices.items() if label.startswith("Read again")] == ["goto:look"]


def test_a_second_edit_keeps_what_the_first_one_wrote() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned().posted()
    change, request = story.run.change, story.run.requests[story.request]
    assert change is not None
    run = story.run.with_(change=change.model_copy(update={"values": {"--max-num-seqs": 6}}))
    draft = Draft(run, BUNDLE, story.rules, story.at)
    changing.edited(draft, request, {"--watermark": 0.1, "--block-size": 16}, "ben")
    assert draft.run.change is not None
    assert draft.run.change.values == {"--max-num-seqs": 6, "--watermark": 0.1, "--block-size": 16}
    assert draft.run.requests[story.request].decision_reason == "--watermark 0.1, --block-size 16"


# --- planned again and again ------------------------------------------------------------------------------------------


def moved(story: Story) -> Story:
    """The world is another one right before the call; the new plan is posted and approved."""
    story.settles("superseded", detail="5 replicas by now", replanned=result(choices={"to": story.run.counter}))
    return story.posted().presses("approve") if story.run.change else story


def test_a_plan_that_changes_under_its_approval_is_asked_for_again_so_often_and_no_more() -> None:
    story = Story().granted()
    most = story.rules.replans_at_most
    for _ in range(most):
        before = story.request
        moved(story)
        assert story.run.change is not None
        assert story.run.change.request_id == story.request != before
        assert story.run.visit.machine_state == "grow/applying"
    moved(story)
    assert (story.run.change, story.run.visit.machine_state) == (None, "grow/planning")
    text = f"The plan changed {most} times while it was being approved: 5 replicas by now. What now?"
    assert pending(story).text == text
    assert [request.status for request in story.run.requests.values()] == ["superseded"] * (most + 1)


def test_a_plan_that_cannot_be_made_again_keeps_no_request_under_way() -> None:
    story = Story().granted()
    story.settles("superseded", detail="the node is gone", replanned=PlanResult(outcome="failed", reason="no answer"))
    assert story.run.change is not None
    assert (story.run.change.request_id, story.run.change.replans) == ("", 1)
    assert pending(story).text == "The change 'scale' cannot be planned: no answer. What now?"


def test_a_question_shows_what_was_tried_and_how_it_ended() -> None:
    story = Story().applied().watched("not_held")
    assert pending(story).evidence == ("tried: R2 Scale llm from 4 to 5: done",)
    story.chooses("grow").planned(result(choices={"to": 9})).posted().presses("approve")
    story.settles("superseded", detail="moved", replanned=result(choices={"to": 8})).posted().presses("refuse")
    assert [line.split()[1] for line in pending(story).evidence] == ["R2", "R5"], "not what was superseded"


# --- how a step ends --------------------------------------------------------------------------------------------------


def test_what_somebody_else_interfered_with_half_way_stays_granted() -> None:
    story = halfway()
    request = story.request
    story.settles("interfered", detail="7 replicas", evidence={"calls": []})
    assert story.run.requests[request].status == "granted"


def test_a_stop_before_a_call_says_nothing_of_a_rollout_that_goes_on() -> None:
    story = stopped(builders.call(), builders.call(title="second call"))
    assert "continues the rollout" not in pending(story).text


def test_a_wait_for_less_than_a_rollout_says_nothing_of_one_that_goes_on() -> None:
    story = stopped(builders.call(), ROLLOUT.model_copy(update={"condition": "scaled"}))
    assert "continues the rollout" not in pending(story).text


@pytest.mark.parametrize("change", ["none", "not stopped"])
def test_there_is_nothing_to_go_on_with_where_nothing_was_stopped(change: str) -> None:
    story = stopped()
    going = story.run.change
    assert going is not None
    now = None if change == "none" else going.model_copy(update={"stopped": False})
    story.run = story.run.with_(change=now)
    story.chooses("go_on")
    assert pending(story).text == "There is nothing to continue. What now?"
    assert "apply_step" not in story.kinds()


def test_what_goes_on_shows_no_progress_of_before() -> None:
    story = stopped()
    going = story.run.change
    assert going is not None
    story.run = story.run.with_(change=going.model_copy(update={"progress": "1 of 5"}))
    story.chooses("go_on")
    assert story.run.change is not None
    assert story.run.change.progress == ""


def test_a_stopped_change_that_is_given_up_leaves_the_other_requests_as_they_were() -> None:
    story = stopped()
    earlier = builders.request(request_id="R0", status="refused")
    story.run = story.run.with_(requests={"R0": earlier} | story.run.requests)
    story.chooses("hand_over")
    assert story.run.requests["R0"] == earlier


def test_a_next_step_begins_without_the_progress_of_the_one_before() -> None:
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted()
    story.presses("approve")
    story.happens(Progressed(event_id="p", effect_id=f"v{story.run.visit.number}/apply", text="waiting"))
    story.settles()
    assert story.run.change is not None
    assert (story.run.change.step, story.run.change.progress) == (1, "")


def test_progress_of_an_earlier_visit_is_not_shown() -> None:
    story = Story().granted()
    story.happens(Progressed(event_id="p", effect_id="v1/apply", text="3 of 5"))
    assert story.run.change is not None
    assert story.run.change.progress == ""


def test_the_progress_of_a_watch_is_shown() -> None:
    story = Story().applied()
    story.happens(Progressed(event_id="p", effect_id=f"v{story.run.visit.number}/watch", text="calm for 5 s"))
    assert story.run.watch is not None
    assert story.run.watch.progress == "calm for 5 s"


# --- the ledger -------------------------------------------------------------------------------------------------------

CANARY = ObjectRef(kind="Deployment", namespace="serving", name="llm-canary", uid="u2")
POD = ObjectRef(kind="Pod", namespace="serving", name="llm-2", uid="pod-2")
BACK = builders.call().undo


def entry(call_id: str, target: ObjectRef, verb: str = "scale", **fields: Any) -> LedgerEntry:
    return LedgerEntry(
        call_id=call_id, state="grow", verb=verb, title=call_id, target=target, undo=BACK, applied_at=0.0, **fields
    )


def after(step: Call, *entries: LedgerEntry, **plan: Any) -> dict[str, str]:
    """Who ended each of these entries once this call is done."""
    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="planned", plan=builders.plan(steps=(step,), **plan))).posted()
    story.presses("approve").presses("approve", user="ben")
    story.run = story.run.with_(ledger=entries)
    story.settles(call_id="this")
    assert story.run.ledger[-1].call_id == "this"
    return {one.call_id: one.undone_by for one in story.run.ledger[:-1]}


ENTRIES = (
    entry("canary", CANARY, "canary"),
    entry("scaled canary", CANARY),
    entry("other canary", CANARY.model_copy(update={"name": "llm-other"}), "canary"),
    entry("taken back before", CANARY, "canary", undone_by="before"),
)


@pytest.mark.parametrize(
    ("step", "ended"),
    [
        pytest.param(builders.call(target=CANARY), [], id="a-patch-ends-nothing"),
        pytest.param(builders.call(target=CANARY, method="delete"), ["canary"], id="a-delete-ends-our-canary"),
        pytest.param(builders.call(target=CANARY, method="evict"), ["canary"], id="an-eviction-too"),
        pytest.param(builders.call(target=CANARY, restores=True), ["canary"], id="what-restores-too"),
        pytest.param(
            builders.call(target=CANARY.model_copy(update={"kind": "Service"}), restores=True), [], id="another-kind"
        ),
        pytest.param(
            builders.call(target=CANARY.model_copy(update={"namespace": "other"}), restores=True), [], id="elsewhere"
        ),
    ],
)
def test_a_call_ends_what_the_bot_held_of_the_same_object_and_nothing_else(step: Call, ended: list[str]) -> None:
    found = after(step, *ENTRIES)
    assert [call_id for call_id, by in found.items() if by == "this"] == ended
    assert found["taken back before"] == "before"


def test_a_call_that_ends_a_pod_ends_what_was_done_to_that_pod_and_to_no_other() -> None:
    others = (entry("its mark", POD), entry("another pod", POD.model_copy(update={"uid": "pod-3"})))
    workload = entry("its uid in another kind", CANARY.model_copy(update={"uid": "pod-2"}))
    found = after(builders.call(ends=("pod-2",)), *others, workload)
    assert found == {"its mark": "this", "another pod": "", "its uid in another kind": ""}


def test_a_call_that_is_the_inverse_of_an_earlier_one_takes_it_back() -> None:
    floor = ObjectRef(kind="HorizontalPodAutoscaler", namespace="serving", name="llm", uid="hpa")
    back = Call(
        method="patch", target=floor, body=[{"op": "replace", "path": "/spec/minReplicas", "value": 2}], title="b"
    )
    other = back.model_copy(update={"body": [{"op": "replace", "path": "/spec/minReplicas", "value": 3}]})
    held = entry("held", floor, "set_flags").model_copy(update={"undo": (back,)})
    raised = entry("raised", floor).model_copy(update={"undo": (other,)})
    assert after(back.model_copy(update={"restores": True}), held, raised) == {"held": "this", "raised": ""}
    assert after(back, held, raised) == {"held": "", "raised": ""}


def test_an_undo_ends_exactly_the_calls_that_it_names() -> None:
    target = builders.call().target
    elsewhere = entry("c", CANARY)
    undo = {"verb": "undo", "choices": {"of": ["a", "c"]}}
    found = after(builders.call(restores=True), entry("a", target), entry("b", target), elsewhere, **undo)
    assert found == {"a": "this", "b": "", "c": ""}, "a call ends only what is of its own object"


def test_a_change_that_takes_an_earlier_call_back_ends_that_call() -> None:
    """A replica that was added is scaled away with the bad one: the next one may be added again."""
    target = builders.call().target
    found = after(builders.call(undoes="a"), entry("a", target), entry("b", target))
    assert found == {"a": "this", "b": ""}


def test_what_is_over_by_itself_leaves_nothing_to_take_back() -> None:
    about = ObjectRef(kind="Job", namespace="serving", name="eval", uid="j")
    ends = Wait(condition="job_ended", about=about, within_seconds=60, title="eval has ended", closes=True)
    plan = builders.plan(verb="run_job", steps=(builders.call(target=about, method="create"), ends))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=plan)).posted()
    story.presses("approve")
    story.run = story.run.with_(ledger=(entry("scaled", builders.call().target),))
    story.settles()
    assert len(story.run.held) == 2
    score = Reading(name="run_job", fields={"score": 0.9}, at=story.at)
    story.settles(call_id="", evidence={"attempts": 1}, readings={"run_job": score})
    seen = next(one for one in story.last.entries if one.kind == "wait")
    assert seen.data == {"attempts": 1, "request": "R2", "held": list(story.run.in_place)}
    scaled, job = story.run.ledger
    assert (scaled.undo, scaled.no_undo) == (BACK, "")
    assert (job.undo, job.no_undo) == ((), "it has ended: eval has ended")


def test_an_outcome_that_comes_late_and_again_is_recorded_once_with_its_undo() -> None:
    story = Story().granted().says("resolve")
    assert story.run.is_open
    late = {"effect_id": "v3/apply", "request_id": "R2", "step": 0, "call_id": "INC-1/R2/0", "result": "done"}
    change = story.run.change
    story.run = story.run.with_(change=None)
    for number in range(2):
        story.happens(StepSettled.model_validate(late | {"event_id": f"late{number}"}))
    assert change is not None
    assert [one.call_id for one in story.run.held] == ["INC-1/R2/0"]
    assert story.texts("ignored") == ["late outcome of step 0 of R2: done"]


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param({"request_id": "R9"}, id="of-no-request"),
        pytest.param({"call_id": ""}, id="of-no-call"),
        pytest.param({"result": "failed"}, id="that-did-nothing"),
    ],
)
def test_a_late_outcome_of_nothing_leaves_the_ledger_as_it_is(strange: dict[str, str]) -> None:
    story = Story().granted()
    story.run = story.run.with_(change=None)
    late = {"effect_id": "v3/apply", "request_id": "R2", "step": 0, "call_id": "INC-1/R2/0", "result": "done"}
    story.happens(StepSettled.model_validate({"event_id": "late"} | late | strange))
    assert story.run.ledger == ()
    assert len(story.texts("ignored")) == 1


# --- the end of a change ----------------------------------------------------------------------------------------------


def job_done(outcome: str, **fields: Any) -> Story:
    """A change whose verb brings something back comes to its end."""
    text = TEXT.replace("change: scale", "change: run_job").replace("with: {by: 1}", "with: {template: eval}")
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95).chooses("grow")
    story.planned(result(verb="run_job")).posted().presses("approve")
    score = Reading(name="run_job", fields={"score": 0.9, "baseline": 0.8}, at=story.at)
    return story.settles(outcome, detail="eval ended", readings={"run_job": score}, **fields)


def outcomes(story: Story) -> list[str]:
    return [each.outcome_text for each in story.run.requests.values() if each.outcome_text]


def test_what_a_job_came_back_with_is_in_the_thread() -> None:
    [text] = outcomes(job_done("done"))
    assert text == "score: 0.9; baseline: 0.8"
    [failed] = outcomes(job_done("failed"))
    assert failed == "eval ended; score: 0.9; baseline: 0.8"


def test_what_went_well_and_brings_nothing_back_needs_no_message() -> None:
    assert outcomes(Story().applied()) == []


def taking_back(story: Story, plan: Plan) -> Story:
    undo = tuple(
        step.model_copy(update={"undo": (), "restores": True, "holds": None}) if isinstance(step, Call) else step
        for step in plan.steps[:1]
    )
    back = plan.model_copy(update={"verb": "undo", "steps": undo, "risk": "medium"})
    return story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve", user="ben")


def test_an_end_that_waited_for_an_undo_ends_with_it() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    story.presses("approve").presses("approve", user="ben").settles().watched("held")
    assert story.run.visit.state == "calm"
    assert list(pending(story).choices) == ["undo", "keep"]
    taking_back(story.chooses("undo"), canary).settles()
    assert (story.run.is_open, story.run.ending) == (False, "fixed")


def test_an_end_whose_change_a_person_keeps_still_says_what_was_reached() -> None:
    canary = builders.plan(verb="canary", title="Start a canary", steps=(builders.call(title="Create the canary"),))
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=canary)).posted()
    story.presses("approve").presses("approve", user="ben").settles().watched("held").chooses("keep", user="ben")
    assert story.run.ending == "fixed"
    assert story.run.posts[-1].data["text"] == "It is calm. A person took over the changes still in place."


def test_an_undo_that_failed_asks_what_next() -> None:
    story = stopped_after(1).chooses("undo")
    plan = story.run.requests["R2"].plan
    taking_back(story, plan).settles("failed", detail="409")
    assert pending(story).text == "409. What now?"


def test_a_change_that_cannot_be_planned_is_parked_when_nobody_answers() -> None:
    story = Story().opened().reads(0.95).chooses("grow")
    story.planned(PlanResult(outcome="unknown", reason="the cluster did not answer"))
    (name,) = [name for name in story.run.deadlines if name.endswith(":unanswered")]
    story.due(name)
    assert story.run.parked is not None


def test_a_change_that_stopped_half_way_is_not_parked_and_people_are_called_every_day() -> None:
    story = stopped()
    for _ in range(2):
        (name,) = [name for name in story.run.deadlines if name.endswith(":unanswered")]
        assert story.due(name).last.run.parked is None
    assert any(name.endswith(":unanswered") for name in story.run.deadlines)
