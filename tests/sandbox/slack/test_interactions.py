"""Presses, modals, commands, shortcuts and events, answered by the real slack-bolt over signed HTTP."""

from typing import Any

import pytest
from slack_sdk.errors import SlackApiError

from bot.sandbox.slack.bot_link import signature
from bot.sandbox.slack.team import Settings
from tests.sandbox.slack.fake_bot import SECRET, FakeBot, edit_modal, plain
from tests.sandbox.slack.stand_in import StandIn, served, stand_in, until

Json = dict[str, Any]


def button(action_id: str, value: str = "R1") -> Json:
    return {"type": "button", "text": plain(action_id), "action_id": action_id, "value": value}


def actions(*elements: Json) -> Json:
    return {"type": "actions", "block_id": "request", "elements": list(elements)}


PICK = {
    "type": "static_select",
    "action_id": "pick",
    "options": [{"text": plain("One"), "value": "1"}, {"text": plain("Two"), "value": "2"}],
}


async def press(slack: StandIn, ts: str, action_id: str, **more: object) -> Json:
    return await slack.act("press", user="U0ANA", channel="C0INC", ts=ts, action_id=action_id, **more)


def shown_view(slack: StandIn, user: str = "U0ANA") -> Json:
    return slack.team.views.stacks[user][-1]


def test_the_signature_is_the_one_in_slacks_documentation() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    assert signature("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", body) == (
        "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    )


async def test_a_press_reaches_the_bot_with_the_message_and_the_person(slack_with_bot: StandIn, bot: FakeBot) -> None:
    ts = await slack_with_bot.post(actions(button("approve")), metadata={"event_type": "k", "event_payload": {}})
    answer = await press(slack_with_bot, ts, "approve")
    assert answer["ok"], answer
    (body,) = bot.received
    assert (body["type"], body["user"]["id"], body["team"]["id"]) == ("block_actions", "U0ANA", "T0SANDBOX")
    assert (body["container"]["message_ts"], body["message"]["ts"]) == (ts, ts)
    assert body["message"]["metadata"]["event_type"] == "k"
    (action,) = body["actions"]
    assert (action["action_id"], action["block_id"], action["value"]) == ("approve", "request", "R1")


async def test_the_bot_answers_a_press_by_response_url(slack_with_bot: StandIn) -> None:
    ts = await slack_with_bot.post(actions(button("approve")))
    pressed = await press(slack_with_bot, ts, "approve")

    async def has_replied() -> bool:
        return bool((await slack_with_bot.read(f"interactions/{pressed['id']}"))["posts"])

    await until(has_replied, "the bot used the response_url")
    card, whisper = await slack_with_bot.read("messages", user="U0ANA")
    assert card["text"] == "granted"
    assert (whisper["text"], whisper["recipient"]) == ("Thank you, your press counts.", "U0ANA")


async def test_a_button_that_is_gone_cannot_be_pressed_by_mistake(slack_with_bot: StandIn, bot: FakeBot) -> None:
    ts = await slack_with_bot.post(actions(button("edit")))
    answer = await press(slack_with_bot, ts, "approve")
    assert answer["ok"] is False
    assert answer["choices"] == [{"block_id": "request", "action_id": "edit", "value": "R1"}]
    assert bot.received == []


async def test_a_stale_press_carries_the_message_as_it_was(slack_with_bot: StandIn, bot: FakeBot) -> None:
    ts = await slack_with_bot.post(actions(button("approve", "old")))
    await slack_with_bot.client.chat_update(
        channel="C0INC", ts=ts, text="x", blocks=[actions(button("approve", "new"))]
    )
    await press(slack_with_bot, ts, "approve", value="old", stale=True)
    assert bot.received[0]["actions"][0]["value"] == "old"


async def test_the_value_distinguishes_buttons_of_one_action(slack_with_bot: StandIn, bot: FakeBot) -> None:
    blocks = [{**actions(button("approve", value)), "block_id": value} for value in ("R1", "R2")]
    ts = await slack_with_bot.post(*blocks)
    await press(slack_with_bot, ts, "approve", value="R2")
    assert bot.received[0]["actions"][0]["block_id"] == "R2"


async def test_a_choice_comes_with_its_option_and_in_the_state(slack_with_bot: StandIn, bot: FakeBot) -> None:
    ts = await slack_with_bot.post(actions(PICK))
    await press(slack_with_bot, ts, "pick", value="2")
    (body,) = bot.received
    assert body["actions"][0]["selected_option"]["text"]["text"] == "Two"
    assert body["state"]["values"]["request"]["pick"]["selected_option"]["value"] == "2"


async def test_a_press_on_an_ephemeral_message_can_delete_it(slack_with_bot: StandIn, bot: FakeBot) -> None:
    answer = await slack_with_bot.client.chat_postEphemeral(
        channel="C0INC", user="U0ANA", text="note", blocks=[actions(button("close_note"))]
    )
    await press(slack_with_bot, answer["message_ts"], "close_note")
    assert bot.received[0]["container"]["is_ephemeral"] is True
    assert "message" not in bot.received[0]

    async def is_gone() -> bool:
        return not await slack_with_bot.read("messages", user="U0ANA")

    await until(is_gone, "the bot deleted the ephemeral message")


async def test_a_bot_that_is_away_is_shown_to_the_person(slack: StandIn) -> None:
    ts = await slack.post(actions(button("approve")))
    answer = await press(slack, ts, "approve")
    assert (answer["error"], answer["shown"][:26]) == ("dispatch_failed", "This app is not reachable.")


async def test_an_unhandled_press_is_an_error_and_is_not_sent_again(slack_with_bot: StandIn) -> None:
    ts = await slack_with_bot.post(actions(button("unknown")))
    answer = await press(slack_with_bot, ts, "unknown")
    assert (answer["error"], answer["status"]) == ("dispatch_failed", 404)
    assert len(await slack_with_bot.read("deliveries")) == 1


async def test_a_bot_that_takes_too_long_has_not_answered(bot: FakeBot) -> None:
    bot.is_silent = True
    async with served(bot.app) as bot_url, stand_in(Settings(bot_url, SECRET, answer_seconds=0.05)) as slack:
        ts = await slack.post(actions(button("approve")))
        answer = await press(slack, ts, "approve")
        command = await slack.act("command", user="U0ANA", channel="C0INC", command="/incident", text="list")
    assert (answer["error"], answer["status"]) == ("operation_timeout", None)
    assert command["shown"] == "/incident failed with the error “operation_timeout”."


# -- modals -----------------------------------------------------------------------------


@pytest.fixture
async def opened(slack_with_bot: StandIn, bot: FakeBot) -> StandIn:
    """Ana has pressed Edit and sees the modal."""
    ts = await slack_with_bot.post(actions(button("edit")))
    await press(slack_with_bot, ts, "edit")

    async def is_open() -> bool:
        return bool(slack_with_bot.team.views.stacks.get("U0ANA"))

    await until(is_open, "the bot opened its modal")
    bot.received.clear()
    return slack_with_bot


async def submit(slack: StandIn, reason: str, **more: object) -> Json:
    values = {"reason": {"text": reason}, **more}
    return await slack.act("submit", user="U0ANA", view_id=shown_view(slack)["id"], values=values)


async def test_a_submission_carries_every_value_and_closes_the_modal(opened: StandIn, bot: FakeBot) -> None:
    answer = await submit(opened, "fewer sequences", amount={"number": 32})
    assert answer["ok"], answer
    (body,) = bot.received
    values = body["view"]["state"]["values"]
    assert values["reason"]["text"] == {"type": "plain_text_input", "value": "fewer sequences"}
    assert values["amount"]["number"]["value"] == "32"
    assert body["view"]["private_metadata"] == "INC-1"
    assert opened.team.views.stacks["U0ANA"] == []


async def test_a_value_that_nobody_touched_is_the_initial_one(opened: StandIn, bot: FakeBot) -> None:
    await submit(opened, "as it is")
    assert bot.received[0]["view"]["state"]["values"]["amount"]["number"]["value"] == "48"


async def test_slack_itself_refuses_what_the_modal_forbids(opened: StandIn, bot: FakeBot) -> None:
    empty = await submit(opened, "")
    too_many = await submit(opened, "more", amount={"number": 300})
    assert empty["errors"] == {"reason": "Please complete this required field."}
    assert too_many["errors"] == {"amount": "Must be at most 256."}
    assert bot.received == []


async def test_the_bots_own_objection_is_shown_under_the_field(opened: StandIn) -> None:
    answer = await submit(opened, "bad")
    assert answer["errors"] == {"reason": "Say more than that."}
    assert shown_view(opened)["title"]["text"] == "Edit the change"


async def test_the_bot_can_replace_stack_and_clear_modals(opened: StandIn) -> None:
    first = shown_view(opened)["id"]
    await submit(opened, "again")
    assert (shown_view(opened)["id"], shown_view(opened)["title"]["text"]) == (first, "Please confirm")
    await submit(opened, "more")
    assert [view["title"]["text"] for view in opened.team.views.stacks["U0ANA"]] == ["Please confirm", "One step more"]
    assert shown_view(opened)["root_view_id"] == first
    await submit(opened, "done")
    assert opened.team.views.stacks["U0ANA"] == []


async def test_the_bot_is_notified_of_a_closed_modal_when_it_asked(opened: StandIn, bot: FakeBot) -> None:
    view_id = shown_view(opened)["id"]
    answer = await opened.act("close", user="U0ANA", view_id=view_id)
    assert answer["ok"], answer
    assert (bot.received[0]["type"], bot.received[0]["view"]["id"]) == ("view_closed", view_id)


async def test_a_trigger_opens_one_modal_and_only_for_three_seconds(slack: StandIn) -> None:
    used, late = slack.team.views.issue_trigger("U0ANA"), slack.team.views.issue_trigger("U0ANA")
    await slack.client.views_open(trigger_id=used, view=edit_modal())
    with pytest.raises(SlackApiError, match="exchanged_trigger_id"):
        await slack.client.views_open(trigger_id=used, view=edit_modal())
    slack.clock.ahead_seconds += 3.1
    with pytest.raises(SlackApiError, match="expired_trigger_id"):
        await slack.client.views_open(trigger_id=late, view=edit_modal())


async def test_an_update_made_from_an_old_view_is_refused(slack: StandIn) -> None:
    trigger = slack.team.views.issue_trigger("U0ANA")
    view = (await slack.client.views_open(trigger_id=trigger, view=edit_modal()))["view"]
    await slack.client.views_update(view_id=view["id"], hash=view["hash"], view=edit_modal())
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await slack.client.views_update(view_id=view["id"], hash=view["hash"], view=edit_modal())


# -- commands, shortcuts, events ------------------------------------------------------------


async def test_a_command_returns_the_answer_and_what_follows(slack_with_bot: StandIn, bot: FakeBot) -> None:
    answer = await slack_with_bot.act(
        "command", user="U0BEN", channel="C0INC", command="/incident", text="list", wait_posts=1
    )
    assert answer["reply"] == {"text": "looking for `list`"}
    assert [post["text"] for post in answer["posts"]] == ["one open incident: INC-1"]
    assert (bot.received[0]["user_name"], bot.received[0]["channel_name"]) == ("ben", "inference-incidents")
    seen = await slack_with_bot.read("messages", user="U0BEN")
    assert [message["text"] for message in seen] == ["looking for `list`", "one open incident: INC-1"]


async def test_a_command_may_answer_in_the_channel(slack_with_bot: StandIn) -> None:
    await slack_with_bot.act("command", user="U0BEN", channel="C0INC", command="/incident", text="public")
    assert [message["text"] for message in await slack_with_bot.read("messages")] == ["for everybody"]


async def test_an_unknown_command_reaches_nobody(slack_with_bot: StandIn, bot: FakeBot) -> None:
    answer = await slack_with_bot.act("command", user="U0BEN", channel="C0INC", command="/incidnet")
    assert answer["shown"] == "/incidnet is not a valid command."
    assert bot.received == []


async def test_a_response_url_is_good_for_five_uses(slack: StandIn) -> None:
    reply = slack.team.response_urls.issue("U0ANA", "C0INC")
    url = slack.team.response_urls.url(reply)
    codes = [(await slack.http.post(url, json={"text": "x"})).status_code for _ in range(6)]
    assert codes == [200] * 5 + [404]


async def test_a_response_url_lives_for_half_an_hour(slack: StandIn) -> None:
    reply = slack.team.response_urls.issue("U0ANA", "C0INC")
    slack.clock.ahead_seconds += 1801
    answer = await slack.http.post(slack.team.response_urls.url(reply), json={"text": "x"})
    assert answer.json()["error"] == "expired_url"


async def test_a_message_shortcut_carries_the_message(slack_with_bot: StandIn, bot: FakeBot) -> None:
    ts = (await slack_with_bot.act("say", user="U0BEN", channel="C0INC", text="GPU 3 is hot"))["ts"]
    await slack_with_bot.act("shortcut", user="U0ANA", channel="C0INC", ts=ts, callback_id="add_to_timeline")
    shortcut = bot.received[-1]
    assert (shortcut["type"], shortcut["message_ts"]) == ("message_action", ts)
    assert shortcut["message"]["text"] == "GPU 3 is hot"


async def test_people_cause_events(slack_with_bot: StandIn, bot: FakeBot) -> None:
    ts = (await slack_with_bot.act("say", user="U0BEN", channel="C0INC", text="hello"))["ts"]
    await slack_with_bot.act("react", user="U0LEA", channel="C0INC", ts=ts, name="pushpin")

    async def has_received_both() -> bool:
        return len(bot.received) == 2

    await until(has_received_both, "both events reached the bot")
    message, reaction = sorted((body["event"] for body in bot.received), key=lambda event: str(event["type"]))
    assert (message["type"], message["text"], message["ts"]) == ("message", "hello", ts)
    assert (reaction["reaction"], reaction["item"]["ts"], reaction["user"]) == ("pushpin", ts, "U0LEA")


async def test_an_event_is_sent_again_until_the_bot_takes_it(slack_with_bot: StandIn, bot: FakeBot) -> None:
    bot.failures_left = 2
    await slack_with_bot.act("say", user="U0BEN", channel="C0INC", text="hello")

    async def has_received() -> bool:
        return bool(bot.received)

    await until(has_received, "the event reached the bot")
    sent = await slack_with_bot.read("deliveries", kind="message")
    assert [(one["retry"], one["status"]) for one in sent] == [(0, 503), (1, 503), (2, 200)]
    assert len({one["payload"]["event_id"] for one in sent}) == 1


async def test_opening_the_home_tab_lets_the_bot_publish_it(slack_with_bot: StandIn) -> None:
    await slack_with_bot.act("home", user="U0LEA")

    async def is_published() -> bool:
        return "U0LEA" in slack_with_bot.team.views.homes

    await until(is_published, "the bot published the Home tab")
    assert slack_with_bot.team.views.homes["U0LEA"]["type"] == "home"
