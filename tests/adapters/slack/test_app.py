"""Clicks and commands as a person makes them: stored before they are acknowledged, and answered helpfully."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import inspect
import json
import re
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import SignatureVerifier
from structlog.testing import capture_logs

from bot.adapters.slack.inbound.app import bolt_app
from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.command_table import NOTHING, SLASH_COMMANDS, works_when_closed
from bot.adapters.slack.inbound.commands import Commands
from bot.domain.approvals.grant import Press
from bot.domain.incidents.run import ActiveChange, Halt, InSlack, Offer, Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.flow.receive_input import OPEN_READ
from bot.sandbox.plain_http import async_http
from tests.adapters.slack.conftest import (
    CHANNEL,
    SECRET,
    Bench,
    Counter,
    behind,
    services_of,
    until,
    view_of,
    whispered,
)
from tests.adapters.slack.runs import BEGAN, ledger_entry, post, question, request, run, waiting
from tests.adapters.slack.test_playbook_commands import playbooks
from tests.builders import in_visit


async def pressed(
    counter: Counter, action_id: str, *, shown: Run | None = None, user: str = "U0ANA", **more: Any
) -> dict[str, Any]:
    """Show the run, and press that button in its newest message."""
    await counter.bench.messenger.show(shown or waiting())
    ts = [m for m in await counter.slack.messages() if "thread_ts" in m][-1]["ts"]
    return await counter.slack.do("press", user=user, channel=CHANNEL, ts=ts, action_id=action_id, **more)


def presses(counter: Counter) -> list[Press]:
    return [press for _, press in counter.inbound.presses.values()]


async def test_a_start_does_not_look_through_the_stack_for_a_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("Bolt looked through the stack, which takes a twentieth of the bot's start")

    monkeypatch.setattr(inspect, "stack", looked)
    services = services_of(bench)
    assert bolt_app(bench.client, services, behind(services, bench).homes).name == "SlackApp"


# --- presses ---------------------------------------------------------------------------------------------------------


async def test_an_approval_is_stored_with_everything_that_binds_it(counter: Counter) -> None:
    answer = await pressed(counter, "approve")
    assert answer["ok"], answer
    [(incident, press)] = counter.inbound.presses.values()
    assert incident == "INC-7"
    assert (press.action, press.about, press.user, press.user_name) == ("approve", "R3", "U0ANA", "ana")
    assert press.digest == request().plan.digest
    assert press.response_url
    assert press.message_ts


async def test_a_choice_is_stored_with_its_key(counter: Counter) -> None:
    asked = run(questions={"Q2": question()}, question="Q2", posts=(post("question", "question:Q2", "Q2"),))
    await pressed(counter, "choose:1", shown=asked)
    [press] = presses(counter)
    assert (press.action, press.about, press.value) == ("choose", "Q2", "scale")


async def test_a_press_by_anybody_is_stored_since_it_is_judged_later(counter: Counter) -> None:
    await pressed(counter, "approve", user="U0MO")
    assert [press.user for press in presses(counter)] == ["U0MO"]


async def test_a_refusal_asks_for_a_reason_and_decides_nothing_before(counter: Counter) -> None:
    assert (await pressed(counter, "refuse"))["ok"]
    view = await view_of(counter)
    assert presses(counter) == []
    values = {"field:reason": {"entry": "the batch run ends at 15:00"}}
    answer = await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values=values)
    assert answer["ok"], answer
    [press] = presses(counter)
    assert (press.action, press.about, press.reason) == ("refuse", "R3", "the batch run ends at 15:00")
    assert press.digest == request().plan.digest
    assert (press.channel, bool(press.response_url)) == (CHANNEL, True)


async def test_a_reason_may_be_left_out(counter: Counter) -> None:
    await pressed(counter, "refuse")
    view = await view_of(counter)
    assert (await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values={}))["ok"]
    assert [press.reason for press in presses(counter)] == [""]


@pytest.mark.parametrize("fault", ["away", "loses_answers"])
async def test_a_form_without_the_storages_answer_stays_open_and_may_be_sent_again(
    counter: Counter, fault: str
) -> None:
    await pressed(counter, "refuse")
    view = await view_of(counter)
    setattr(counter.inbound, fault, True)
    answer = await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values={})
    assert "may or may not have been recorded. Please send it again" in answer["errors"]["field:reason"]
    setattr(counter.inbound, fault, False)
    assert (await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values={}))["ok"]
    assert len(presses(counter)) == 1


async def test_a_form_that_is_sent_again_with_another_text_is_another_press(counter: Counter) -> None:
    """The first one may have been recorded although the form stayed open."""
    await pressed(counter, "refuse")
    view = await view_of(counter)
    counter.inbound.loses_answers = True
    first = {"field:reason": {"entry": "the batch ends at 15:00"}}
    answer = await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values=first)
    assert "Please send it again" in answer["errors"]["field:reason"]
    counter.inbound.loses_answers = False
    corrected = {"field:reason": {"entry": "the batch ends at 16:00"}}
    assert (await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values=corrected))["ok"]
    assert [press.reason for press in presses(counter)] == ["the batch ends at 15:00", "the batch ends at 16:00"]


async def test_a_form_that_slack_does_not_open_is_reported(counter: Counter) -> None:
    await counter.slack.faults({"method": "views.open", "kind": "500"})
    assert (await pressed(counter, "refuse"))["ok"]
    await whispered(counter, "could not be opened")


async def test_without_storage_the_presser_is_asked_to_press_again(counter: Counter) -> None:
    counter.inbound.away = True
    assert (await pressed(counter, "approve"))["ok"]
    await whispered(counter, "press again")
    assert presses(counter) == []


async def test_a_press_whose_answer_was_lost_is_not_called_undecided(counter: Counter) -> None:
    counter.inbound.loses_answers = True
    assert (await pressed(counter, "approve"))["ok"]
    assert [press.action for press in presses(counter)] == ["approve"]
    await whispered(counter, "may or may not have been recorded. Check the message, then press again")
    assert "Nothing was decided" not in str(await counter.slack.whispers("U0ANA"))


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param("halt INC-7 it burns", "sending it twice is harmless", id="harmless"),
        pytest.param("note INC-7 it burns", "sent twice, it counts twice", id="twice"),
        pytest.param("undo INC-7", "sent twice, it counts twice", id="another-one"),
    ],
)
async def test_a_command_whose_answer_was_lost_says_what_sending_it_again_would_do(
    counter: Counter, text: str, warning: str
) -> None:
    counter.inbound.runs["INC-7"] = run(ledger=(ledger_entry(),))
    counter.inbound.loses_answers = True
    answer = await counter.say(text)
    assert "may or may not have been recorded" in answer
    assert warning in answer
    assert len(counter.inbound.commands) == 1


async def test_a_storage_that_hangs_is_given_up_before_slack_gives_up_the_bot(counter: Counter) -> None:
    counter.inbound.hangs = True
    assert (await pressed(counter, "approve"))["ok"]
    await whispered(counter, "press again")
    assert "did not answer" in await counter.say("list")


async def test_a_press_for_an_unknown_incident_is_refused_with_the_reason(counter: Counter) -> None:
    counter.inbound.runs.clear()
    await pressed(counter, "approve")
    await whispered(counter, "INC-7 does not exist")


async def test_the_same_delivery_twice_is_one_press(counter: Counter) -> None:
    await pressed(counter, "approve")
    assert await deliver_again(counter) == 200
    assert len(presses(counter)) == 1


async def deliver_again(counter: Counter) -> int:
    """Send the bot the newest click once more, letter by letter as Slack would; its HTTP status."""
    payload = (await counter.slack.deliveries("block_actions"))[-1]["payload"]
    body = urlencode({"payload": json.dumps(payload)})
    timestamp = str(int(time.time()))
    signature = SignatureVerifier(SECRET).generate_signature(timestamp=timestamp, body=body)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": timestamp,
        "X-Slack-Signature": str(signature),
    }
    async with async_http() as http:
        return (await http.post(counter.url, content=body, headers=headers)).status_code


async def test_two_clicks_are_two_presses(counter: Counter) -> None:
    await pressed(counter, "approve")
    await pressed(counter, "approve")
    assert len({press.press_id for press in presses(counter)}) == 2


@pytest.mark.parametrize("action_id", ["approve", "refuse", "choose:0", "from_an_older_version"])
@pytest.mark.parametrize("value", ["not ours", '{"i":7}'])
async def test_an_old_button_is_answered_and_does_nothing(counter: Counter, action_id: str, value: str) -> None:
    button = {"type": "button", "text": {"type": "plain_text", "text": "x"}, "action_id": action_id, "value": value}
    message = await counter.bench.client.chat_postMessage(
        channel=CHANNEL, text="old", blocks=[{"type": "actions", "elements": [button]}]
    )
    answer = await counter.slack.do("press", user="U0ANA", channel=CHANNEL, ts=message["ts"], action_id=action_id)
    assert answer["ok"], answer
    await whispered(counter, "older message")
    assert presses(counter) == []


async def test_an_event_is_acknowledged_although_nothing_uses_it(counter: Counter) -> None:
    assert (await counter.slack.do("say", user="U0ANA", channel=CHANNEL, text="hello"))["ok"]


async def test_a_request_with_a_wrong_signature_is_refused(counter: Counter) -> None:
    async with async_http() as http:
        answer = await http.post(counter.url, json={"type": "event_callback"}, headers={"X-Slack-Signature": "v0=0"})
    assert answer.status_code == 401


async def test_the_app_never_asks_slack_who_it_is_before_it_stores(counter: Counter) -> None:
    await pressed(counter, "approve")
    assert await counter.slack.calls("auth.test") == []


# --- rubbish ---------------------------------------------------------------------------------------------------------

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
RUBBISH = [
    pytest.param(b"\xff\xfe\x00", FORM, id="no-text"),
    pytest.param(b"payload=%ff%fe", FORM, id="no-text-in-a-form"),
    pytest.param(b"payload=nothing", FORM, id="no-json"),
    pytest.param(b"payload=[1]", FORM, id="no-object"),
    pytest.param(b"[1, 2]", JSON, id="a-list"),
    pytest.param(b"{", JSON, id="half-an-object"),
    pytest.param(b"", JSON, id="nothing"),
    pytest.param(b"[" * 100_000, JSON, id="nested-too-deep"),
]


async def sent(counter: Counter, body: bytes, kind: str, stamp: bytes, signature: str) -> int:
    headers = {
        b"Content-Type": kind.encode(),
        b"X-Slack-Request-Timestamp": stamp,
        b"X-Slack-Signature": signature.encode(),
    }
    async with async_http() as http:
        return (await http.post(counter.url, content=body, headers=headers)).status_code


@pytest.mark.parametrize(("body", "kind"), RUBBISH)
@pytest.mark.parametrize("stamp", [b"", b"soon", b"1", b"-1", b"\xb2", b"9" * 5_000], ids=lambda stamp: str(stamp[:5]))
async def test_unsigned_rubbish_is_refused(counter: Counter, body: bytes, kind: str, stamp: bytes) -> None:
    assert await sent(counter, body, kind, stamp, "v0=0") == 401


@pytest.mark.parametrize(
    ("text", "why"),
    [("show", "There is no incident"), ("resolve", "There is no incident"), ("stats", "is not a number of days")],
)
async def test_a_number_of_thousands_of_digits_is_answered(counter: Counter, text: str, why: str) -> None:
    number = "9" * 5_000
    assert why in await counter.say(f"{text} {number}")
    assert why in await counter.say(f"{text} {number} x")


@pytest.mark.parametrize(("body", "kind"), RUBBISH)
async def test_signed_rubbish_is_not_what_slack_sends(counter: Counter, body: bytes, kind: str) -> None:
    stamp = str(int(time.time())).encode()
    signature = hmac.new(SECRET.encode(), b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
    assert await sent(counter, body, kind, stamp, f"v0={signature}") == 400


@pytest.mark.parametrize(
    ("age", "secret", "why"),
    [
        pytest.param(400, SECRET, r"differ by 4\d\d s: it is sent again, or the clock is wrong", id="long-ago"),
        pytest.param(-400, SECRET, r"differ by \d{3} s", id="ahead"),
        pytest.param(0, "rotated", "not signed with the signing secret of the settings", id="other-secret"),
    ],
)
async def test_the_log_says_why_a_signature_does_not_count(counter: Counter, age: int, secret: str, why: str) -> None:
    body, stamp = b"payload={}", str(int(time.time()) - age).encode()
    signature = hmac.new(secret.encode(), b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
    with capture_logs() as logs:
        assert await sent(counter, body, FORM, stamp, f"v0={signature}") == 401
    [refused] = [entry for entry in logs if entry["event"] == "slack.refused"]
    assert re.search(why, refused["reason"])


async def test_a_note_may_contain_the_word_payload(counter: Counter) -> None:
    assert "Noted" in await counter.say("note INC-7 the payload of the requests grew")
    [(_, note)] = counter.inbound.commands.values()
    assert note.text == "the payload of the requests grew"


# --- commands --------------------------------------------------------------------------------------------------------


def many(counter: Counter) -> None:
    counter.inbound.runs["INC-8"] = run(incident_id="INC-8", title="Another")


async def test_help_names_every_command(counter: Counter) -> None:
    answer = await counter.say("help")
    assert "• `/incident` – " in answer
    assert [word for word in SLASH_COMMANDS if word != NOTHING and f"`{word}`" not in answer] == []
    assert "• `/incident halt [INC|all] [WHY]` – stop sending changes until it is resumed" in answer


async def test_every_command_that_help_names_is_carried_out(bench: Bench) -> None:
    assert Commands(services_of(bench))._handlers.keys() == SLASH_COMMANDS.keys()


async def test_help_fits_on_a_phone(counter: Counter) -> None:
    """About 45 characters to a line and 30 lines to a screen."""
    answer = await counter.say("help")
    assert sum(-(-len(line) // 45) for line in answer.splitlines()) <= 30


async def test_incident_alone_shows_what_waits_and_what_to_do(counter: Counter) -> None:
    many(counter)
    counter.inbound.runs["INC-7"] = waiting()
    answer = await counter.say("")
    assert "*2 incidents are open; 1 waits for people.*" in answer
    assert "INC-7" in answer
    assert "INC-8" not in answer
    assert answer.count("• `/incident ") == 6
    counter.inbound.runs.clear()
    assert "No incident is open." in await counter.say("")


async def test_of_many_open_incidents_the_answer_counts_those_that_were_read(counter: Counter) -> None:
    names = [f"INC-{number}" for number in range(1, OPEN_READ + 11)]
    counter.inbound.runs = {each: run(incident_id=each) for each in names}
    assert f"*60 incidents are open; of the newest {OPEN_READ}, nothing waits for people.*" in await counter.say("")


async def test_a_change_that_was_halted_half_way_waits_for_people(counter: Counter) -> None:
    halted = waiting(status="granted").with_(halt=Halt(by="U0BEN"))
    assert halted.change is not None
    counter.inbound.runs["INC-7"] = halted.with_(change=halted.change.model_copy(update={"begun": True}))
    answer = await counter.say("")
    assert "*1 incident is open; 1 waits for people.*" in answer
    assert "• `/incident resume INC-7`" in answer
    assert answer.count("⛔ Halted") == 1


async def test_help_explains_one_command(counter: Counter) -> None:
    answer = await counter.say("help halt")
    assert "`/incident halt [INC|all] [WHY]`: stop sending changes until it is resumed." in answer
    assert "`7` stands for `INC-7`" in answer
    assert "Did you mean" in await counter.say("help hlat")


@pytest.mark.parametrize("text", ["show 7", "show inc-7", "show INC-7", "timeline 7", "lead 7"])
async def test_an_incident_may_be_named_by_its_number(counter: Counter, text: str) -> None:
    assert "There is no incident" not in await counter.say(text)


async def test_a_number_at_the_beginning_of_a_text_is_part_of_the_text(counter: Counter) -> None:
    await counter.say("note 2 replicas are back")
    ((_, event),) = counter.inbound.commands.values()
    assert event.text == "2 replicas are back"


@pytest.mark.parametrize("word", ["halt", "resolve", "note", "followup", "status"])
async def test_the_number_of_an_open_incident_before_a_reason_names_it(counter: Counter, word: str) -> None:
    many(counter)
    await counter.say(f"{word} 7 we repair it")
    ((incident_id, event),) = counter.inbound.commands.values()
    assert (incident_id, event.text) == ("INC-7", "we repair it")


async def test_a_number_that_names_no_open_incident_stays_in_the_reason_of_a_halt(counter: Counter) -> None:
    await counter.say("halt 2 replicas are down")
    ((incident_id, event),) = counter.inbound.commands.values()
    assert (incident_id, event.text) == ("INC-7", "2 replicas are down")


async def test_a_resolution_never_closes_another_incident_than_the_number_names(counter: Counter) -> None:
    counter.inbound.runs["INC-1"] = run(incident_id="INC-1", closed_at=BEGAN, ending="fixed")
    assert "INC-1 is closed" in await counter.say("resolve 1 the load test has ended")
    assert "There is no incident `INC-77`" in await counter.say("resolve 77 stop this")
    assert counter.inbound.commands == {}


async def test_where_nothing_is_open_a_number_says_that_its_incident_is_closed(counter: Counter) -> None:
    counter.inbound.runs = {"INC-1": run(incident_id="INC-1", closed_at=BEGAN, ending="fixed")}
    assert "INC-1 is closed" in await counter.say("halt 1 we repair it")
    assert counter.inbound.commands == {}


async def test_with_several_incidents_open_in_one_channel_a_command_names_one(counter: Counter) -> None:
    """Requests of both stand in the channel of their cards, which belongs to neither."""
    for name in ("INC-7", "INC-8"):
        places = {"card": (CHANNEL, "1.1"), "request:R1": (CHANNEL, "1.2")}
        counter.inbound.runs[name] = run(incident_id=name, in_slack=InSlack(places=places))
    assert "2 incidents are open; name one" in await counter.say("resolve all good")
    for name in ("INC-7", "INC-8"):
        counter.inbound.runs[name] = run(incident_id=name, in_slack=InSlack(places={"request:R1": (CHANNEL, "1.2")}))
    assert "2 incidents are open; name one" in await counter.say("resolve all good")
    assert counter.inbound.commands == {}


async def test_what_a_halt_and_a_resolution_mean_while_a_change_is_applied(counter: Counter) -> None:
    change = ActiveChange(state="cap", verb="set_flags", begun=True)
    counter.inbound.runs["INC-7"] = run(change=change)
    assert "A rollout that has begun goes on in Kubernetes." in await counter.say("halt INC-7")
    counter.inbound.commands.clear()
    assert "Not closed: a change of INC-7 is being applied." in await counter.say("resolve INC-7 it is over")
    counter.inbound.runs["INC-7"] = run(change=change, halt=Halt(by="U0ANA"))
    assert (await counter.say("resolve INC-7 it is over")).endswith("once its outcome is in the thread.")
    assert counter.inbound.commands == {}
    counter.inbound.runs["INC-7"] = run(change=change.model_copy(update={"halted": True}), halt=Halt(by="U0ANA"))
    assert "is being closed by hand" in await counter.say("resolve INC-7 it is over")


async def test_a_resolution_says_that_people_are_asked_first_about_what_was_changed(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = run(ledger=(ledger_entry(verb="canary"),))
    assert "closes once somebody answers the question in its thread" in await counter.say("resolve INC-7 it is over")
    assert list(counter.inbound.commands) != []


@pytest.mark.parametrize(("text", "expected"), [("stats", "The last 7 days."), ("stats 30", "The last 30 days.")])
async def test_statistics_of_some_days(counter: Counter, text: str, expected: str) -> None:
    assert expected in await counter.say(text)
    assert "is not a number of days" in await counter.say("stats soon")


async def test_a_follow_up_is_stored_as_it_was_typed(counter: Counter) -> None:
    assert "will list it" in await counter.say("followup INC-7 raise the limit in git")
    ((_, event),) = counter.inbound.commands.values()
    assert (event.command, event.text) == ("followup", "raise the limit in git")
    assert "Write what is to be done" in await counter.say("followup INC-7")


async def test_a_mistyped_command_gets_the_one_that_was_meant(counter: Counter) -> None:
    assert "Did you mean `/incident timeline [INC]`?" in await counter.say("timelime INC-7")
    assert "Did you mean `/incident resolve" in await counter.say("close INC-7"), "a word of other bots"
    assert "/incident help" in await counter.say("xyzzy <!channel>")


async def test_a_mistyped_incident_gets_the_one_that_was_meant(counter: Counter) -> None:
    answer = await counter.say("show INC-77")
    assert "no incident `INC-77`" in answer
    assert "`INC-7`?" in answer


async def test_the_list_is_one_line_an_incident_and_what_it_waits_for(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = waiting()
    many(counter)
    answer = await counter.say("list")
    assert "2 open" in answer
    assert "Needs approval" in answer
    counter.inbound.runs.clear()
    assert (await counter.say("list")).startswith("No incident is open.")
    counter.inbound.halter = "U0LEA"
    assert "*Everything is halted* by <@U0LEA>" in await counter.say("list")


async def test_who_looks_at_an_incident_gets_its_waiting_card(bench: Bench) -> None:
    wanted: list[str] = []

    async def want(incident_id: str) -> None:
        wanted.append(incident_id)

    commands = Commands(dataclasses.replace(services_of(bench), want_card=want))
    await commands.answer(Command.read("show INC-7", user="U0MO", user_name="mo", trigger_id="t1"))
    assert wanted == ["INC-7"]


async def test_show_is_the_card_for_one_person(counter: Counter) -> None:
    assert "serving/llm" in str(
        await counter.slack.do("command", user="U0MO", channel=CHANNEL, command="/incident", text="show")
    )
    assert "INC-7" in await counter.say("show inc-7")


async def test_the_only_open_incident_is_left_to_the_newer_version_that_stored_it(counter: Counter) -> None:
    counter.inbound.newer = frozenset({"INC-7"})
    assert "the only open incident was stored by a newer version of the bot" in await counter.say("halt")
    assert counter.inbound.commands == {}


async def test_the_only_open_incident_need_not_be_named(counter: Counter) -> None:
    await counter.say("note it began with the deploy")
    [(incident, note)] = counter.inbound.commands.values()
    assert (incident, note.command, note.text, note.user) == ("INC-7", "note", "it began with the deploy", "U0ANA")


async def test_with_several_open_one_must_be_named(counter: Counter) -> None:
    many(counter)
    answer = await counter.say("note something")
    assert "`INC-7`" in answer
    assert "`INC-8`" in answer
    await counter.say("note INC-8 something")
    assert [incident for incident, _ in counter.inbound.commands.values()] == ["INC-8"]


async def test_with_none_open_the_answer_says_so(counter: Counter) -> None:
    counter.inbound.runs.clear()
    assert "No incident is open" in await counter.say("show")


async def test_a_note_needs_words(counter: Counter) -> None:
    assert "needs text" in await counter.say("note INC-7")


async def test_a_note_is_stored_as_it_was_typed(counter: Counter) -> None:
    await counter.say("note INC-7 a &lt;b&gt; &amp; c")
    [(_, note)] = counter.inbound.commands.values()
    assert note.text == "a <b> & c"


@pytest.mark.parametrize("word", ["show", "timeline", "resume", "reset", "undo"])
async def test_a_word_that_takes_nothing_more_refuses_what_is_no_incident(counter: Counter, word: str) -> None:
    answer = await counter.say(f"{word} INC7")
    assert f"`INC7` is not an incident such as INC-7: `/incident {word} [INC" in answer
    answer = await counter.say(f"{word} INC-7 go on")
    assert f"`/incident {word} INC-7` takes no further words: leave out `go on`." in answer
    assert counter.inbound.commands == {}


async def test_a_halt_stops_whatever_follows_it_and_keeps_that_as_the_reason(counter: Counter) -> None:
    assert "INC-7 is halted" in await counter.say("halt it gets worse")
    assert [c.text for _, c in counter.inbound.commands.values()] == ["it gets worse"]
    assert "Everything is halted" in await counter.say("halt ALL of it, now")
    assert counter.inbound.halter == "U0ANA"


async def test_one_incident_does_not_go_on_while_everything_is_halted(counter: Counter) -> None:
    counter.inbound.halter = "U0LEA"
    assert "<@U0LEA> halted everything, and `/incident resume all`" in await counter.say("resume INC-7")
    assert counter.inbound.commands == {}
    counter.inbound.halter = ""
    assert "INC-7 was not halted" in await counter.say("resume INC-7")
    counter.inbound.runs["INC-7"] = run(halt=Halt(by="U0BEN"))
    assert "INC-7 is resumed" in await counter.say("resume INC-7")
    approved = request(decided_by="U0ANA")
    change = ActiveChange(state="cap", verb="set_flags", request_id="R3", halted=True)
    counter.inbound.runs["INC-7"] = run(halt=Halt(by="U0BEN"), change=change, requests={"R3": approved})
    assert "What was approved goes on: Cap llm at 6 sequences." in await counter.say("resume INC-7")
    assert "There was no global halt" in await counter.say("resume all")


async def test_an_undo_is_not_promised_while_a_change_is_applied(counter: Counter) -> None:
    under_way = ActiveChange(state="grow", verb="scale", request_id="R1", begun=True)
    counter.inbound.runs["INC-7"] = run(ledger=(ledger_entry(),), change=under_way)
    assert "`/incident halt INC-7` first" in await counter.say("undo")
    assert counter.inbound.commands == {}
    counter.inbound.runs["INC-7"] = run(ledger=(ledger_entry(),), change=under_way, halt=Halt(by="U0BEN"))
    assert "is being planned" in await counter.say("undo")


async def test_an_undo_with_nothing_to_take_back_promises_none(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = waiting()
    assert "No change by the bot in INC-7 is left" in await counter.say("undo")
    assert counter.inbound.commands == {}


async def test_an_undo_that_waits_for_approval_is_not_promised_again(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = in_visit(waiting().with_(ledger=(ledger_entry(),)), machine_state="(undo)/approval")
    assert "An undo waits for approval already, in the thread of INC-7." in await counter.say("undo")
    assert counter.inbound.commands == {}


async def test_a_playbook_that_is_not_offered_is_refused_with_those_that_are(counter: Counter) -> None:
    assert "No alert of INC-7 matches another playbook." in await counter.say("divert")
    offers = {"gpu-fault": Offer(playbook="gpu-fault", title="A GPU is faulty", priority=9, digest="d")}
    counter.inbound.runs["INC-7"] = waiting().model_copy(update={"offers": offers})
    assert "Name the playbook: `/incident divert INC-7 PLAYBOOK`. Offered: `gpu-fault`." in await counter.say("divert")
    assert "matches `slo`. Offered: `gpu-fault`." in await counter.say("divert slo")


@pytest.mark.parametrize("word", ["halt", "resume", "reset", "undo", "resolve"])
async def test_operating_is_stored_for_those_who_may(counter: Counter, word: str) -> None:
    counter.inbound.runs["INC-7"] = run(ledger=(ledger_entry(),))
    assert "INC-7" in await counter.say(f"{word} INC-7")
    assert [(command.command, command.user) for _, command in counter.inbound.commands.values()] == [(word, "U0ANA")]


@pytest.mark.parametrize("text", ["halt", "resume", "reset", "undo", "resolve", "halt all", "resume all"])
async def test_operating_is_refused_with_the_reason_to_those_who_may_not(counter: Counter, text: str) -> None:
    counter.inbound.halter = "before"
    assert "Not done: you are not in @serving-oncall" in await counter.say(text, user="U0MO")
    assert counter.inbound.commands == {}
    assert counter.inbound.halter == "before"


async def test_everything_is_halted_and_resumed_at_once(counter: Counter) -> None:
    many(counter)
    assert "halted" in await counter.say("halt all")
    assert counter.inbound.halter == "U0ANA"
    await counter.say("resume all")
    assert counter.inbound.halter == ""


async def test_a_halt_of_all_keeps_its_reason(counter: Counter) -> None:
    await counter.say("halt all the rack is on fire")
    assert (counter.inbound.halter, counter.inbound.halt_reason) == ("U0ANA", "the rack is on fire")


async def test_the_channel_of_all_incidents_learns_of_a_global_halt_and_of_its_end(counter: Counter) -> None:
    async def is_posted(words: str) -> bool:
        return words in str(await counter.slack.page())

    await counter.say("halt all the <rack> burns")
    await until(lambda: is_posted("by <@U0ANA>: the &lt;rack&gt; burns."), "the halt is in the channel")
    await counter.say("resume all")
    await until(lambda: is_posted("The global halt is lifted by"), "its end is in the channel")


async def test_the_card_of_a_closed_incident_offers_to_resume_nothing(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = run(halt=Halt(by="U0ANA"), closed_at=BEGAN, ending="fixed")
    assert "Halted" not in await counter.say("show INC-7")


async def test_only_what_somebody_may_use_is_suggested(counter: Counter) -> None:
    assert "/incident halt all WHY" in await counter.say("")
    answer = await counter.say("", user="U0MO")
    assert "/incident note INC-7 TEXT" in answer
    assert "/incident lead" not in answer
    assert "/incident halt" not in answer


async def test_the_list_says_which_incident_is_halted(counter: Counter) -> None:
    counter.inbound.runs = {"INC-7": run(halt=Halt(by="U0ANA")), "INC-8": run(incident_id="INC-8")}
    answer = await counter.say("list")
    halted = [each for each in answer.split("INC-") if "⛔ Halted" in each]
    assert len(halted) == 1
    assert halted[0].startswith("7")


async def test_the_list_says_how_everything_is_halted_and_that_it_is(counter: Counter) -> None:
    assert "/incident halt all" in await counter.say("list")
    counter.inbound.halter, counter.inbound.halt_reason = "U0ANA", "the rack <burns>, PASSWORD=hunter2"
    answer = await counter.say("list")
    assert "Everything is halted* by <@U0ANA>: the rack &lt;burns&gt;, PASSWORD=(masked). No change" in answer


async def test_of_thousands_of_incidents_the_list_names_the_newest_of_the_most_urgent(counter: Counter) -> None:
    counter.inbound.runs = {
        f"INC-{number}": run(incident_id=f"INC-{number}", severity="page" if number == 60 else "ticket")
        for number in range(1, 101)
    }
    answer = await counter.say("list")
    assert "100 open" in answer
    assert "and 80 more" in answer
    assert [answer.find(f"*{name}*") >= 0 for name in ("INC-60", "INC-100", "INC-1")] == [True, True, False]
    assert answer.index("*INC-60*") < answer.index("*INC-100*") < answer.index("*INC-99*")
    assert "100 incidents are open" in await counter.say("timeline")


WORKS_ON_AN_OPEN_ONE = {
    "halt": "halt INC-7",
    "resume": "resume INC-7",
    "reset": "reset INC-7",
    "undo": "undo INC-7",
    "resolve": "resolve INC-7",
    "divert": "divert INC-7 gpu-fault",
    "lead": "lead INC-7",
    "status": "status INC-7 all is well",
    "handover": "handover INC-7 <@U0BEN>",
    "skip": "skip INC-7 over why",
    "silence": "silence INC-7 30m why",
}


def test_every_word_that_does_nothing_to_a_closed_incident_is_tried_on_one() -> None:
    assert {name for name in SLASH_COMMANDS if not works_when_closed(name)} == set(WORKS_ON_AN_OPEN_ONE)


@pytest.mark.parametrize("text", WORKS_ON_AN_OPEN_ONE.values(), ids=str)
async def test_a_word_that_does_nothing_to_a_closed_incident_says_so_and_what_can_be_done(
    counter: Counter, text: str
) -> None:
    playbooks(counter)
    counter.inbound.runs["INC-7"] = counter.inbound.runs["INC-7"].with_(closed_at=BEGAN, ending="fixed")
    answer = await counter.say(text)
    assert "INC-7 is closed (verified without a change by the bot)" in answer
    assert "/incident reopen INC-7 WHY" in answer
    assert counter.inbound.commands == {}


@pytest.mark.parametrize(
    "text", ["note INC-7 what we saw", "followup INC-7 later", "export INC-7", "timeline INC-7", "show INC-7"]
)
async def test_what_makes_sense_of_a_closed_incident_is_done(counter: Counter, text: str) -> None:
    counter.inbound.runs["INC-7"] = run(closed_at=BEGAN, ending="fixed")
    assert "Not done" not in await counter.say(text)


@pytest.mark.parametrize(
    "text",
    [
        "timeline",
        "note hello",
        "export",
        "graph",
        "settings",
        "playbooks",
        "unmatched",
        "silence 30m why",
        "halt",
        "open",
    ],
)
async def test_a_guest_reads_nothing_and_writes_nothing(counter: Counter, text: str) -> None:
    playbooks(counter)
    counter.people.guests = frozenset({"U0GUE"})
    assert "Not done" in await counter.say(text, user="U0GUE")
    assert counter.inbound.commands == {}
    assert counter.inbound.exports == []


@pytest.mark.parametrize("text", ["help", "list", "show"])
async def test_what_the_channel_shows_anyway_is_readable_without_asking_slack(counter: Counter, text: str) -> None:
    counter.people.guests = frozenset({"U0GUE"})
    assert "Not done" not in await counter.say(text, user="U0GUE")


async def test_a_resolution_carries_its_reason(counter: Counter) -> None:
    await counter.say("resolve false alarm, the dashboard was wrong")
    assert [c.text for _, c in counter.inbound.commands.values()] == ["false alarm, the dashboard was wrong"]


async def test_the_timeline_shows_its_last_entries_and_says_how_many_came_before(counter: Counter) -> None:
    entries = [Entry(kind="note", at=BEGAN + n, text=f"entry {n} <!channel>", who="U0MO") for n in range(25)]
    counter.inbound.entries = chain(entries, head=GENESIS, length=0)
    answer = await counter.say("timeline")
    assert "5 more, with every reading" in answer
    assert "entry 24" in answer
    assert "entry 4 " not in answer
    assert "<!channel>" not in answer


async def test_the_timeline_leaves_out_what_the_bot_read_and_went_through(counter: Counter) -> None:
    """People look for what was found, decided and changed."""
    read = Entry(kind="read", at=BEGAN, text="6 of 6 signals read")
    expression = "(thrash > settings.thrash_ratio || stall) (thrash = 2.25)"
    taken = Entry(kind="entered", at=BEGAN, text=f"Is anyone else changing it? — {expression}", data={"clause": 0})
    by_hand = Entry(kind="entered", at=BEGAN, text="Hand over — Ana chose it instead")
    decided = Entry(kind="decided", at=BEGAN, text="R2 approved", who="U0ANA")
    counter.inbound.entries = chain([read, taken, by_hand, decided], head=GENESIS, length=0)
    answer = await counter.say("timeline")
    assert "signals read" not in answer
    assert "Is anyone else" not in answer
    assert "2 more, with every reading" in answer
    assert "Ana chose it instead" in answer
    assert "R2 approved" in answer


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("export", "md"), ("export html", "html"), ("export INC-7 json", "json"), ("export JSON", "json")],
)
async def test_an_export_is_owed_in_the_wanted_format(counter: Counter, text: str, wanted: str) -> None:
    assert wanted in await counter.say(text)
    assert counter.inbound.exports == [("INC-7", wanted, "U0ANA")]


async def test_an_unknown_format_is_answered_with_those_there_are(counter: Counter) -> None:
    assert "`json`" in await counter.say("export INC-7 pdf")
    assert counter.inbound.exports == []


async def test_unmatched_alerts_are_named_with_their_reasons(counter: Counter) -> None:
    assert "Every alert" in await counter.say("unmatched")
    labels = {"alertname": "DiskFull"}
    alert = Alert(fingerprint="f", status="firing", starts_at=datetime.fromtimestamp(BEGAN, UTC), labels=labels)
    counter.inbound.alerts = [(alert, "no playbook opens on it")]
    assert "`DiskFull` no playbook opens on it" in await counter.say("unmatched")
    other = (alert.model_copy(update={"labels": {"alertname": "NodeDown"}}), "no playbook opens on it")
    counter.inbound.alerts = [*counter.inbound.alerts * 150, other]
    answer = await counter.say("unmatched")
    assert "`DiskFull` (150 times) no playbook opens on it" in answer
    assert "`NodeDown` no playbook opens on it" in answer


@pytest.mark.parametrize("text", ["list", "note INC-7 x", "halt all"])
async def test_without_storage_a_command_says_that_it_is_not_known(counter: Counter, text: str) -> None:
    counter.inbound.away = True
    assert "did not answer" in await counter.say(text)
