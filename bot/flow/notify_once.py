"""Say something in the channel once, whichever replica of the bot comes first."""

from __future__ import annotations

from typing import Protocol

from bot.domain.kernel.errors import MessengerError
from bot.flow.ports import Messenger


class Notices(Protocol):
    async def is_first(self, about: str) -> bool:
        """Whether nobody has claimed this notice yet; it is claimed now."""
        ...

    async def is_first_no_more(self, about: str) -> None:
        """Give the claim back, so that the notice may be sent again."""
        ...


class NotifyOnce:
    def __init__(self, notices: Notices, messenger: Messenger) -> None:
        self._notices, self._messenger = notices, messenger

    async def __call__(self, about: str, text: str) -> None:
        """Raise `MessengerError` when Slack refused; the notice may be sent again then."""
        if not await self._notices.is_first(about):
            return
        try:
            await self._messenger.announce(text)
        except MessengerError:
            await self.forget(about)
            raise

    async def forget(self, about: str) -> None:
        """The notice may be sent again."""
        await self._notices.is_first_no_more(about)
