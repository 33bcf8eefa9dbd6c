"""Posts a notice in the channel once, whichever replica of the bot comes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from bot.domain.kernel.errors import MessengerError
from bot.flow.ports.people import Messenger

Announce = Callable[[str, str], Awaitable[None]]
"""(subject, text): posts the text in the channel, once by subject. Raises `MessengerError`."""
AnnounceTo = Callable[[str, str, Collection[str]], Awaitable[None]]
"""(subject, text, people): as above, and notifies the people among those mentioned in the text."""

POSTING_SECONDS = 60.0
"""How long a replica may take to post a notice. Then another one may post it, because the first one may have died."""


class Notices(Protocol):
    async def is_first(self, what: str, *, seconds: float = ...) -> bool:
        """Claims this for so long, by default for a week; True if it was not claimed."""
        ...

    async def is_claimed(self, what: str) -> bool: ...

    async def unclaim(self, what: str) -> None:
        """Releases the claim."""
        ...


class NotifyOnce:
    def __init__(self, notices: Notices, messenger: Messenger) -> None:
        self._notices, self._messenger = notices, messenger

    async def __call__(self, about: str, text: str, mentions: Collection[str] = ()) -> None:
        """Posts the notice unless it was posted within a week.

        Raises `MessengerError` if Slack refused, or if another replica is posting it: to be tried again. What ends
        after Slack took the notice and before the storage knows is posted twice: better than a notice that is lost.
        """
        if await self._notices.is_claimed(about):
            return
        posting = f"posting/{about}"
        if not await self._notices.is_first(posting, seconds=POSTING_SECONDS):
            raise MessengerError("another replica is posting this notice", lasting=False)
        try:
            await self._messenger.announce(text, mentions=mentions)
            await self._notices.is_first(about)
        finally:
            await self._notices.unclaim(posting)

    async def forget(self, about: str) -> None:
        """Allows the notice to be sent again."""
        await self._notices.unclaim(about)
