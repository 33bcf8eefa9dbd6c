"""The Web API as the real SDK sees it."""

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.sandbox.slack.stand_in import StandIn

KEY = {"event_type": "incident_bot", "event_payload": {"slot": "card:INC-1"}}
NOTE = {"type": "section", "text": {"type": "mrkdwn", "text": "a note"}}


async def test_a_call_without_the_right_token_is_refused(slack: StandIn) -> None:
    with pytest.raises(SlackApiError, match="invalid_auth"):
        await AsyncWebClient(token="xoxb-other", base_url=slack.api_url).auth_test()
    assert (await slack.http.post("/api/auth.test")).json()["error"] == "not_authed"


async def test_the_bot_learns_who_it_is(slack: StandIn) -> None:
    me = await slack.client.auth_test()
    assert (me["user"], me["team_id"]) == ("incident-bot", "T0SANDBOX")


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("chat.postMessage", {"channel": "C0NONE", "text": "x"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "C0INC"}, "no_text"),
        ("chat.postMessage", {"channel": "C0INC", "text": "x", "thread_ts": "1.000001"}, "thread_not_found"),
        ("chat.postMessage", {"channel": "C0INC", "text": "x", "blocks": "{"}, "invalid_blocks_format"),
        ("chat.postMessage", {"channel": "C0INC", "text": "x", "metadata": "[]"}, "invalid_metadata_format"),
        ("chat.postMessage", {"text": "x"}, "invalid_arguments"),
        ("chat.update", {"channel": "C0INC", "ts": "1.000001", "text": "x"}, "message_not_found"),
        ("chat.delete", {"channel": "C0INC", "ts": "1.000001"}, "message_not_found"),
        ("chat.postEphemeral", {"channel": "C0INC", "user": "U0OLD", "text": "x"}, "user_not_in_channel"),
        ("conversations.replies", {"channel": "C0INC", "ts": "1.000001"}, "thread_not_found"),
        ("conversations.history", {"channel": "C0INC", "cursor": "nonsense"}, "invalid_cursor"),
        ("users.info", {"user": "U0NONE"}, "user_not_found"),
        ("usergroups.users.list", {"usergroup": "S0NONE"}, "no_such_subteam"),
        ("files.info", {"file": "F0NONE"}, "file_not_found"),
        ("views.open", {"trigger_id": "1.2.3", "view": '{"type": "modal"}'}, "invalid_arguments"),
        ("chat.scheduleMessage", {}, "unknown_method"),
        ("conversations.create", {"name": ""}, "invalid_name_required"),
        ("conversations.create", {"name": "x" * 81}, "invalid_name_maxlength"),
        ("conversations.create", {"name": "INC 7"}, "invalid_name_specials"),
        ("conversations.create", {"name": "--"}, "invalid_name_punctuation"),
        ("conversations.create", {"name": "general"}, "name_taken"),
        ("conversations.setTopic", {"channel": "C0INC", "topic": "x" * 251}, "too_long"),
        ("conversations.invite", {"channel": "C0INC", "users": "U0ANA"}, "already_in_channel"),
        ("conversations.invite", {"channel": "C0INC", "users": "U0OLD,U0ANA"}, "user_not_found"),
        ("conversations.archive", {"channel": "C0GEN"}, "cant_archive_general"),
        ("conversations.list", {"limit": 5000}, "invalid_limit"),
    ],
)
async def test_a_mistake_is_answered_with_slacks_word_for_it(
    slack: StandIn, method: str, arguments: dict[str, str], error: str
) -> None:
    answer = await slack.call(method, **arguments)
    assert answer["ok"] is False
    assert answer["error"] == error


async def test_a_message_can_be_posted_read_changed_and_deleted(slack: StandIn) -> None:
    ts = await slack.post(NOTE, channel="#inference-incidents")
    await slack.client.chat_update(channel="C0INC", ts=ts, text="newer")
    (message,) = (await slack.client.conversations_history(channel="C0INC"))["messages"]
    assert (message["text"], message["blocks"][0]["text"]["text"]) == ("newer", "a note")
    assert message["edited"]["user"] == message["user"]
    await slack.client.chat_delete(channel="C0INC", ts=ts)
    assert (await slack.client.conversations_history(channel="C0INC"))["messages"] == []


async def test_a_reply_that_is_broadcast_stands_in_the_thread_and_in_the_channel(slack: StandIn) -> None:
    root = await slack.post()
    await slack.client.chat_postMessage(channel="C0INC", thread_ts=root, text="only here")
    await slack.client.chat_postMessage(channel="C0INC", thread_ts=root, text="everybody", reply_broadcast=True)
    channel = (await slack.client.conversations_history(channel="C0INC"))["messages"]
    assert [(each["text"], each.get("subtype")) for each in channel if each["ts"] != root] == [
        ("everybody", "thread_broadcast")
    ]
    thread = (await slack.client.conversations_replies(channel="C0INC", ts=root))["messages"]
    assert [each["text"] for each in thread[1:]] == ["only here", "everybody"]


async def test_an_update_keeps_the_blocks_until_it_sends_others(slack: StandIn) -> None:
    ts = await slack.post(NOTE)
    await slack.client.chat_update(channel="C0INC", ts=ts, text="text only", blocks=[])
    (message,) = await slack.read("messages")
    assert message["blocks"] == []


async def test_a_text_of_an_update_may_not_be_longer_than_4000(slack: StandIn) -> None:
    ts = await slack.post()
    with pytest.raises(SlackApiError, match="msg_too_long"):
        await slack.client.chat_update(channel="C0INC", ts=ts, text="x" * 4001)


async def test_a_posted_text_is_cut_at_40000(slack: StandIn) -> None:
    await slack.client.chat_postMessage(channel="C0INC", text="x" * 40_001)
    (message,) = await slack.read("messages")
    assert len(message["text"]) == 40_000


async def test_only_the_bots_own_messages_can_be_changed(slack: StandIn) -> None:
    ts = (await slack.act("say", user="U0ANA", channel="C0INC", text="mine"))["ts"]
    with pytest.raises(SlackApiError, match="cant_update_message"):
        await slack.client.chat_update(channel="C0INC", ts=ts, text="yours")


async def test_metadata_is_returned_only_to_who_asks_for_it(slack: StandIn) -> None:
    ts = await slack.post(metadata=KEY)
    plain = await slack.client.conversations_history(channel="C0INC")
    asked = await slack.client.conversations_replies(channel="C0INC", ts=ts, include_all_metadata=True)
    assert "metadata" not in plain["messages"][0]
    assert asked["messages"][0]["metadata"] == KEY


async def test_an_update_keeps_the_metadata(slack: StandIn) -> None:
    ts = await slack.post(metadata=KEY)
    await slack.client.chat_update(channel="C0INC", ts=ts, text="newer")
    found = await slack.client.conversations_history(channel="C0INC", include_all_metadata=True)
    assert found["messages"][0]["metadata"] == KEY


async def test_history_shows_parents_newest_first_and_counts_their_replies(slack: StandIn) -> None:
    first, second = await slack.post(), await slack.post()
    reply = await slack.post(thread_ts=first)
    found = (await slack.client.conversations_history(channel="C0INC"))["messages"]
    assert [message["ts"] for message in found] == [second, first]
    assert (found[1]["reply_count"], found[1]["latest_reply"]) == (1, reply)


async def test_a_thread_is_read_in_pages_without_gap_or_repeat(slack: StandIn) -> None:
    root = await slack.post()
    expected = [root, *[await slack.post(thread_ts=root) for _ in range(6)]]
    seen: list[str] = []
    cursor: str | None = None
    while cursor != "":
        page = await slack.client.conversations_replies(channel="C0INC", ts=root, limit=3, cursor=cursor)
        seen += [message["ts"] for message in page["messages"]]
        cursor = page["response_metadata"]["next_cursor"] if page["has_more"] else ""
    assert seen == expected


async def test_the_bounds_count_only_when_inclusive(slack: StandIn) -> None:
    first, second, third = [await slack.post() for _ in range(3)]
    inner = await slack.client.conversations_history(channel="C0INC", oldest=first, latest=third)
    whole = await slack.client.conversations_history(channel="C0INC", oldest=first, latest=third, inclusive=True)
    assert [message["ts"] for message in inner["messages"]] == [second]
    assert [message["ts"] for message in whole["messages"]] == [third, second, first]


async def test_an_ephemeral_message_is_in_no_history(slack: StandIn) -> None:
    await slack.client.chat_postEphemeral(channel="C0INC", user="U0ANA", text="psst")
    assert (await slack.client.conversations_history(channel="C0INC"))["messages"] == []
    assert [m["text"] for m in await slack.read("messages", user="U0ANA")] == ["psst"]
    assert await slack.read("messages", user="U0BEN") == []


async def test_a_permalink_leads_to_the_message_in_its_thread(slack: StandIn) -> None:
    root = await slack.post()
    reply = await slack.post(thread_ts=root)
    link = (await slack.client.chat_getPermalink(channel="C0INC", message_ts=reply))["permalink"]
    assert link.endswith(f"/archives/C0INC/p{reply.replace('.', '')}?thread_ts={root}&cid=C0INC")
    assert (await slack.http.get(link)).status_code == 200


async def test_the_people_distinguish_a_stranger_a_guest_and_a_bot(slack: StandIn) -> None:
    on_call = (await slack.client.usergroups_users_list(usergroup="S0SERVING"))["users"]
    people = {user["id"]: user for user in (await slack.client.users_list())["members"]}
    assert on_call == ["U0ANA", "U0BEN", "U0LEA"]
    assert people["U0GUE"]["is_restricted"]
    assert people["U0BOT"]["is_bot"]
    assert people["U0OLD"]["deleted"]
    assert "U0MO" in (await slack.client.conversations_members(channel="C0INC"))["members"]


async def test_membership_of_the_group_can_change(slack: StandIn) -> None:
    await slack.act("usergroup", users=["U0MO"])
    assert (await slack.client.usergroups_users_list(usergroup="S0SERVING"))["users"] == ["U0MO"]


async def test_a_reaction_counts_once_for_each_person(slack: StandIn) -> None:
    ts = await slack.post()
    await slack.client.reactions_add(channel="C0INC", timestamp=ts, name="eyes")
    await slack.act("react", user="U0ANA", channel="C0INC", ts=ts, name="eyes")
    with pytest.raises(SlackApiError, match="already_reacted"):
        await slack.client.reactions_add(channel="C0INC", timestamp=ts, name="eyes")
    message = (await slack.client.reactions_get(channel="C0INC", timestamp=ts))["message"]
    assert message["reactions"] == [{"name": "eyes", "users": ["U0INCIDENT", "U0ANA"], "count": 2}]


async def test_every_call_is_recorded_without_its_token(slack: StandIn) -> None:
    await slack.post()
    await slack.call("chat.update", token="xoxb-sandbox", channel="C0INC")
    posted, updated = await slack.read("calls")
    assert (posted["method"], posted["status"], posted["answer"]["ok"]) == ("chat.postMessage", 200, True)
    assert (updated["args"], updated["answer"]["error"]) == ({"channel": "C0INC"}, "invalid_arguments")
    assert await slack.read("calls", since="1") == [updated]


async def test_a_reset_leaves_an_empty_workspace(slack: StandIn) -> None:
    await slack.post()
    await slack.faults({"kind": "500"})
    await slack.act("reset")
    assert await slack.read("messages") == []
    assert await slack.read("calls") == []
    assert (await slack.client.auth_test())["ok"]


async def test_another_web_site_cannot_act_here(slack: StandIn) -> None:
    answer = await slack.http.post("/__sandbox__/reset", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


async def test_a_channel_is_made_named_filled_and_closed(slack: StandIn) -> None:
    made = (await slack.client.conversations_create(name="inc-7"))["channel"]
    assert (made["creator"], made["is_member"], made["num_members"]) == ("U0INCIDENT", True, 1)
    await slack.client.conversations_setTopic(channel=made["id"], topic="serving/llm")
    answer = await slack.call("conversations.invite", channel=made["id"], users="U0ANA,U0OLD,U0BEN", force="true")
    assert answer["errors"] == [{"user": "U0OLD", "ok": False, "error": "user_not_found"}]
    assert set((await slack.client.conversations_members(channel=made["id"]))["members"]) == {
        "U0INCIDENT",
        "U0ANA",
        "U0BEN",
    }
    await slack.client.conversations_archive(channel=made["id"])
    assert (await slack.call("chat.postMessage", channel=made["id"], text="x"))["error"] == "is_archived"
    assert (await slack.call("conversations.archive", channel=made["id"]))["error"] == "already_archived"
    assert (await slack.call("conversations.create", name="inc-7"))["error"] == "name_taken"


async def test_channels_are_listed_page_by_page_and_archived_ones_on_request(slack: StandIn) -> None:
    for number in range(3):
        await slack.client.conversations_create(name=f"inc-{number}")
    await slack.client.conversations_archive(channel="C0MADE2")
    first = await slack.client.conversations_list(limit=3, exclude_archived=True)
    rest = await slack.client.conversations_list(
        limit=3, exclude_archived=True, cursor=first["response_metadata"]["next_cursor"]
    )
    names = [channel["name"] for channel in (*first["channels"], *rest["channels"])]
    assert names == ["inference-incidents", "general", "inc-1", "inc-2"]
    assert len((await slack.client.conversations_list())["channels"]) == 5
