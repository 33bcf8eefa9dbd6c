"""Stores which incidents share a summary message, and that message. The messenger's own record; wiring connects it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from bot.adapters.redis.connection import Connection

MESSAGE = "message"
KEPT_FOR_PEOPLE = 5
"""One card in so many is only for incidents that need a person."""
COMPETE = 20
"""How many of the first that wait compete for the next card."""
PATIENCE_SECONDS = 5.0
"""How long a card is kept for the first ones; after that any that competes takes it."""
MAX_REST_SECONDS = 600.0
ON_ITS_WAY_SECONDS = 600.0
"""A granted card that is not in Slack after this time no longer keeps others back."""
CLAIM_SECONDS = 20
"""Longer than a call to Slack may take; a holder that needs more loses the claim, and its record is not kept."""


class RedisSummary:
    """What is known of the message is text that only its caller reads."""

    def __init__(self, connection: Connection, cards: tuple[int, float]) -> None:
        """`cards`: how many there may be in any period, and its seconds."""
        self._redis, (self._cards, self._period) = connection, cards
        names = ("summary", "summary-lines", "summary-waits", "summary-granted", "summary-cards")
        self._keys = [connection.key(name) for name in names]
        self._record, self._lines, self._waits, *_ = self._keys

    async def load(self) -> tuple[Mapping[str, str], str]:
        ask, client = self._redis.ask, self._redis.client
        message = await ask(client.hget(self._record, MESSAGE))
        return await ask(client.hgetall(self._lines)), message or ""

    async def turn(
        self, incident_id: str, line: str, order: float, *, needs_a_person_below: float
    ) -> tuple[float, int, str, bool]:
        kept = max(1, self._cards // KEPT_FOR_PEOPLE)
        arguments = [
            incident_id, line, order, needs_a_person_below, self._cards, self._period, kept, COMPETE, PATIENCE_SECONDS,
            MAX_REST_SECONDS, ON_ITS_WAY_SECONDS,
        ]  # fmt: skip
        wait, listed, message, leaves = await self._redis.script("summary_turn", self._keys, arguments)
        return float(wait), int(listed), str(message), bool(leaves)

    async def comes_next(self, incident_id: str) -> None:
        await self._redis.ask(self._redis.client.zrem(self._waits, incident_id))

    async def leave(self, incident_id: str) -> tuple[int, str]:
        listed, message = await self._redis.script("summary_leave", self._keys, [incident_id])
        return int(listed), str(message)

    async def claim(self) -> str:
        claim = secrets.token_hex(8)
        return claim if await self._redis.script("summary_claim", [self._record], [claim, CLAIM_SECONDS]) else ""

    async def keep(self, message: str, claim: str) -> bool:
        return bool(await self._redis.script("summary_keep", [self._record], [claim, message]))

    async def release(self, claim: str) -> None:
        await self._redis.script("summary_keep", [self._record], [claim, ""])
