"""How often the event loop comes round during some work: whether other callbacks run meanwhile, without a clock."""

import asyncio
from collections.abc import Awaitable

from bot.flow.ports.readings import PodPage


class ReadyPages:
    """Every page is there at once, as if all replicas had answered in the same moment."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def read(self, page: PodPage) -> str:
        return self._text


async def turns_of_the_loop_while(work: Awaitable[object]) -> int:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await work
    counting.cancel()
    return turns
