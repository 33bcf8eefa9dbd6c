"""Faults on demand and Slack's rate limits."""

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError

from bot.sandbox.slack.rate_limits import RateLimits
from bot.sandbox.slack.team import Settings
from tests.sandbox.slack.stand_in import StandIn, stand_in

pytestmark = pytest.mark.fast


async def test_a_429_says_how_long_to_wait_and_comes_as_often_as_asked(slack: StandIn) -> None:
    await slack.faults({"method": "chat.postMessage", "kind": "429", "retry_after": 7, "count": 2})
    for _ in range(2):
        with pytest.raises(SlackApiError) as refused:
            await slack.post()
        assert (refused.value.response.status_code, refused.value.response["error"]) == (429, "ratelimited")
        assert refused.value.response.headers["Retry-After"] == "7"
    await slack.post()


async def test_a_fault_hits_only_its_method(slack: StandIn) -> None:
    await slack.faults({"method": "chat.update", "kind": "500"})
    ts = await slack.post()
    with pytest.raises(SlackApiError, match="internal_error"):
        await slack.client.chat_update(channel="C0INC", ts=ts, text="x")


async def test_any_error_of_slack_can_be_had(slack: StandIn) -> None:
    await slack.faults({"kind": "error:is_archived"})
    with pytest.raises(SlackApiError, match="is_archived"):
        await slack.post()
    assert await slack.read("messages") == []


async def test_a_dropped_call_did_nothing(slack: StandIn) -> None:
    await slack.faults({"method": "chat.postMessage", "kind": "drop"})
    with pytest.raises(aiohttp.ClientError):
        await slack.post()
    assert await slack.read("messages") == []


async def test_a_call_whose_reply_is_lost_did_its_work(slack: StandIn) -> None:
    await slack.faults({"method": "chat.postMessage", "kind": "lost_reply"})
    with pytest.raises(aiohttp.ClientError):
        await slack.post()
    assert len(await slack.read("messages")) == 1
    assert (await slack.read("calls"))[0]["fault"] == "lost_reply"


async def test_a_delayed_call_is_answered_in_the_end(slack: StandIn) -> None:
    await slack.faults({"kind": "delay", "seconds": 0.05})
    await slack.post()
    assert (await slack.read("calls"))[0]["fault"] == "delay"


async def test_a_fault_with_a_duration_has_no_count(slack: StandIn) -> None:
    await slack.faults({"kind": "500", "seconds": 600})
    for _ in range(3):
        with pytest.raises(SlackApiError):
            await slack.post()
    await slack.faults()
    await slack.post()


async def test_an_unknown_kind_of_fault_is_refused(slack: StandIn) -> None:
    answer = await slack.http.post("/__sandbox__/faults", json=[{"kind": "earthquake"}])
    assert answer.status_code == 400
    assert answer.json()["reasons"][0]["loc"] == [0, "kind"]


def test_a_channel_takes_a_burst_and_then_one_message_a_second() -> None:
    limits = RateLimits("real")
    verdicts = [limits.retry_after("chat.postMessage", "C0INC", 0.0) for _ in range(5)]
    assert verdicts == [None, None, None, None, 1]
    assert limits.retry_after("chat.postMessage", "C0GEN", 0.0) is None
    assert limits.retry_after("chat.postMessage", "C0INC", 1.01) is None


def test_edits_are_limited_to_fifty_a_minute() -> None:
    limits = RateLimits("real")
    passed = sum(limits.retry_after("chat.update", "C0INC", second / 10) is None for second in range(3000))
    assert 250 <= passed <= 250 + 13


def test_without_limits_everything_passes() -> None:
    limits = RateLimits("off")
    assert {limits.retry_after("chat.postMessage", "C0INC", 0.0) for _ in range(1000)} == {None}


async def test_the_limits_hold_over_http() -> None:
    async with stand_in(Settings("http://127.0.0.1:9", "s", pace="real")) as slack:
        for _ in range(4):
            await slack.post()
        with pytest.raises(SlackApiError, match="ratelimited"):
            await slack.post()
        assert (await slack.read("calls"))[-1]["fault"] == "rate_limit"
