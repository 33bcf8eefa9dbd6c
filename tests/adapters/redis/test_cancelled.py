"""A cancellation that comes just when a command times out is not lost: the loop around the command ends."""

from __future__ import annotations

import asyncio

import pytest

from bot.adapters.redis.connection import Connection

pytestmark = pytest.mark.fast


async def test_a_time_out_does_not_hide_a_cancellation(connection: Connection) -> None:
    async def command() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # As `asyncio.wait_for` does when both come at once.
            raise TimeoutError from None

    asking = asyncio.create_task(connection.ask(command()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
