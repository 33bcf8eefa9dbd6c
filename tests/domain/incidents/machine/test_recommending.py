"""A recommendation: a request for the first possible option, with the others beside it."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Request
from bot.domain.approvals.kinds import Asked, Share
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import Notify
from bot.domain.incidents.machine import Rules
from bot.domain.incidents.machine.questions import TAKEN_AND_CLOSED
from bot.domain.incidents.run import Looked, News
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests import builders
from tests.domain.incidents.machine.recommendations import STAGED, TEXT
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast

PLANNED = PlanResult(outcome="planned", plan=builders.plan())
RESTART = PlanResult(outcome="planned", plan=builders.plan(verb="restart", title="Restart llm", risk="high"))


def test_where_people_are_asked_what_is_left_the_question_says_why_no_change_is_possible() -> None:
    went = story(room=0.0, usage=0.5, text=TEXT.replace("    none_possible: gone\n", "    expires: 30m\n")).reads(0.5)
    (question,) = (post for post in went.run.posts if post.kind == "question")
    (news,) = question.data["news"]
    assert (news["title"], news["result"]) == ("relieve", "none_possible")
    assert news["text"].startswith("Add 0 replicas: no GPU is free; Restart it: ")


OTHER = """\
  other:
    recommend: Then what?
    read: [usage]
    done: calm
    none_possible: gone
    still: usage > 2
    options:
      more: {label: Add one, possible: usage > 0.1, why_not: idle, effect: More room., change: scale, with: {by: 1}}
"""


def test_another_recommendation_says_why_it_is_none_of_the_changes_before_it() -> None:
    """A person who chose to fix the cause would get the same proposal again, and never learn why."""
    text = TEXT.replace("none_possible: gone", "none_possible: other").replace("  gone:", f"{OTHER}  gone:", 1)
    went = story(room=0.0, usage=0.5, text=text)
    (news,) = went.run.news
    assert (news.title, news.result) == ("relieve", "none_possible")
    assert news.text.startswith("Add 0 replicas: no GPU is free; Restart it: ")


def test_above_the_question_of_a_playbook_the_reasons_are_only_in_the_details() -> None:
    asked = TEXT.replace(
        "  gone: {end: handed_over}", "  gone: {ask: What now?, choices: {none: {label: Nothing, to: calm}}}"
    )
    went = story(room=0.0, usage=0.5, text=asked)
    (question,) = (post for post in went.run.posts if post.kind == "question")
    assert "news" not in question.data
    (decision,) = Looked.model_validate(question.data["looked"]).decisions
    assert decision == (
        "relieve",
        "no option is left: Add 0 replicas: no GPU is free; Restart it: not possible now; Hand over: for people",
    )


def story(*, room: float | None = 1.0, usage: float = 0.95, text: str = TEXT) -> Story:
    started = Story(Bundle.of(load_text(text, file="small.yaml"))).opened()
    waiting = Reading(name="room", value=room, unknown="" if room is not None else "no answer", at=builders.START)
    return started.reads(usage, room=waiting)


GONE = "Ends the incident: handed over to people."


def request_of(went: Story) -> Request:
    request = went.run.open_request
    assert request is not None
    return request


def test_the_first_possible_option_is_a_request_at_once_with_the_others_beside_it() -> None:
    went = story().planned(PLANNED)
    request = request_of(went)
    assert (went.run.visit.state, request.why) == ("relieve_grow", "Restarts nothing.")
    beside = [(each.label, each.effect, each.why_not) for each in request.alternatives]
    assert beside == [("Restart it", "Cuts streams.", ""), ("Hand over", GONE, "")]
    assert [line.partition(":")[0] for line in request.evidence] == ["usage"], "what is listed, not all that is read"


def test_the_effect_of_an_option_shows_a_reading_with_its_unit() -> None:
    text = TEXT.replace("effect: Cuts streams.", "effect: 'The pool is ${room} full.'")
    share = Reading(name="room", value=0.677, unit="ratio", at=builders.START)
    went = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95, room=share).planned(PLANNED)
    assert request_of(went).alternatives[0].effect == "The pool is 67.7% full."


def test_its_numbers_are_those_that_recommended_it() -> None:
    playbook = load_text(TEXT, file="small.yaml")
    assert playbook.arguments("relieve_grow", {"results.relieve.room": 3.0, "room": 7.0}) == {"by": 6}


@pytest.mark.parametrize(
    ("room", "why_not"), [(0.0, "no GPU is free"), (None, "Requests waiting could not be read")], ids=["no", "unknown"]
)
def test_an_option_that_is_not_possible_is_text_with_its_reason(room: float | None, why_not: str) -> None:
    went = story(room=room).planned(RESTART)
    assert went.run.visit.state == "relieve_restart"
    assert [each.why_not for each in request_of(went).alternatives] == [why_not, ""]


def test_what_nobody_chose_is_not_possible_for_the_reason_that_is_written() -> None:
    text = TEXT.replace("possible: room > 0", "possible: 'answers.ask == \"grow\"'").replace(
        "  gone: {end",
        "  ask: {ask: Now?, choices: {grow: {label: Grow, to: relieve}, none: {label: No, to: calm}}}\n  gone: {end",
    )
    text = text.replace("none_possible: gone", "none_possible: ask")
    went = story(text=text).planned(RESTART)
    assert request_of(went).alternatives[0].why_not == "no GPU is free"


def test_without_a_possible_option_it_leads_elsewhere() -> None:
    assert story(room=0.0, usage=0.5).run.ending == "handed_over"


def test_without_a_possible_option_and_a_way_for_that_people_are_asked_what_is_left() -> None:
    went = story(room=0.0, usage=0.5, text=TEXT.replace("    none_possible: gone\n", "    expires: 30m\n")).reads(0.5)
    question = went.run.open_question
    assert question is not None
    assert (question.state, question.text) == ("relieve_none", "Which mitigation?")
    assert question.choices == {"people": "Hand over"}
    assert went.chooses("people").run.ending == "handed_over"


def test_another_option_is_proposed_by_one_press_and_the_first_can_be_chosen_again() -> None:
    went = story().planned(PLANNED).posted().presses("choose", value="restart")
    assert went.run.requests["R1"].status == "superseded"
    assert went.run.requests["R1"].decision_reason == "Restart it, instead"
    went.planned(RESTART).posted()
    assert went.run.visit.state == "relieve_restart"
    assert request_of(went).needs_reason
    went.presses("choose", value="grow").planned(PLANNED)
    assert went.run.visit.state == "relieve_grow"


def test_an_option_that_leads_elsewhere_is_taken_by_a_press() -> None:
    assert story().planned(PLANNED).posted().presses("choose", value="people").run.ending == "handed_over"


@pytest.mark.parametrize(("value", "why"), [("grow", "not possible instead: no GPU is free"), ("other", "'other' is")])
def test_what_is_not_possible_cannot_be_pressed(value: str, why: str) -> None:
    went = story(room=0.0).planned(RESTART).posted().presses("choose", value=value)
    assert why in went.wanted(Notify).text
    assert went.run.visit.state == "relieve_restart"


def test_a_press_on_an_older_plan_does_not_count() -> None:
    went = story().planned(PLANNED).posted().presses("choose", value="restart", digest="0ld")
    assert "the plan changed" in went.wanted(Notify).text


def test_an_option_that_was_refused_is_not_recommended_again() -> None:
    went = story().planned(PLANNED).posted().presses("refuse").reads(0.95, room=Reading(name="room", value=1.0, at=1))
    assert went.run.visit.state == "relieve_restart"


REPEATS = TEXT.replace("        change: scale\n", "        change: scale\n        repeat: true\n")


def test_an_option_that_may_repeat_is_recommended_again_after_it_was_done() -> None:
    text = REPEATS.replace("    done: calm\n", "    done: relieve\n    at_most: 5\n    beyond: calm\n")
    went = story(text=text).planned(PLANNED).posted().presses("approve").settles()
    assert went.reads(0.95, room=Reading(name="room", value=1.0, at=1)).run.visit.state == "relieve_grow"


def test_an_option_that_may_repeat_is_not_recommended_right_after_it_was_refused() -> None:
    went = story(text=REPEATS).planned(PLANNED).posted().presses("refuse")
    went.reads(0.95, room=Reading(name="room", value=1.0, at=1))
    assert went.run.visit.state == "relieve_restart"
    went.planned(RESTART).posted().presses("refuse")
    assert went.reads(0.95, room=Reading(name="room", value=1.0, at=1)).run.visit.state == "gone", "neither comes again"


def test_a_refused_option_that_may_repeat_is_recommended_again_after_another_state() -> None:
    text = REPEATS.replace("    refused: relieve\n", "    refused: again\n").replace(
        "  calm: {end",
        "  again: {ask: Again?, choices: {yes: {label: Again, to: relieve}}, expired: gone}\n  calm: {end",
    )
    went = story(text=text).planned(PLANNED).posted().presses("refuse").posted().chooses("yes")
    assert went.reads(0.95, room=Reading(name="room", value=1.0, at=1)).run.visit.state == "relieve_grow"


TRIED = PlanResult(outcome="planned", plan=builders.plan(verb="canary"))


@pytest.mark.parametrize(
    ("label", "room", "recommended"),
    [
        pytest.param("Add ${twice} replicas", 1.0, "relieve_restart", id="the same values"),
        pytest.param("Add ${twice} replicas", 2.0, "relieve_grow", id="other values"),
        pytest.param("Measure it", 1.0, "relieve_grow", id="no values in its label"),
    ],
)
def test_what_was_on_a_canary_is_recommended_again_only_with_other_values(
    label: str, room: float, recommended: str
) -> None:
    text = REPEATS.replace("    done: calm\n", "    done: relieve\n    at_most: 5\n    beyond: calm\n")
    went = story(text=text.replace("Add ${twice} replicas", label)).planned(TRIED).posted().presses("approve").settles()
    assert went.reads(0.95, room=Reading(name="room", value=room, at=1)).run.visit.state == recommended


def test_what_could_not_be_planned_is_not_recommended_over_and_over() -> None:
    text = TEXT.replace(
        "        change: scale\n", "        change: scale\n        repeat: true\n        impossible: relieve\n"
    )
    text = text.replace("    done: calm\n", "    done: calm\n    at_most: 5\n    beyond: gone\n")
    went = story(text=text).planned(PlanResult(outcome="impossible", reason="its owner would revert it"))
    assert went.reads(0.95, room=Reading(name="room", value=1.0, at=1)).run.visit.state == "relieve_restart"


def test_the_edits_that_were_handed_out_are_kept_until_the_next_change_that_is_not_possible() -> None:
    text = TEXT.replace(
        "    done: calm\n", "    done: calm\n    impossible: relieve\n    at_most: 5\n    beyond: gone\n"
    )
    edits = ({"flag": "--seed", "value": 6},)
    went = story(text=text).planned(PlanResult(outcome="impossible", reason="reverted", handed_out=edits))
    assert list(went.run.findings.handed_out) == list(edits)
    went.reads(0.95, room=Reading(name="room", value=1.0, at=1))
    went.planned(PlanResult(outcome="impossible", reason="no GPU is free"))
    assert not went.run.findings.handed_out


# --- one approval for several changes ---------------------------------------------------------------------------------

CANARY = builders.plan(verb="canary", choices={"edits": {"--seed": 6}}, risk="medium")
CANARY_PLANNED = PlanResult(outcome="planned", plan=CANARY)
ROLLOUT = builders.plan(verb="promote", choices={"edits": {"--seed": 6}}, risk="high")


def staged(*, once: bool, first: PlanResult = CANARY_PLANNED, room: float = 0.0, **rules: Any) -> Story:
    went = Story(Bundle.of(load_text(STAGED, file="small.yaml")))
    approvals = went.rules.approvals.model_copy(update={"plan_once": once, **rules})
    went.rules = Rules(approvals=approvals)
    went.opened().reads(0.95, room=Reading(name="room", value=room, at=builders.START))
    return went.planned(first)


def test_a_flag_edit_is_tried_on_a_canary_and_its_rollout_is_asked_for() -> None:
    went = staged(once=False).posted()
    assert request_of(went).covers == ()
    went.presses("approve").settles().planned(PlanResult(outcome="planned", plan=ROLLOUT))
    assert (went.run.visit.state, went.run.visit.machine_state) == ("rolled", "rolled/awaiting")


def test_with_plan_once_the_canarys_approval_covers_the_rollout_and_needs_a_reason() -> None:
    went = staged(once=True).posted()
    request = request_of(went)
    assert [(each.state, each.risk) for each in request.covers] == [("rolled", "high")]
    assert request.plan.risk == "high"
    went.presses("approve", reason="users wait").settles().planned(PlanResult(outcome="planned", plan=ROLLOUT))
    assert went.run.visit.machine_state == "rolled/applying"
    assert went.run.requests[went.request].policy.announced == "R1 covers it"


def test_the_approval_of_a_canary_of_high_risk_covers_no_rollout() -> None:
    went = staged(once=False, risk_floors={"canary": "high"}).posted()
    assert (request_of(went).plan.risk, request_of(went).covers) == ("high", ())
    went.presses("approve", reason="users wait").settles().planned(PlanResult(outcome="planned", plan=ROLLOUT))
    assert went.run.visit.machine_state == "rolled/awaiting"


def test_with_plan_once_a_rollout_with_approvers_of_its_own_is_asked_for() -> None:
    own = {"promote": Asked(shares=(Share(team="serving", needed=2),), is_set=True)}
    went = staged(once=True, kinds=own).posted()
    went.presses("approve", reason="users wait").settles().planned(PlanResult(outcome="planned", plan=ROLLOUT))
    assert went.run.visit.machine_state == "rolled/awaiting"


def test_the_undo_of_an_option_is_not_called_like_the_option() -> None:
    went = story(text=REPEATS.replace("    done: calm\n", "    done: relieve\n    at_most: 5\n    beyond: calm\n"))
    went.planned(PLANNED).posted().presses("approve").settles().reads(0.95, room=Reading(name="room", value=1.0, at=1))
    assert (went.run.visit.state, went.run.visit.doing) == ("relieve_grow", "Add 2 replicas")
    back = builders.plan(verb="undo", title="Put llm back to 4 replicas")
    went.says("undo")
    assert went.run.visit.doing == f"Undo: {went.run.held[-1].title}"
    went.planned(PlanResult(outcome="planned", plan=back))
    assert request_of(went).called == "Put llm back to 4 replicas"


def test_a_rollout_of_other_edits_is_asked_for() -> None:
    other = ROLLOUT.model_copy(update={"choices": {"edits": {"--seed": 5}}})
    went = staged(once=True).posted().presses("approve", reason="users wait").settles()
    went.planned(PlanResult(outcome="planned", plan=other))
    assert went.run.visit.machine_state == "rolled/awaiting"


def test_without_room_for_a_canary_an_edit_in_place_covers_no_rollout() -> None:
    went = staged(once=True, first=PlanResult(outcome="impossible", reason="no GPU is free"))
    assert went.run.visit.state == "relieve_cap_in_place"
    went.planned(PlanResult(outcome="planned", plan=ROLLOUT.model_copy(update={"verb": "set_flags"})))
    assert request_of(went).covers == ()


def test_people_read_that_the_canary_is_what_was_not_possible() -> None:
    went = staged(once=False, first=PlanResult(outcome="impossible", reason="no GPU is free"))
    assert [(news.title, news.text) for news in went.run.news] == [("Try it on a canary first", "no GPU is free")]


def test_another_replica_covers_no_rollout_of_a_canary() -> None:
    went = staged(once=True, room=1.0, first=PLANNED)
    assert (went.run.visit.state, request_of(went).covers) == ("relieve_grow", ())


def test_after_an_undo_the_choice_itself_is_offered_again() -> None:
    """What would come next may rest on what was undone, like the watch of a canary that is gone."""
    text = TEXT.replace("done: calm", "done: settle").replace(
        "  calm: {end",
        "  settle: {watch: {ok: '!full'}, for: 10s, within: 60s, held: calm, otherwise: gone}\n  calm: {end",
    )
    went = story(text=text).planned(PLANNED).posted().presses("approve").settles()
    assert went.run.visit.state == "settle"
    went.says("undo")
    back = builders.plan(verb="undo", title="Scale back", steps=(builders.call().undo[0],))
    went.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve").settles()
    asked = went.run.open_question
    assert asked is not None
    assert asked.choices == {
        "goto:relieve": "Recommend again: relieve",
        "hand_over": "Hand over to me",
        "close": "Close the incident",
    }
    assert went.chooses("goto:relieve").run.visit.state == "relieve"


def test_an_undo_is_not_offered_before_anything_was_changed() -> None:
    text = TEXT.replace(
        "      people: {label: Hand over, to: gone}",
        "      back: {label: Take it back, to: back}\n      people: {label: Hand over, to: gone}",
    ).replace("  calm: {end", "  back: {change: undo, with: {of: last}, why: No help., done: calm}\n  calm: {end")
    went = story(text=text).planned(PLANNED).posted()
    request = went.run.open_request
    assert request is not None
    assert {each.key: each.why_not for each in request.alternatives}[
        "back"
    ] == "the bot has changed nothing that could be taken back"


def test_a_patch_for_an_option_that_is_not_possible_follows_what_led_there() -> None:
    went = story(room=2.0)
    news = News(title="Does the canary pass?", result="held", text="0 preemptions", at=went.at)
    went.run = went.run.with_(news=(news,))
    went.planned(PlanResult(outcome="impossible", reason="Argo CD would revert it", hint="spec:\n  replicas: 6"))
    (outcome,) = (post for post in went.run.posts if post.kind == "outcome")
    assert outcome.data["title"] == "Add 4 replicas"
    assert [each["title"] for each in outcome.data["news"]] == ["Does the canary pass?"]
    assert went.run.news == ()


def test_who_chooses_to_hand_over_instead_has_it_and_reads_that_before() -> None:
    people = "{divert: people, why: A person has to take over., taken: over}\n  over: {end: handed_over}"
    asked = TEXT.replace("{end: handed_over}", people)
    went = story(text=asked).planned(PLANNED).posted()
    offered = {each.key: each.effect for each in request_of(went).alternatives}
    assert offered["people"] == TAKEN_AND_CLOSED
    went.presses("choose", value="people", user="ben")
    assert (went.run.ending, went.run.lead, dict(went.run.questions)) == ("handed_over", "ben", {})


def decides(went: Story) -> object:
    return next(post.data.get("decides") for post in reversed(went.run.posts) if post.kind == "request")


def test_a_request_of_a_recommendation_has_its_question_as_it_was_asked() -> None:
    text = TEXT.replace("recommend: Which mitigation?", "recommend: The pool is ${usage} full. Which mitigation?")
    went = story(text=text).planned(PLANNED)
    assert decides(went) == "The pool is 0.95 full. Which mitigation?"


def test_an_undo_that_a_person_asked_for_is_no_answer_to_that_question() -> None:
    text = TEXT.replace("done: calm", "done: settle").replace(
        "  calm: {end",
        "  settle: {watch: {ok: '!full'}, for: 10s, within: 60s, held: calm, otherwise: gone}\n  calm: {end",
    )
    went = story(text=text).planned(PLANNED).posted().presses("approve").settles().says("undo").planned(PLANNED)
    assert decides(went) is None
