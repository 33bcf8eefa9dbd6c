"""A handover: the next lead is mentioned with what is open, held and promised, and pages go to who is on call now."""

from __future__ import annotations

import pytest

from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.incidents.event import Paged
from bot.domain.incidents.handover import Matter, open_matters
from tests.builders import START
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast
SERVING = Contact(team="serving", mentions=("S0SERVING",), has_pager=True)


def asked(*, severity: str = "page") -> Story:
    story = Story()
    story.rules = story.rules.model_copy(update={"contacts": Contacts(teams={"serving": SERVING})})
    story.run = story.run.with_(severity=severity)
    return story.asked()


def test_the_next_lead_is_mentioned_and_reads_what_is_open_held_and_promised() -> None:
    story = asked().says("handover", to="U0BEN", text="The cap is next.")
    assert story.run.lead == "U0BEN"
    post = story.run.posts[-1]
    assert post.data["mentions"] == ["U0BEN"]
    assert post.data["text"] == "<@ana> handed over to <@U0BEN>: The cap is next."
    waits, *_, due = [Matter(**each) for each in post.data["matters"]]
    assert waits == Matter("Waits for approval", "Scale llm from 4 to 5", "by", START + 960)
    assert due == Matter("The next status update is due", word="by", at=START + 1810)
    first, *lines = story.texts("note")[-1].splitlines()
    assert first == post.data["text"], "it is on the timeline"
    assert lines[0] == "Waits for approval by 08:16 UTC: Scale llm from 4 to 5"
    assert lines[-1] == "The next status update is due by 08:30 UTC"


def test_without_a_name_the_team_on_call_is_mentioned_and_nobody_leads() -> None:
    story = asked().says("lead").says("handover")
    assert story.run.lead == ""
    assert story.run.posts[-1].data["mentions"] == ["S0SERVING"]


def test_who_is_on_call_now_is_paged_and_the_page_of_before_ends() -> None:
    story = asked().says("handover")
    assert {name: page.wanted for name, page in story.run.pages.items()} == {
        "serving": "resolve",
        "serving/2": "trigger",
    }
    story.happens(Paged(event_id="p", page="serving/2", action="trigger", through="PagerDuty", key="k"))
    assert story.says("lead").run.pages["serving/2"].wanted == "acknowledge"


def test_a_handover_to_a_person_calls_the_team_no_second_time() -> None:
    before = {name: page.name for name, page in asked().run.pages.items()}
    story = asked().says("handover", to="U0BEN")
    assert {name: page.name for name, page in story.run.pages.items()} == before
    assert story.run.lead == "U0BEN"


def test_a_handover_to_a_person_answers_the_page() -> None:
    story = asked().says("handover")
    assert story.run.pages["serving/2"].wanted == "trigger"
    assert story.says("handover", to="U0BEN").run.pages["serving/2"].wanted == "acknowledge"


def test_a_ticket_pages_nobody_at_a_handover() -> None:
    assert asked(severity="ticket").says("handover").run.pages == {}


def test_what_was_changed_and_a_watch_are_named() -> None:
    story = Story().applied()
    watches, held = [each.in_utc(story.at) for each in open_matters(story.run)]
    assert watches.startswith("The bot watches until ")
    assert held == "Changes in place: scale llm from 4 to 5"
