"""Token buckets shared by every replica of the bot, so that together they keep within Slack's limits."""

from __future__ import annotations

from bot.adapters.redis.connection import Connection


class RedisPace:
    def __init__(self, connection: Connection, buckets: dict[str, tuple[float, float]]) -> None:
        """`buckets`: kind to (tokens a second, burst)."""
        self._redis, self._buckets = connection, buckets

    async def take(self, kind: str, key: str) -> float:
        """Seconds to wait before one more of this kind; 0 if it may go now."""
        return float(await self._redis.script("pace", [self._redis.key("pace")], self.bucket(kind, key)))

    def bucket(self, kind: str, key: str) -> tuple[str, float, float]:
        """The arguments of a script that takes a token: the bucket's name, tokens a second, and its burst."""
        return f"{kind}/{key}", *self._buckets[kind]
