"""A change that is only advised: nobody can approve it, people say what they do, and the run watches the trouble."""

from __future__ import annotations

import pytest

from bot.domain.approvals.advice import OBSERVE_ONLY, OnlyAdvice
from bot.domain.approvals.announced import PreApproved
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import ApplyStep, PlanChange, WatchAdvice
from bot.domain.incidents.event import AdviceWatched, Planned
from bot.domain.kernel.timeline import GENESIS, chain
from bot.domain.reports import report_of
from tests import builders
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast
FREEZE = OnlyAdvice(reason="freeze", text="freeze until 23 Nov 18:00 UTC: release (ana)")


SERVING = Contact(team="serving", mentions=("S0SERVING",), has_pager=True)
LEAD = Contact(team="lead", mentions=("S0LEAD",), has_pager=True)


class Advised(Story):
    """A story in which the bot may not change anything."""

    def advised(self, advice: OnlyAdvice | None = OBSERVE_ONLY) -> Advised:
        self.opened().reads(0.95).chooses("grow")
        return self.plans(advice)

    def plans(self, advice: OnlyAdvice | None, attempt: int = 0) -> Advised:
        result = PlanResult(outcome="planned", plan=builders.plan())
        effect_id = f"v{self.run.visit.number}/plan/{attempt}"
        event_id = self.id()
        self.happens(Planned(event_id=event_id, effect_id=effect_id, result=result, only_advice=advice))
        return self

    def sees(self, result: str, **fields: object) -> Advised:
        event = {"event_id": self.id(), "effect_id": f"v{self.run.visit.number}/advice", "request_id": self.request}
        self.happens(AdviceWatched.model_validate(event | {"result": result} | fields))
        return self


def called(story: Advised) -> Advised:
    """An urgent incident of a deployment that can call people."""
    contacts = Contacts(teams={"serving": SERVING, "lead": LEAD})
    story.rules = story.rules.model_copy(update={"contacts": contacts})
    story.run = story.run.with_(severity="page", severity_found="page")
    return story


def test_a_change_is_shown_as_advice_and_watched_and_nothing_is_applied() -> None:
    story = Advised().advised()
    assert story.run.requests["R2"].status == "advised"
    assert story.wanted(WatchAdvice).request_id == "R2"
    assert not any(isinstance(effect, ApplyStep) for effect in story.effects)
    assert story.run.open_request is None
    assert story.run.requests["R2"].expires_at is None, "advice does not expire"
    assert story.texts("request") == [
        "R2 (low risk): Scale llm from 4 to 5 — only advised: the settings say observe-only"
    ]


def test_advice_is_no_time_in_which_the_bot_waited_for_a_decision() -> None:
    asked, advised = Advised().advised(None), Advised().advised()
    reports = [report_of(chain(story.entries, head=GENESIS, length=0)) for story in (asked, advised)]
    assert [[wait.about for wait in report.waits] for report in reports] == [["Q1", "R2"], ["Q1"]]


def test_a_change_that_would_be_announced_is_only_advised() -> None:
    story = Advised()
    approved = (PreApproved(change="scale", at_most=1),)
    approvals = story.rules.approvals.model_copy(update={"pre_approved": approved})
    story.rules = story.rules.model_copy(update={"approvals": approvals})
    story.advised()
    assert story.run.requests["R2"].status == "advised"
    assert not any(isinstance(effect, ApplyStep) for effect in story.effects)


@pytest.mark.parametrize("action", ["approve", "refuse", "more_time", "choose", "break_glass"])
def test_no_press_of_a_request_counts_on_advice(action: str) -> None:
    story = Advised().advised()
    story.presses(action)
    assert story.run.requests["R2"].status == "advised"
    assert story.run.advised is not None
    assert not any(isinstance(effect, ApplyStep) for effect in story.effects)
    assert "this change is only advised: the settings say observe-only" in story.texts("press")[-1]


@pytest.mark.parametrize(
    ("text", "outcome", "ended"),
    [
        ("", "carries it out", "a person carried it out"),
        (
            "we shifted traffic",
            "does something else: we shifted traffic",
            "a person did something else: we shifted traffic",
        ),
    ],
)
def test_people_say_what_they_do_and_the_run_goes_on_watching(text: str, outcome: str, ended: str) -> None:
    story = Advised().advised()
    story.presses("carried_out", reason=text)
    assert story.run.advised is not None
    assert story.run.lead == "ana"
    assert story.texts("decided") == [f"R2 was only advised; a person {outcome}"]
    story.sees("recovered", recovered_at=story.run.requests["R2"].asked_at + 600)
    assert story.run.ending == "observed"
    assert story.texts("closed") == [f"closed: observed — the trouble ended 10 min after the advice; {ended}"]


def test_a_secret_in_what_a_person_does_is_not_shown() -> None:
    story = Advised().advised()
    story.presses("carried_out", reason="curl with PASSWORD=hunter2").presses("carried_out", reason="PASSWORD=hunter2")
    texts = [each.text for each in story.run.requests["R2"].carried_out]
    assert texts == ["curl with PASSWORD=(masked)", "PASSWORD=(masked)"]


def test_a_person_who_says_the_same_twice_is_recorded_once() -> None:
    story = Advised().advised()
    story.presses("carried_out")
    story.presses("carried_out")
    story.presses("carried_out", reason="we shifted traffic")
    story.presses("carried_out")
    texts = [each.text for each in story.run.requests["R2"].carried_out]
    assert texts == ["", "we shifted traffic", ""]
    assert any("you have said so already" in text for text in story.texts("press"))


def test_a_stranger_does_not_carry_anything_out() -> None:
    story = Advised().advised()
    story.presses("carried_out", allowed=False)
    assert story.run.requests["R2"].carried_out == ()


def test_trouble_that_does_not_end_closes_the_run_after_its_time() -> None:
    story = Advised().advised().sees("not_recovered")
    assert story.run.ending == "observed"
    assert story.run.requests["R2"].outcome == "not_recovered"
    assert "had not ended" in story.texts("closed")[0]
    assert "nobody said what was done" in story.texts("closed")[0]


def test_a_freeze_that_is_extended_shows_its_new_end() -> None:
    longer = "freeze until 24 Nov 18:00 UTC: release (ana)"
    story = Advised().advised(FREEZE).says("freeze", text=f"F{longer[1:]}", to=longer)
    advice = story.run.requests["R2"].advice
    assert advice is not None
    assert advice.text == longer
    assert story.run.only_advice == advice


def test_a_freeze_does_not_stand_where_the_settings_say_observe_only() -> None:
    story = Advised().advised().says("freeze", text="Freeze until 24 Nov", to="freeze until 24 Nov")
    assert story.run.only_advice == story.run.requests["R2"].advice == OBSERVE_ONLY


def test_when_a_freeze_ends_the_change_is_planned_again_and_requested() -> None:
    story = Advised().advised(FREEZE).sees("lifted", detail="the freeze is over")
    assert story.run.requests["R2"].status == "superseded"
    assert story.wanted(PlanChange).state == "grow"
    story.plans(None, attempt=1)
    assert story.run.requests["R3"].status == "open"
    assert story.run.only_advice is None
    assert story.run.change is not None
    assert story.run.change.progress == "", "nothing is watched any more"
    story.posted().presses("approve")
    assert any(isinstance(effect, ApplyStep) for effect in story.effects)


@pytest.mark.parametrize("advice", [OBSERVE_ONLY, FREEZE], ids=["observe-only", "freeze"])
def test_advice_that_nobody_answers_reminds_who_is_on_call_and_then_calls_the_lead(advice: OnlyAdvice) -> None:
    story = called(Advised()).advised(advice).posted().due("request:R2:half")
    assert story.run.posts[-1].data["mentions"] == ["S0SERVING"]
    assert story.run.posts[-1].data["text"].startswith("Nobody has answered for")
    story.due("request:R2:expiry")
    assert story.run.posts[-1].data["mentions"] == ["S0LEAD"]
    assert {name: page.wanted for name, page in story.run.pages.items()}["lead"] == "trigger"
    assert (story.run.advised is not None, story.run.is_open) == (True, True), "it is watched on"


def test_advice_that_slack_does_not_accept_calls_people_all_the_same() -> None:
    story = called(Advised()).advised().due("request:R2:unposted")
    assert {"request:R2:half", "request:R2:expiry"} <= story.run.deadlines.keys()


def test_advice_that_somebody_carries_out_reminds_nobody() -> None:
    story = called(Advised()).advised().posted().presses("carried_out")
    assert not [name for name in story.run.deadlines if name.startswith("request")]


@pytest.mark.parametrize("deadline", ["half", "expiry"])
def test_advice_in_an_incident_that_somebody_leads_reminds_nobody(deadline: str) -> None:
    story = called(Advised()).advised().posted().says("lead")
    posts = story.run.posts
    assert story.due(f"request:R2:{deadline}").run.posts == posts


def test_what_was_advised_and_may_be_requested_again_reminds_as_a_request_does() -> None:
    story = called(Advised()).advised(FREEZE)
    story.posted()
    story.sees("lifted", detail="the freeze is over")
    assert not [name for name in story.run.deadlines if name.startswith("request")]
    assert "request:R3:unposted" in story.plans(None, attempt=1).run.deadlines


def test_late_news_about_advice_changes_nothing() -> None:
    story = Advised().advised()
    story.sees("not_recovered").sees("recovered")
    assert story.run.requests["R2"].outcome == "not_recovered"


def test_an_alert_that_resolves_does_not_withdraw_the_advice() -> None:
    story = Advised().advised()
    story.says("resolve", text="all is well")
    assert story.run.ending == "resolved_by_hand"
    story.sees("recovered")
    assert story.run.ending == "resolved_by_hand"
