"""Posts a notice in the channel once, whichever replica of the bot comes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from bot.domain.kernel.errors import MessengerError
from bot.flow.ports import Messenger

Announce = Callable[[str, str], Awaitable[None]]
"""(subject, text): posts the text in the channel, once by subject. Raises `MessengerError`."""


class Notices(Protocol):
    async def is_first(self, about: str) -> bool:
        """Claims this notice; True if it was not claimed yet."""
        ...

    async def is_first_no_more(self, about: str) -> None:
        """Releases the claim, so that the notice may be sent again."""
        ...


class NotifyOnce:
    def __init__(self, notices: Notices, messenger: Messenger) -> None:
        self._notices, self._messenger = notices, messenger

    async def __call__(self, about: str, text: str) -> None:
        """Raises `MessengerError` if Slack refused; the notice may be sent again then."""
        if not await self._notices.is_first(about):
            return
        try:
            await self._messenger.announce(text)
        except MessengerError:
            await self.forget(about)
            raise

    async def forget(self, about: str) -> None:
        """Allows the notice to be sent again."""
        await self._notices.is_first_no_more(about)
