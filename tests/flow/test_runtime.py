"""The runtime that `serve` and the tests share: every type of effect has its handler, whatever the configuration."""

from __future__ import annotations

from typing import get_args

import pytest
import redis.asyncio as aioredis

from bot.domain.incidents.effect import Effect
from tests.flow.harness import Bot
from tests.flow.scenes import drill_scene

pytestmark = pytest.mark.fast


async def test_every_type_of_effect_has_a_handler_and_nothing_else_has_one(client: aioredis.Redis, tag: str) -> None:
    bot = Bot(await drill_scene(client, tag, None), "one")
    union, *_ = get_args(Effect)
    assert bot.runtime.handlers.keys() == set(get_args(union))
