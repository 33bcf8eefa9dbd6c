"""Slack's last answers about accounts and groups, with their time, for every replica of the bot."""

from __future__ import annotations

from bot.adapters.redis.connection import Connection


class RedisPeople:
    def __init__(self, connection: Connection) -> None:
        self._redis, self._key = connection, connection.key("people")

    async def keep(self, what: str, answer: str, *, at: float) -> None:
        await self._redis.ask(self._redis.client.hset(self._key, what, f"{at}|{answer}"))

    async def last(self, what: str) -> tuple[str, float] | None:
        """The last answer and its time; None if it was never read."""
        found = await self._redis.ask(self._redis.client.hget(self._key, what))
        if found is None:
            return None
        at, _, answer = str(found).partition("|")
        return answer, float(at)
