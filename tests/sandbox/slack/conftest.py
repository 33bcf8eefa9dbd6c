"""A simulator without a bot, and one with the fake bot."""

from collections.abc import AsyncIterator

import pytest

from bot.sandbox.slack.team import Settings
from tests.sandbox.slack.fake_bot import SECRET, FakeBot
from tests.sandbox.slack.stand_in import StandIn, served, stand_in

#: Nobody listens there: port 9 of this machine is the discard service, which is never on.
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
async def slack() -> AsyncIterator[StandIn]:
    """A stand-in whose bot is away."""
    async with stand_in(Settings(NOBODY, SECRET, pace="off")) as running:
        yield running


@pytest.fixture
def bot() -> FakeBot:
    return FakeBot()


@pytest.fixture
async def slack_with_bot(bot: FakeBot) -> AsyncIterator[StandIn]:
    """A stand-in and the fake bot, each on its port."""
    async with served(bot.app) as bot_url:
        settings = Settings(bot_url, SECRET, pace="off", event_retry_seconds=(0.0, 0.0, 0.0))
        async with stand_in(settings) as running:
            bot.connect(running.api_url)
            yield running
