"""Who is mentioned and paged, when, and until when. Severity decides: page, ticket, info."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.incidents.effect import PageTeam
from bot.domain.incidents.event import ALL, AlertChanged, Commanded, EffectFailed, Event, Paged, PageFailed, SignalsRead
from bot.domain.incidents.machine import without_playbook
from bot.domain.incidents.run import Severity
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.incidents.machine.steps import BUNDLE, TEXT, Story

pytestmark = pytest.mark.fast
SERVING = Contact(team="serving", mentions=("S0SERVING",), has_pager=True)
LEAD = Contact(team="lead", mentions=("S0LEAD",), has_pager=True)
FACILITIES = Contact(team="facilities", mentions=("S0FAC",), has_pager=True)
HALL = TEXT.replace(
    "{end: handed_over, say: Nobody answered.}",
    "{divert: people, to_group: facilities, why: The hall is hot., taken: gone}\n  gone: {end: handed_over, say: x}",
)


def story(*teams: Contact, severity: Severity = "page", text: str = TEXT) -> Story:
    made = Story(Bundle.of(load_text(text, file="small.yaml")) if text != TEXT else BUNDLE)
    made.rules = made.rules.model_copy(update={"contacts": Contacts(teams={each.team: each for each in teams})})
    made.run = made.run.with_(severity=severity, severity_found=severity)
    return made


def wanted(of: Story) -> dict[str, str]:
    return {team: page.wanted for team, page in of.run.pages.items()}


def mentions(of: Story) -> list[Any]:
    """The mentions of the newest message that has some."""
    return next((post.data["mentions"] for post in reversed(of.run.posts) if "mentions" in post.data), [])


@pytest.mark.parametrize(
    ("severity", "mentioned", "paged"),
    [
        pytest.param("page", ["S0SERVING"], {"serving": "trigger"}, id="page"),
        pytest.param("ticket", ["S0SERVING"], {}, id="ticket"),
        pytest.param("info", [], {}, id="info"),
    ],
)
def test_severity_decides_whether_a_question_mentions_and_pages(
    severity: Severity, mentioned: list[str], paged: dict[str, str]
) -> None:
    asked = story(SERVING, severity=severity).opened().reads(0.95)
    assert (mentions(asked), wanted(asked)) == (mentioned, paged)


def test_nobody_is_paged_before_something_waits_for_people() -> None:
    assert wanted(story(SERVING).opened()) == {}


def test_a_page_says_what_waits_and_where() -> None:
    asked = story(SERVING).opened().reads(0.95)
    assert asked.run.pages["serving"].text == "INC-1 serving/llm: What now?"
    assert asked.wanted(PageTeam).page == "serving"


def test_a_request_mentions_who_is_on_call_and_pages_once() -> None:
    asked = story(SERVING).opened().reads(0.95).chooses("grow").planned()
    (request,) = [post for post in asked.run.posts if post.kind == "request"]
    assert request.data["mentions"] == ["S0SERVING"]
    assert wanted(asked) == {"serving": "acknowledge"}, "somebody answered the question before it"


def test_an_answer_acknowledges_the_page_and_the_end_resolves_it() -> None:
    answered = story(SERVING).opened().reads(0.95).chooses("grow")
    assert (wanted(answered), answered.last.effects[-2].kind) == ({"serving": "acknowledge"}, "page_team")
    closed = story(SERVING).opened().reads(0.95).chooses("stop")
    assert (closed.run.ending, wanted(closed)) == ("fixed", {"serving": "resolve"})


def test_a_press_that_does_not_count_acknowledges_nothing() -> None:
    asked = story(SERVING).opened().reads(0.95).chooses("grow", allowed=False)
    assert wanted(asked) == {"serving": "trigger"}


@pytest.mark.parametrize(("command", "after"), [("lead", "acknowledge"), ("note", "trigger"), ("export", "trigger")])
def test_taking_the_lead_acknowledges(command: str, after: str) -> None:
    assert wanted(story(SERVING).opened().reads(0.95).says(command)) == {"serving": after}


def test_an_incident_that_becomes_urgent_pages_about_what_waits() -> None:
    asked = story(SERVING, severity="ticket").opened().reads(0.95)
    asked.run = asked.run.with_(severity="page")
    assert wanted(asked.says("note")) == {"serving": "trigger"}


def test_a_question_that_mentioned_nobody_mentions_people_once_it_is_urgent() -> None:
    asked = story(SERVING, severity="info").opened().reads(0.95)
    asked.happens(AlertChanged(event_id=asked.id(), alert=builders.alert(fingerprint="f2", severity="critical")))
    assert (mentions(asked), wanted(asked)) == (["S0SERVING"], {"serving": "trigger"})
    assert asked.run.posts[-1].data["text"] == "It is urgent now: What now?"
    posts = len(asked.run.posts)
    asked.happens(AlertChanged(event_id=asked.id(), alert=builders.alert(fingerprint="f3", severity="critical")))
    assert len(asked.run.posts) == posts
    assert asked.due("question:Q1:half").run.posts[-1].data["mentions"] == ["S0SERVING"]


def test_at_half_of_its_time_a_question_mentions_people_again() -> None:
    asked = story(SERVING).opened().reads(0.95).due("question:Q1:half")
    assert asked.run.posts[-1].data["mentions"] == ["S0SERVING"]
    assert "Waiting for an answer for" in asked.run.posts[-1].data["text"]


def test_an_answered_question_mentions_nobody_again() -> None:
    answered = story(SERVING).opened().reads(0.95)
    deadline = answered.run.deadlines["question:Q1:half"]
    answered.chooses("grow")
    assert "question:Q1:half" not in answered.run.deadlines
    answered.run = answered.run.with_(deadlines={"question:Q1:half": deadline})
    posts = len(answered.run.posts)
    assert len(answered.due("question:Q1:half").run.posts) == posts


def halted(*teams: Contact, **fields: Any) -> Story:
    return story(*teams, **fields).granted().says("halt").settles("halted")


def test_at_half_of_its_time_a_halted_change_mentions_who_is_on_call() -> None:
    asked = halted(SERVING, LEAD).due("change:halted:half")
    assert asked.run.posts[-1].data["mentions"] == ["S0SERVING"]
    assert (
        "`/incident resume INC-1` continues it, `/incident undo INC-1` gives it up"
        in (asked.run.posts[-1].data["text"])
    )


def test_a_change_that_stays_halted_calls_the_lead_and_again_every_day() -> None:
    called = halted(SERVING, LEAD).due("change:halted:unanswered")
    assert (mentions(called), wanted(called)["lead"]) == (["S0LEAD"], "trigger")
    posts = len(called.run.posts)
    assert len(called.due("change:halted:unanswered").run.posts) == posts + 1


def test_a_change_that_stays_halted_is_posted_where_nobody_is_configured() -> None:
    called = halted().due("change:halted:unanswered")
    assert "has been halted before" in called.run.posts[-1].data["text"]


def test_a_halt_that_ended_reminds_nobody() -> None:
    ended = halted(SERVING, LEAD).says("resume")
    assert not [name for name in ended.run.deadlines if name.startswith("change:")]


@pytest.mark.parametrize("of", ["question", "request"])
def test_after_an_expiry_the_lead_is_called(of: str) -> None:
    asked = story(SERVING, LEAD).opened().reads(0.95)
    if of == "request":
        asked.chooses("grow").planned().posted().due("request:R2:expiry")
    else:
        asked.due("question:Q1:expiry")
    called = next(post.data for post in asked.run.posts if "S0LEAD" in post.data.get("mentions", ()))
    if of == "request":
        [news] = called["news"]
        text = f"{news['text'].removesuffix('.')}: {news['title']}"
    else:
        text = called["text"]
    assert text.startswith("Nobody decided within" if of == "request" else "Nobody answered in time")
    assert asked.run.pages["lead"].text.endswith(text)


def test_an_expiry_after_an_approval_does_not_say_that_nobody_decided() -> None:
    asked = story(SERVING, LEAD)
    asked.rules = builders.four_eyes(asked.rules)
    asked.opened().reads(0.95).chooses("grow").planned().posted().presses("approve", user="ana")
    asked.due(f"request:{asked.request}:expiry")
    assert asked.run.posts[-1].data["news"][-1]["text"].startswith("Not enough people approved within")


def test_who_leads_is_mentioned_beside_the_team_on_call() -> None:
    led = story(SERVING).opened().reads(0.95).says("lead", user="dee", to="dee")
    led.due(f"question:{led.run.question}:half")
    assert led.run.posts[-1].data["mentions"] == ["dee", "S0SERVING"]
    led.chooses("grow").planned().posted()
    assert led.run.posts[-1].data["mentions"] == ["dee", "S0SERVING"]


def test_an_expiry_and_the_question_that_follows_are_one_message() -> None:
    asked = story(SERVING, LEAD).opened().reads(0.95).chooses("grow").planned().posted()
    before = len(asked.run.posts)
    asked.due("request:R2:expiry")
    [post] = asked.run.posts[before:]
    assert (post.kind, post.data["mentions"]) == ("question", ["S0LEAD", "S0SERVING"])
    assert [news["result"] for news in post.data["news"]] == ["expired"]
    assert any("Nobody decided within" in text for text in asked.texts("note")), "the timeline has it as before"


def test_a_question_that_parks_unanswered_calls_the_lead() -> None:
    asked = story(SERVING, LEAD).opened().reads(0.95).chooses("grow").planned().posted().due("request:R2:expiry")
    assert asked.run.open_question is not None
    ref = asked.run.question
    before = len(asked.run.posts)
    asked.due(f"question:{ref}:unanswered")
    assert asked.run.parked is not None
    assert asked.run.posts[before].data["mentions"] == ["S0LEAD"]


def test_without_a_lead_who_is_on_call_is_mentioned_again() -> None:
    asked = story(SERVING).opened().reads(0.95).due("question:Q1:expiry")
    assert any("Nobody answered in time" in post.data.get("text", "") for post in asked.run.posts)
    assert set(wanted(asked)) == {"serving"}


def test_a_parked_incident_pages_nobody() -> None:
    parked = story(LEAD).opened().reads(0.95).chooses("grow").planned().posted().due("request:R2:expiry")
    parked.due(f"question:{parked.run.question}:unanswered")
    parked.rules = story(SERVING).rules
    assert "serving" not in wanted(parked.says("note"))


def test_handing_over_to_a_team_calls_that_team() -> None:
    handed = story(SERVING, FACILITIES, text=HALL).opened().reads(0.95).due("question:Q1:expiry")
    question = handed.run.open_question
    assert question is not None
    assert (question.text, question.why) == ("This needs people (facilities): The hall is hot.", "")
    assert mentions(handed) == ["S0FAC"]
    assert wanted(handed)["facilities"] == "trigger"


def test_a_team_that_is_not_configured_is_named_and_the_lead_is_called() -> None:
    handed = story(SERVING, LEAD, text=HALL).opened().reads(0.95).due("question:Q1:expiry")
    question = handed.run.open_question
    assert question is not None
    assert question.why == "The settings name nobody for facilities, so lead is called instead."
    assert mentions(handed) == ["S0LEAD"]


def test_a_team_without_a_pager_is_called_by_people() -> None:
    by_phone = Contact(team="facilities", phone="+49 30 1234567")
    handed = story(SERVING, by_phone, text=HALL).opened().reads(0.95).due("question:Q1:expiry")
    question = handed.run.open_question
    assert question is not None
    assert question.why == "Call facilities yourself: +49 30 1234567."
    assert "facilities" not in wanted(handed)
    assert mentions(handed) == ["S0SERVING"], "somebody has to read that"


def test_a_lead_with_only_a_phone_is_called_by_who_is_on_call() -> None:
    asked = story(SERVING, Contact(team="lead", phone="+49 30 7654321")).opened().reads(0.95).due("question:Q1:expiry")
    note = next(post.data for post in asked.run.posts if "Nobody answered in time" in post.data.get("text", ""))
    assert note["text"].endswith("Call lead yourself: +49 30 7654321.")
    assert note["mentions"] == ["S0SERVING"]


def test_a_question_for_one_team_mentions_that_team() -> None:
    text = TEXT.replace("    ask: What now?\n", "    ask: What now?\n    by: platform\n")
    asked = story(SERVING, Contact(team="platform", mentions=("S0PLATFORM",)), text=text).opened().reads(0.95)
    assert mentions(asked) == ["S0PLATFORM"]
    assert mentions(story(SERVING, LEAD, text=text).opened().reads(0.95)) == ["S0SERVING"], "approvers answer it"


def test_at_half_of_its_time_a_request_mentions_who_is_on_call_again() -> None:
    asked = story(SERVING).opened().reads(0.95).chooses("grow").planned().posted().due("request:R2:half")
    reminder = asked.run.posts[-1].data
    assert (reminder["ping"], reminder["mentions"]) == (True, ["S0SERVING"])


def paged(of: Story, action: str = "trigger") -> Story:
    event = {"event_id": of.id(), "page": "serving", "action": action, "through": "PagerDuty", "key": "bot:INC-1"}
    of.happens(Paged.model_validate(event))
    return of


def failed(of: Story, reason: str = "PagerDuty answers HTTP 503: busy", *, lasting: bool = False) -> Story:
    of.happens(PageFailed(event_id=of.id(), page="serving", reason=reason, lasting=lasting))
    return of


def test_a_page_that_was_sent_is_on_the_timeline() -> None:
    sent = paged(story(SERVING).opened().reads(0.95))
    assert sent.run.pages["serving"].sent == "trigger"
    assert "paged serving through PagerDuty: INC-1 serving/llm: What now?" in sent.texts("note")


def test_a_failure_is_kept_with_its_beginning_until_the_pager_answers() -> None:
    failing = failed(story(SERVING, LEAD).opened().reads(0.95))
    since = failing.run.pages["serving"].failing_since
    assert failed(failing, "PagerDuty does not answer").run.pages["serving"].failing_since == since == failing.at - 10
    assert "lead" not in wanted(failing)
    assert paged(failing).run.pages["serving"].failing_since is None


def test_a_pager_that_refuses_for_good_calls_the_lead() -> None:
    refused = failed(story(SERVING, LEAD).opened().reads(0.95), "PagerDuty answers HTTP 400: bad key", lasting=True)
    assert wanted(refused)["lead"] == "trigger"
    assert refused.run.posts[-1].data["text"] == "serving could not be paged: PagerDuty answers HTTP 400: bad key"


def test_a_page_that_the_bot_could_not_send_calls_the_lead() -> None:
    asked = story(SERVING, LEAD).opened().reads(0.95)
    effect_id = asked.wanted(PageTeam).effect_id
    failed = EffectFailed(event_id=asked.id(), effect_id=effect_id, effect_kind="page_team", reason="InvalidURL: port")
    asked.happens(failed)
    assert (asked.run.pages["serving"].error, wanted(asked)["lead"]) == ("InvalidURL: port", "trigger")
    assert asked.run.posts[-1].data["mentions"] == ["S0LEAD"]


def test_a_team_that_could_not_be_paged_is_paged_again_when_it_is_called_again() -> None:
    asked = story(SERVING, LEAD).opened().reads(0.95).chooses("grow").planned().posted().due("request:R2:expiry")
    reason = "PagerDuty answers HTTP 400: bad key"
    asked.happens(PageFailed(event_id=asked.id(), page="lead", reason=reason, lasting=True))
    asked.due(f"question:{asked.run.question}:unanswered")
    assert asked.wanted(PageTeam).page == "lead"
    assert set(wanted(asked)) == {"serving", "lead"}, "under the same key"


def test_a_lead_who_has_answered_is_called_again_when_nobody_answers_later() -> None:
    expired = story(SERVING, LEAD).opened().reads(0.95).chooses("grow").planned().posted().due("request:R2:expiry")
    answered = expired.chooses("again").planned().posted()
    assert wanted(answered) == {"serving": "acknowledge", "lead": "acknowledge"}
    again = answered.due(f"request:{answered.request}:expiry")
    assert wanted(again) == {"serving": "acknowledge", "lead": "acknowledge", "lead/2": "trigger"}
    assert (again.run.pages["lead/2"].team, again.wanted(PageTeam).page) == ("lead", "lead/2")


def test_a_lead_who_is_being_paged_is_not_paged_twice() -> None:
    expired = story(SERVING, LEAD).opened().reads(0.95).chooses("grow").planned().posted().due("request:R2:expiry")
    expired.due(f"question:{expired.run.question}:unanswered")
    assert wanted(expired) == {"serving": "acknowledge", "lead": "trigger"}


def test_a_reopened_incident_pages_again() -> None:
    closed = story(SERVING).opened().reads(0.95).chooses("stop")
    reopened = closed.says("reopen").reads(0.95)
    assert wanted(reopened) == {"serving": "resolve", "serving/2": "trigger"}, "a receiver drops a key that it has seen"


def stranded(of: Story, event: Event) -> Story:
    decision = without_playbook(of.run, event.model_copy(update={"at": of.at}), "no such file", of.rules)
    of.run, of.last = decision.run, decision
    return of


def test_an_incident_whose_playbook_is_gone_calls_who_is_on_call_once() -> None:
    left = story(SERVING).opened()
    assert wanted(left) == {}
    for event_id in ("e1", "e2"):
        stranded(left, SignalsRead(event_id=event_id, effect_id="v1/read", readings={}))
    assert (wanted(left), mentions(left)) == ({"serving": "trigger"}, ["S0SERVING"])
    assert len([post for post in left.run.posts if "mentions" in post.data]) == 1


def test_without_its_playbook_a_lead_acknowledges_and_the_end_resolves() -> None:
    left = stranded(story(SERVING).opened(), SignalsRead(event_id="e1", effect_id="v1/read", readings={}))
    assert wanted(stranded(left, Commanded(event_id="e2", command="lead", user="ana"))) == {"serving": "acknowledge"}
    assert wanted(stranded(left, Commanded(event_id="e3", command="resolve", user="ana"))) == {"serving": "resolve"}


@pytest.mark.parametrize("is_open", [True, False])
def test_without_its_playbook_a_critical_alert_calls_people_again(*, is_open: bool) -> None:
    left = stranded(
        story(SERVING, severity="ticket").opened(), SignalsRead(event_id="e1", effect_id="v1/read", readings={})
    )
    if not is_open:
        stranded(left, Commanded(event_id="e2", command="resolve", user="ana"))
    assert wanted(left) == {}
    stranded(left, AlertChanged(event_id="e3", alert=builders.alert(fingerprint="f2", severity="critical")))
    assert (left.run.is_open, left.run.severity, wanted(left)) == (True, "page", {"serving": "trigger"})


@pytest.mark.parametrize("command", ["halt", "resume"])
def test_a_halt_of_everything_acknowledges_no_page(command: str) -> None:
    """It reaches incidents that nobody has looked at."""
    asked = story(SERVING, LEAD).opened()
    asked.happens(Commanded(event_id="halt-kept/ana/1", command="halt", user="ana", to=ALL))
    asked.reads(0.95)
    assert wanted(asked) == {"serving": "trigger"}
    asked.happens(Commanded(event_id="halt-kept/ana/3", command=command, user="ana", to=ALL))
    assert wanted(asked) == {"serving": "trigger"}


def test_the_bots_own_correction_of_a_halt_acknowledges_no_page() -> None:
    asked = story(SERVING, LEAD).opened().says("halt").reads(0.95)
    asked.happens(Commanded(event_id="halt-kept//5", command="resume", user=""))
    assert wanted(asked) == {"serving": "trigger"}


def test_nobody_is_called_while_the_person_who_took_it_waits() -> None:
    taken = story(SERVING, LEAD).applied().watched("unknown", detail="x").chooses("hand_over")
    posts = len(taken.run.posts)
    taken.due(f"question:{taken.run.question}:half").due(f"question:{taken.run.question}:unanswered")
    assert "lead" not in taken.run.pages
    assert len(taken.run.posts) == posts
    assert taken.run.parked is not None
    assert not taken.run.parked.unanswered


def test_an_incident_that_somebody_took_over_while_it_was_parked_counts_as_answered() -> None:
    taken = story(SERVING, LEAD).applied().watched("unknown", detail="x")
    taken.due(f"question:{taken.run.question}:unanswered").chooses("hand_over")
    assert taken.run.parked is not None
    assert not taken.run.parked.unanswered
