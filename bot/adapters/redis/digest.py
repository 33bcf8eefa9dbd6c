"""Which incidents share the digest, and the message that it is. The messenger's own record; wiring hands it over."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from bot.adapters.redis.connection import Connection

K = TypeVar("K")
F = TypeVar("F")
M = TypeVar("M")

MESSAGE = "message"
INCIDENT = "incident:"
CLAIM_SECONDS = 20
"""Longer than a call to Slack may take."""


class RedisDigest(Generic[K, F, M]):
    """`make` builds all that is kept, of `folded` and `message`; `fields` turns one of these into plain fields."""

    def __init__(
        self,
        connection: Connection,
        make: Callable[[Mapping[str, F], M], K],
        folded: Callable[..., F],
        message: Callable[..., M],
        fields: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        self._redis, self._make, self._folded, self._message, self._fields = connection, make, folded, message, fields
        self._key, self._claim = connection.key("digest"), connection.key("digest_claim")

    async def load(self) -> K:
        raw = await self._redis.ask(self._redis.client.hgetall(self._key))
        folded = {
            name.removeprefix(INCIDENT): self._folded(**json.loads(record))
            for name, record in raw.items()
            if name.startswith(INCIDENT)
        }
        return self._make(folded, self._message(**json.loads(raw.get(MESSAGE, "{}"))))

    async def fold(self, incident_id: str, folded: F) -> None:
        await self._save(INCIDENT + incident_id, folded)

    async def unfold(self, incident_id: str) -> None:
        await self._redis.ask(self._redis.client.hdel(self._key, INCIDENT + incident_id))

    async def keep(self, message: M) -> None:
        await self._save(MESSAGE, message)

    async def claim(self) -> bool:
        return bool(await self._redis.ask(self._redis.client.set(self._claim, "1", nx=True, ex=CLAIM_SECONDS)))

    async def release(self) -> None:
        await self._redis.ask(self._redis.client.delete(self._claim))

    async def _save(self, name: str, record: F | M) -> None:
        await self._redis.ask(self._redis.client.hset(self._key, name, json.dumps(dict(self._fields(record)))))
