"""Who opened the app's Home and its content, for every replica of the bot."""

from __future__ import annotations

from collections.abc import Mapping

from bot.adapters.redis.connection import Connection

FORGOTTEN_AFTER_SECONDS = 7 * 24 * 3600.0


class RedisViewers:
    def __init__(self, connection: Connection) -> None:
        self._redis = connection

    async def opened(self, user: str, at: float) -> None:
        client, key = self._redis.client, self._redis.key
        await self._redis.ask(client.zadd(key("home-opened"), {user: at}))
        gone = await self._redis.ask(client.zrangebyscore(key("home-opened"), "-inf", at - FORGOTTEN_AFTER_SECONDS))
        if gone:
            await self._redis.ask(client.hdel(key("home-shown"), *gone))
            await self._redis.ask(client.zrem(key("home-opened"), *gone))

    async def since(self, at: float) -> Mapping[str, str]:
        """Who opened it after that moment, the latest first, with the hash of what was published last."""
        client, key = self._redis.client, self._redis.key
        users = await self._redis.ask(client.zrevrangebyscore(key("home-opened"), "+inf", f"({at}"))
        shown = await self._redis.ask(client.hmget(key("home-shown"), users)) if users else []
        return {str(user): str(content or "") for user, content in zip(users, shown, strict=True)}

    async def published(self, user: str, content: str) -> None:
        await self._redis.ask(self._redis.client.hset(self._redis.key("home-shown"), user, content))
