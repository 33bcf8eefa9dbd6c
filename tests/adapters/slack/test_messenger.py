"""Exactly one message per slot, in order and up to date, whatever happens to Slack's answers."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Literal

import aiohttp
import pytest

from bot.adapters.slack.client import PEOPLE_TAKE_SECONDS, Refusal, ask
from bot.adapters.slack.outbound.lookup import SETTLE_SECONDS
from bot.adapters.slack.outbound.messenger import PROCESSED_WITHIN_SECONDS, Place, SlackMessenger
from bot.domain.incidents.event import Posted
from bot.domain.incidents.run import Halt, InSlack, Run
from bot.domain.kernel.errors import MessengerError
from bot.flow.ports.people import PartlyShownError
from tests.adapters.slack.conftest import CHANNEL, Bench, until
from tests.adapters.slack.runs import BEGAN, approval, post, run, waiting
from tests.fakes.shown import file_of

GRANTED = {"status": "granted", "decided_by": "U0ANA", "decided_at": BEGAN + 261, "presses": (approval(),)}
NOTED = (post("note", "note:N1", text="first"), post("note", "note:N2", text="second"))


async def show(bench: Bench, shown: Run) -> list[Posted]:
    return [event for event in (await bench.messenger.show(shown)).events if isinstance(event, Posted)]


async def slots(bench: Bench) -> list[str]:
    """The slots that stand in Slack, oldest first, by the key that each message carries."""
    answer = await bench.client.conversations_history(channel=CHANNEL, include_all_metadata=True)
    keys = []
    for card in reversed(answer["messages"]):
        thread = await bench.client.conversations_replies(channel=CHANNEL, ts=card["ts"], include_all_metadata=True)
        keys += [message["metadata"]["event_payload"]["slot"] for message in thread["messages"]]
    return keys


async def refused(bench: Bench, shown: Run) -> MessengerError:
    with pytest.raises(MessengerError) as caught:
        await bench.messenger.show(shown)
    return caught.value


async def settle(bench: Bench, shown: Run) -> list[Posted]:
    """Come back as often as the messenger asks for it, moving the clock by what it says."""
    for _ in range(6):
        try:
            return await show(bench, shown)
        except MessengerError as error:
            if error.lasting:
                raise
            bench.clock.move(error.retry_after_seconds)
    raise AssertionError("the messenger never came to an end")


async def test_the_card_and_its_thread_appear_in_order_and_are_reported(bench: Bench) -> None:
    posted = await show(bench, waiting())
    wanted = ["card", "diagnosis:1", "request:R3"]
    assert [event.slot for event in posted] == wanted
    assert [event.event_id for event in posted] == [f"posted:{slot}" for slot in wanted]
    assert await slots(bench) == [f"INC-7/{slot}" for slot in wanted]


async def test_the_card_links_to_the_request_in_the_thread(bench: Bench) -> None:
    await show(bench, waiting())
    card, *_ = await bench.slack.messages()
    request_ts = bench.store.slots["INC-7"]["request:R3"].ts
    assert f"p{request_ts.replace('.', '')}?thread_ts={card['ts']}" in str(card["blocks"])


async def test_an_unchanged_run_sends_nothing(bench: Bench) -> None:
    await show(bench, waiting(posted_at=None))
    before = [len(await bench.slack.calls(method)) for method in ("chat.postMessage", "chat.update")]
    await show(bench, waiting(posted_at=None).with_(version=9))
    assert [len(await bench.slack.calls(method)) for method in ("chat.postMessage", "chat.update")] == before


async def test_a_decision_removes_the_buttons_in_place(bench: Bench) -> None:
    await show(bench, waiting())
    await show(bench, waiting(**GRANTED))
    assert len(await slots(bench)) == 3
    request = (await bench.slack.messages())[-1]
    elements = [each["type"] for block in request["blocks"] for each in block.get("elements", ())]
    assert "button" not in elements


async def test_a_post_that_the_run_has_not_recorded_is_reported_again(bench: Bench) -> None:
    await show(bench, waiting(posted_at=None))
    again = await show(bench, waiting(posted_at=None))
    assert [event.slot for event in again] == ["card", "request:R3"]
    assert await show(bench, waiting().with_(in_slack=InSlack(card_posted=True))) == []


@pytest.mark.parametrize("slot", ["card", "request:R3"])
async def test_a_lost_reply_never_posts_twice(bench: Bench, slot: str) -> None:
    if slot != "card":
        await show(bench, waiting().with_(posts=waiting().posts[:1]))
    await bench.slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    error = await refused(bench, waiting())
    assert not error.lasting
    posted = await settle(bench, waiting())
    assert slot in [event.slot for event in posted]
    assert sorted(await slots(bench)) == ["INC-7/card", "INC-7/diagnosis:1", "INC-7/request:R3"]


async def test_after_a_lost_reply_it_asks_to_come_back_and_does_not_wait_itself(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    await refused(bench, waiting())
    bench.clock.move(1.0)
    error = await refused(bench, waiting())
    assert error.retry_after_seconds == pytest.approx(SETTLE_SECONDS - 1.0)
    assert await bench.slack.calls("conversations.history") == []


async def test_a_lost_reply_in_a_storm_is_settled_with_one_read(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    await refused(bench, run())
    for _ in range(250):
        await bench.client.chat_postMessage(channel=CHANNEL, text="a card of another incident")
    assert [event.slot for event in await settle(bench, run())] == ["card"]
    assert len([each for each in await bench.slack.calls("chat.postMessage") if each["args"].get("metadata")]) == 1
    looked = await bench.slack.calls("conversations.history")
    assert len([call for call in looked if "oldest" in call["args"]]) == 1


async def test_a_post_that_did_not_happen_is_sent_again_after_two_look_ups(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "drop"})
    await refused(bench, run())
    await settle(bench, run())
    assert await slots(bench) == ["INC-7/card"]
    looked = await bench.slack.calls("conversations.history")
    assert len([call for call in looked if "oldest" in call["args"]]) >= 2


async def test_a_clock_that_went_back_by_an_hour_delays_no_look_up(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    await refused(bench, run())
    bench.clock.move(-3600.0)
    began = bench.clock.now()
    await settle(bench, run())
    assert bench.clock.now() - began < 60
    assert await slots(bench) == ["INC-7/card"]


async def test_nothing_is_posted_again_while_looking_fails_too(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    await refused(bench, run())
    bench.clock.move(60.0)
    await bench.slack.faults({"method": "conversations.history", "kind": "500", "count": 3})
    for _ in range(3):
        assert not (await refused(bench, run())).lasting
    await settle(bench, run())
    assert await slots(bench) == ["INC-7/card"]


async def test_a_crash_between_the_attempt_and_its_record_is_a_lost_reply(bench: Bench) -> None:
    await show(bench, run())
    entry = next(entry for slot, entry in bench.store.saved if slot == "card" and entry.attempt_at)
    await bench.store.save("INC-7", {"card": entry})
    await settle(bench, run())
    assert await slots(bench) == ["INC-7/card"]


async def test_later_duplicates_are_deleted_and_the_first_is_kept(bench: Bench) -> None:
    await show(bench, run())
    kept = bench.store.slots["INC-7"]["card"]
    attempt = next(entry for slot, entry in bench.store.saved if slot == "card" and entry.attempt_at)
    key = {"event_type": "incident_bot", "event_payload": {"deployment": "tests", "slot": "INC-7/card"}}
    await bench.client.chat_postMessage(channel=CHANNEL, text="a late twin", metadata=key)
    await bench.store.save("INC-7", {"card": attempt})
    await settle(bench, run())
    assert [message["ts"] for message in await bench.slack.messages()] == [kept.ts]


async def test_an_attempt_that_lands_after_the_last_look_up_is_found_and_one_message_stays(bench: Bench) -> None:
    late = LateArrival(bench)
    messenger = SlackMessenger(bench.client, bench.store, late, bench.clock, Place(CHANNEL, "tests"))
    await bench.slack.faults({"method": "chat.postMessage", "kind": "drop"})
    await refused(bench, run())
    bench.store.pace = late
    for _ in range(2):
        bench.clock.move(SETTLE_SECONDS)
        with contextlib.suppress(MessengerError):
            await messenger.show(run())
    assert [message["ts"] for message in await bench.slack.messages()] == [late.ts]
    assert bench.store.slots["INC-7"]["card"].ts == late.ts


class LateArrival:
    """A pace during whose first wait the lost post arrives in Slack after all."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.ts = ""

    async def take(self, kind: Literal["post", "update", "home", "card"], key: str) -> float:
        if not self.ts and kind == "post":
            metadata = {"event_type": "incident_bot", "event_payload": {"deployment": "tests", "slot": "INC-7/card"}}
            posted = await self._bench.client.chat_postMessage(channel=key, text="late", metadata=metadata)
            self.ts = str(posted["ts"])
        return 0.0


async def test_another_deployment_in_the_channel_is_not_mistaken_for_us(bench: Bench) -> None:
    key = {"event_type": "incident_bot", "event_payload": {"deployment": "other", "slot": "INC-7/card"}}
    await bench.client.chat_postMessage(channel=CHANNEL, text="theirs", metadata=key)
    await bench.slack.faults({"method": "chat.postMessage", "kind": "drop"})
    await refused(bench, run())
    await settle(bench, run())
    assert len(await bench.slack.messages()) == 2


async def test_a_429_does_not_keep_the_bot_silent_for_long(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "429", "retry_after": 86_400})
    assert (await refused(bench, run())).retry_after_seconds == 300.0


async def test_a_429_is_honoured_and_is_no_lost_reply(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "429", "retry_after": 7})
    error = await refused(bench, run())
    assert (error.lasting, error.retry_after_seconds) == (False, 7.0)
    bench.clock.move(7)
    await show(bench, run())
    assert await bench.slack.calls("conversations.history") == []
    assert await slots(bench) == ["INC-7/card"]


@pytest.mark.parametrize(
    "error", ["channel_not_found", "not_in_channel", "is_archived", "token_revoked", "missing_scope"]
)
async def test_what_people_have_to_cure_is_asked_once_a_minute_for_all_incidents(bench: Bench, error: str) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": f"error:{error}", "seconds": 1000})
    refusal = await refused(bench, run())
    assert (refusal.lasting, refusal.retry_after_seconds) == (False, PEOPLE_TAKE_SECONDS)
    assert error in refusal.reason
    assert error in bench.messenger.refused
    bench.clock.move(20)
    assert (await refused(bench, run(incident_id="INC-8"))).retry_after_seconds == PEOPLE_TAKE_SECONDS - 20
    assert len(await bench.slack.calls("chat.postMessage")) == 1


async def test_who_looks_at_an_incident_has_slack_asked_at_once(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "error:invalid_auth"})
    await refused(bench, run())
    await bench.messenger.want_card("INC-7")
    await show(bench, run())
    assert await slots(bench) == ["INC-7/card"]
    assert bench.messenger.refused == ""


@pytest.mark.parametrize("error", ["invalid_arguments", "no_text", "msg_too_long"])
async def test_an_error_of_one_message_is_raised_once_and_holds_up_none_of_the_others(bench: Bench, error: str) -> None:
    known = waiting().with_(in_slack=InSlack(card_posted=True))
    await show(bench, run())
    # A layout that is refused is tried once more, as plain text.
    fault = {"method": "chat.postMessage", "kind": f"error:{error}", "count": 2 if error == "msg_too_long" else 1}
    await bench.slack.faults(fault)
    with pytest.raises(PartlyShownError) as partly:
        await show(bench, known)
    assert [event.event_id for event in partly.value.events] == ["posted:request:R3"]
    await bench.slack.faults(fault)
    refusal = await refused(bench, known)
    assert refusal.lasting
    assert error in refusal.reason
    assert await show(bench, known) == []
    assert await slots(bench) == ["INC-7/card", "INC-7/request:R3"]
    assert bench.messenger.refused == ""


@pytest.mark.parametrize("kind", ["500", "drop", "error:internal_error", "error:request_timeout", "lost_reply"])
async def test_what_a_retry_may_cure_is_passing(bench: Bench, kind: str) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": kind})
    assert not (await refused(bench, run())).lasting
    await settle(bench, run())
    assert await slots(bench) == ["INC-7/card"]


async def test_a_refused_layout_becomes_plain_text_that_says_so(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "error:invalid_blocks"})
    await show(bench, run())
    assert "no buttons" in (await bench.slack.messages())[0]["text"]


async def test_a_message_that_cannot_be_edited_is_reported_once_and_holds_up_nothing(bench: Bench) -> None:
    known = waiting().with_(in_slack=InSlack(card_posted=True))
    await show(bench, known)
    ts = bench.store.slots["INC-7"]["diagnosis:1"].ts
    await bench.client.chat_delete(channel=CHANNEL, ts=ts)
    diagnosis, request = waiting().posts
    corrected = diagnosis.model_copy(update={"data": diagnosis.data | {"title": "something else"}})
    changed = waiting(**GRANTED).with_(in_slack=InSlack(card_posted=True), posts=(corrected, request))
    error = await refused(bench, changed)
    assert error.lasting
    assert "message_not_found" in error.reason
    assert "Approved" in str((await bench.slack.messages())[-1]["blocks"])
    assert await show(bench, changed) == []


async def test_without_room_in_the_pace_it_comes_back_later_and_has_sent_nothing(bench: Bench) -> None:
    bench.pace.waits["post"] = [0.4]
    error = await refused(bench, run())
    assert (error.lasting, error.retry_after_seconds) == (False, 0.4)
    assert await bench.slack.calls("chat.postMessage") == []
    await show(bench, run())
    assert bench.pace.taken == [("post", CHANNEL)]


async def test_new_messages_are_not_held_up_by_the_pace_of_edits(bench: Bench) -> None:
    await show(bench, run())
    bench.pace.waits["update"] = [1.0]
    await refused(bench, run(posts=NOTED, halt=Halt(by="U0BEN")))
    assert await slots(bench) == ["INC-7/card", "INC-7/note:N1", "INC-7/note:N2"]


async def test_what_was_shown_before_a_refusal_stays_recorded(bench: Bench) -> None:
    await show(bench, run())
    await bench.slack.faults({"method": "chat.postMessage", "kind": "429"})
    bench.clock.move((await refused(bench, run(posts=NOTED))).retry_after_seconds)
    await show(bench, run(posts=NOTED))
    assert await slots(bench) == ["INC-7/card", "INC-7/note:N1", "INC-7/note:N2"]


async def test_a_notification_reaches_one_person_alone(bench: Bench) -> None:
    await bench.messenger.notify("U0ANA", CHANNEL, "already granted by <@U0BEN> <!channel>", response_url="")
    assert await bench.slack.whispers("U0ANA") == ["already granted by <@U0BEN> &lt;!channel&gt;"]
    assert await bench.slack.whispers("U0BEN") == []


async def test_in_the_channel_only_those_are_mentioned_who_are_meant(bench: Bench) -> None:
    await bench.messenger.announce("`x` by <@U0ANA>, cc <@U0BEN> <!channel>", mentions=["U0ANA"])
    [posted] = await bench.slack.messages()
    assert posted["text"] == "`x` by <@U0ANA>, cc &lt;@U0BEN&gt; &lt;!channel&gt;"


async def test_the_comment_of_a_file_mentions_nobody(bench: Bench) -> None:
    await show(bench, run())
    await bench.messenger.upload(run(), key="k", name="way.png", content=file_of(b"x"), comment="now at: cc <@U0BEN>")
    assert (await bench.slack.messages())[-1]["text"] == "now at: cc &lt;@U0BEN&gt;"


async def test_where_the_response_url_is_gone_the_person_is_still_notified(bench: Bench, simulator: Any) -> None:
    await bench.messenger.notify("U0ANA", CHANNEL, "hello", response_url=f"{simulator.url}/response/used-up")
    assert await bench.slack.whispers("U0ANA") == ["hello"]


async def test_a_person_who_is_not_in_the_channel_cannot_be_notified(bench: Bench) -> None:
    with pytest.raises(MessengerError) as caught:
        await bench.messenger.notify("U0OLD", CHANNEL, "hello", response_url="")
    assert caught.value.lasting


async def upload(bench: Bench, content: bytes = b"# INC-7", key: str = "export/1") -> None:
    await bench.messenger.upload(run(), key=key, name="INC-7.md", content=file_of(content), comment="the timeline")


async def files(bench: Bench) -> list[str]:
    return [file["name"] for m in await bench.slack.messages() for file in m.get("files", ())]


async def test_a_file_comes_into_the_thread_once_by_its_key_whatever_it_says_by_now(bench: Bench) -> None:
    await show(bench, run())
    await upload(bench)
    await upload(bench)
    assert await files(bench) == ["INC-7.md"]
    await upload(bench, b"# INC-7, later")
    assert await files(bench) == ["INC-7.md"]
    await upload(bench, b"# INC-7, later", key="export/2")
    assert await files(bench) == ["INC-7.md", "INC-7.md"]
    root = (await bench.slack.messages())[0]["ts"]
    assert {m["thread_ts"] for m in (await bench.slack.messages())[1:]} == {root}


async def test_a_file_waits_for_the_card(bench: Bench) -> None:
    with pytest.raises(MessengerError) as caught:
        await upload(bench)
    assert not caught.value.lasting


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "upload", "files.completeUploadExternal"])
@pytest.mark.parametrize("kind", ["500", "drop", "lost_reply"])
async def test_an_upload_that_failed_half_way_ends_as_one_file(bench: Bench, method: str, kind: str) -> None:
    await show(bench, run())
    await bench.slack.faults({"method": method, "kind": kind})
    with pytest.raises(MessengerError):
        await upload(bench)
    bench.clock.move(SETTLE_SECONDS)
    await until(lambda: processed(bench), "Slack has processed every file that was shared")
    await upload(bench)
    assert await files(bench) == ["INC-7.md"]


async def test_after_a_lost_reply_a_file_is_looked_for_only_when_it_can_be_found(bench: Bench) -> None:
    await show(bench, run())
    await bench.slack.faults({"method": "files.completeUploadExternal", "kind": "lost_reply"})
    for _ in range(2):
        with pytest.raises(MessengerError):
            await upload(bench)
    assert await bench.slack.calls("files.info") == []


async def processed(bench: Bench) -> bool:
    shared = [file["id"] for m in await bench.slack.messages() for file in m.get("files", ())]
    described = [(await bench.client.files_info(file=file_id))["file"] for file_id in shared]
    return all(file["shares"] for file in described)


# --- the picture of a message ----------------------------------------------------------------------------------------


DIAGNOSIS = "diagnosis:1"


async def illustrate(bench: Bench) -> None:
    async def draw() -> bytes:
        return b"png"

    await bench.messenger.illustrate(waiting(), DIAGNOSIS, name="INC-7-chart.png", draw=draw, caption="usage 99%")


async def illustrated(bench: Bench) -> None:
    """Slack takes a moment to process a picture."""

    async def is_done() -> bool:
        with contextlib.suppress(MessengerError):
            await illustrate(bench)
            return True
        return False

    await until(is_done, "the picture is shown")


async def pictures(bench: Bench) -> list[tuple[str, str]]:
    """The slot of each message that shows a picture, with the picture's words."""
    return [
        (m["metadata"]["event_payload"]["slot"], block["alt_text"])
        for m in await bench.slack.messages()
        for block in m.get("blocks", ())
        if block["type"] == "image"
    ]


async def test_a_picture_is_shown_in_its_message_and_stays_there(bench: Bench) -> None:
    await show(bench, waiting())
    await illustrated(bench)
    assert await pictures(bench) == [(f"INC-7/{DIAGNOSIS}", "usage 99%")]
    assert await files(bench) == []
    await show(bench, waiting())
    before = len(await bench.slack.calls("chat.update"))
    await illustrate(bench)
    await show(bench, waiting())
    assert len(await bench.slack.calls("files.completeUploadExternal")) == 1
    assert len(await bench.slack.calls("chat.update")) == before


async def test_a_picture_waits_for_its_message(bench: Bench) -> None:
    with pytest.raises(MessengerError) as caught:
        await illustrate(bench)
    assert not caught.value.lasting


async def test_a_picture_that_slack_refuses_in_a_message_becomes_a_file(bench: Bench) -> None:
    await show(bench, waiting())
    await bench.slack.faults({"method": "chat.update", "kind": "error:invalid_blocks"})
    await illustrated(bench)
    assert await pictures(bench) == []
    assert await files(bench) == ["INC-7-chart.png"]
    await show(bench, waiting())
    before = len(await bench.slack.calls("chat.update"))
    await show(bench, waiting())
    assert len(await bench.slack.calls("chat.update")) == before


async def test_a_picture_that_slack_never_processes_becomes_a_file(bench: Bench) -> None:
    await show(bench, waiting())
    with pytest.raises(MessengerError):
        await illustrate(bench)
    await bench.slack.faults({"method": "files.info", "kind": "error:file_not_found"})
    bench.clock.move(PROCESSED_WITHIN_SECONDS)
    await illustrate(bench)
    assert await files(bench) == ["INC-7-chart.png"]


# --- the channel of one target ----------------------------------------------------------------------------------------

ELSEWHERE = "C0GEN"


def with_channel(bench: Bench, channel: str) -> Bench:
    place = Place(CHANNEL, "tests", of_targets=(("serving/*", channel), ("chat/*", "C0NOT")))
    return replace(bench, messenger=SlackMessenger(bench.client, bench.store, bench.pace, bench.clock, place))


async def test_a_target_may_have_a_channel_of_its_own(bench: Bench) -> None:
    await show(with_channel(bench, ELSEWHERE), waiting())
    assert {entry.channel for entry in bench.store.slots["INC-7"].values()} == {ELSEWHERE}
    assert await slots(bench) == []


async def test_where_slack_refuses_that_channel_the_incident_appears_in_the_channel_of_all(bench: Bench) -> None:
    await show(with_channel(bench, "C0GONE"), waiting())
    assert {entry.channel for entry in bench.store.slots["INC-7"].values()} == {CHANNEL}
    assert await slots(bench) == ["INC-7/card", "INC-7/diagnosis:1", "INC-7/request:R3"]


async def test_a_lost_reply_in_that_channel_leaves_one_card(bench: Bench) -> None:
    await bench.slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    await settle(with_channel(bench, ELSEWHERE), waiting())
    answer = await bench.client.conversations_history(channel=ELSEWHERE)
    assert len(answer["messages"]) == 1
    assert await slots(bench) == []


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (aiohttp.ClientConnectionError("x"), "posting: Slack cannot be reached (ClientConnectionError)"),
        (TimeoutError(), "posting: Slack did not answer in time"),
    ],
)
async def test_silence_is_not_called_an_answer(lost: Exception, reason: str) -> None:
    async def call() -> None:
        raise lost

    refusal = await ask(call())
    assert isinstance(refusal, Refusal)
    assert refusal.as_error("posting").reason == reason


class Unread(dict[str, Any]):
    """A block that nothing describes: a description is as long as the message, and costs as much as sending it."""

    def __repr__(self) -> str:
        raise AssertionError("the SDK describes a request for a message of the level debug")


async def test_what_is_sent_is_not_described_for_a_log_that_nobody_reads(bench: Bench) -> None:
    blocks: list[dict[str, Any]] = [Unread(type="section", text={"type": "mrkdwn", "text": "hello"})]
    answer = await bench.client.chat_postMessage(channel=CHANNEL, text="hello", blocks=blocks)
    assert answer["ok"]


async def test_each_message_carries_the_head_that_its_post_says(bench: Bench) -> None:
    """The timeline records that these messages carry it."""
    posts = (post("request", "request:R3", "R3", head="a" * 64), post("closed", "closed:4", "fixed", head="b" * 64))
    await show(bench, waiting().with_(posts=posts))
    root = bench.store.slots["INC-7"]["card"]
    answer = await bench.client.conversations_replies(channel=CHANNEL, ts=root.ts, include_all_metadata=True)
    heads = [message["metadata"]["event_payload"].get("head") for message in answer["messages"]]
    assert heads == [None, "a" * 16, "b" * 16]
