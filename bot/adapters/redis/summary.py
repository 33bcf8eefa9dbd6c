"""Stores which incidents share a summary message, and that message. The messenger's own record; wiring connects it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from bot.adapters.redis.connection import Connection

MESSAGE = "message"
CLAIM_SECONDS = 20
"""Longer than a call to Slack may take; a holder that needs more loses the claim, and its record is not kept."""


class RedisSummary:
    """What is known of the message is text that only its caller reads."""

    def __init__(self, connection: Connection, cards: tuple[float, float]) -> None:
        """`cards`: the pace of cards, in tokens a second and at once, from the bucket that `RedisPace` uses as well."""
        self._redis, self._cards = connection, cards
        names = ("summary", "summary-lines", "summary-waits", "summary-granted")
        self._keys = [connection.key(name) for name in names]
        self._record, self._lines, self._waits, _granted = self._keys

    async def load(self) -> tuple[Mapping[str, str], str]:
        ask, client = self._redis.ask, self._redis.client
        message = await ask(client.hget(self._record, MESSAGE))
        return await ask(client.hgetall(self._lines)), message or ""

    async def turn(
        self, incident_id: str, line: str, channel: str, *, compete: int, look_again_seconds: float
    ) -> tuple[float, int, int, str]:
        keys = [*self._keys, self._redis.key("pace")]
        arguments = [incident_id, line, f"card/{channel}", *self._cards, compete, look_again_seconds]
        wait, older, listed, message = await self._redis.script("summary_turn", keys, arguments)
        return float(wait), int(older), int(listed), str(message)

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
