"""Stores which incidents share a summary message, and that message. The messenger's own record; wiring connects it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from bot.adapters.redis.connection import Connection

K = TypeVar("K")
F = TypeVar("F")
M = TypeVar("M")

MESSAGE = "message"
INCIDENT = "incident:"
CLAIM_SECONDS = 20
"""Longer than a call to Slack may take; a holder that needs more loses the claim, and its record is not kept."""


class RedisSummary(Generic[K, F, M]):
    """`make` builds the stored state from `folded` and `message`; `fields` turns one of these into plain fields."""

    def __init__(
        self,
        connection: Connection,
        make: Callable[[Mapping[str, F], M], K],
        folded: Callable[..., F],
        message: Callable[..., M],
        fields: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        self._redis, self._make, self._folded, self._message, self._fields = connection, make, folded, message, fields
        self._key = connection.key("digest")

    async def load(self) -> K:
        raw = await self._redis.ask(self._redis.client.hgetall(self._key))
        folded = {
            name.removeprefix(INCIDENT): self._folded(**json.loads(record))
            for name, record in raw.items()
            if name.startswith(INCIDENT)
        }
        return self._make(folded, self._message(**json.loads(raw.get(MESSAGE, "{}"))))

    async def fold(self, incident_id: str, before: F | None, now: F) -> bool:
        records = "" if before is None else self._record(before), self._record(now)
        return bool(await self._redis.script("digest_fold", [self._key], [INCIDENT + incident_id, *records]))

    async def unfold(self, incident_id: str) -> None:
        await self._redis.ask(self._redis.client.hdel(self._key, INCIDENT + incident_id))

    async def claim(self) -> str:
        claim = secrets.token_hex(8)
        return claim if await self._redis.script("digest_claim", [self._key], [claim, CLAIM_SECONDS]) else ""

    async def keep(self, message: M, claim: str) -> bool:
        return bool(await self._redis.script("digest_keep", [self._key], [claim, self._record(message)]))

    async def release(self, claim: str) -> None:
        await self._redis.script("digest_keep", [self._key], [claim, ""])

    def _record(self, record: F | M) -> str:
        return json.dumps(dict(self._fields(record)))
