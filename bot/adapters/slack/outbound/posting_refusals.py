"""Tracks whether Slack refuses the bot's messages in its channel. While it does, one message a minute tries again.

A refusal caused by the bot's token or by the channel is not the message's fault, so no message is given up for it.
"""

from __future__ import annotations

from typing import Literal

import structlog

from bot.adapters.slack.client import PEOPLE_TAKE_SECONDS
from bot.domain.kernel.errors import MessengerError
from bot.flow.ports.people import Clock

log = structlog.get_logger(__name__)
Kind = Literal["post", "update"]


class PostingRefusals:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[Kind, tuple[float, str]] = {}

    @property
    def reason(self) -> str:
        """Why Slack refuses messages now; empty while it accepts them."""
        return next((reason for _, reason in self._refused.values()), "")

    def raise_if_refused(self, kind: Kind) -> None:
        """Raise `MessengerError` within a minute of a refusal: other calls would be refused too."""
        if kind not in self._refused:
            return
        refused_at, reason = self._refused[kind]
        rest = refused_at + PEOPLE_TAKE_SECONDS - self._clock.now()
        if rest > 0:
            raise MessengerError(reason, lasting=False, retry_after_seconds=rest)

    def refused(self, kind: Kind, reason: str) -> MessengerError:
        if kind not in self._refused:
            log.error("slack.refused", reason=reason)
        self._refused[kind] = (self._clock.now(), reason)
        return MessengerError(reason, lasting=False, retry_after_seconds=PEOPLE_TAKE_SECONDS)

    def accepted(self, kind: Kind) -> None:
        if self._refused.pop(kind, None) is not None:
            log.info("slack.accepted_again", kind=kind)

    def try_again(self) -> None:
        """Lets the next message try at once, because a person is looking."""
        self._refused = {kind: (float("-inf"), reason) for kind, (_, reason) in self._refused.items()}
