"""Cards of earlier incidents that Slack still shows."""

from __future__ import annotations

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.adapters.slack.outbound.lookup import Key
from bot.adapters.slack.outbound.old_cards import highest_number
from tests.adapters.slack.conftest import Sandbox
from tests.flow.harness import CHANNEL


async def posted(client: AsyncWebClient, *keys: Key) -> None:
    for key in keys:
        await client.chat_postMessage(channel=CHANNEL, text="a card", metadata=key.metadata())


@pytest.mark.parametrize(
    ("keys", "highest"),
    [
        pytest.param([], 0, id="an empty channel"),
        pytest.param([Key("tests", "INC-41/card"), Key("tests", "INC-7/card")], 41, id="cards"),
        pytest.param([Key("another", "INC-41/card")], 0, id="of another deployment"),
        pytest.param([Key("tests", "digest/1.000"), Key("tests", "INC-41/request:R2")], 0, id="no cards"),
    ],
)
async def test_the_highest_number_on_a_card_of_this_deployment_is_found(
    slack: Sandbox, client: AsyncWebClient, keys: list[Key], highest: int
) -> None:
    await posted(client, *keys)
    assert await highest_number(client, channels=[CHANNEL], deployment="tests") == highest


async def test_cards_below_many_other_messages_are_found(slack: Sandbox, client: AsyncWebClient) -> None:
    await posted(client, Key("tests", "INC-41/card"))
    for _ in range(201):
        await client.chat_postMessage(channel=CHANNEL, text="talk")
    assert await highest_number(client, channels=[CHANNEL], deployment="tests") == 41


async def test_slack_that_does_not_say_is_no_first_start(slack: Sandbox, client: AsyncWebClient) -> None:
    await slack.faults({"method": "conversations.history", "kind": "500"})
    assert await highest_number(client, channels=[CHANNEL], deployment="tests") is None
