"""One Redis connection per process, with its key names and scripts. Every key of a deployment shares one hash tag."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from bot.domain.kernel.errors import StorageUnavailableError

SILENT_SECONDS = 3.0
"""A frozen Redis is reported after this time. It is longer than `wait_for_replicas` may take."""
CONNECT_SECONDS = 2.0
SERVER_TIME = "local function TIME() return redis.call('TIME') end\n"
"""Precedes every script. Tests replace it with their own clock, so that a day passes in a moment."""


class Connection:
    """Runs the Lua scripts of `lua/` by name; every Redis failure becomes `StorageUnavailableError`."""

    def __init__(self, client: aioredis.Redis, *, tag: str = "bot", clock: str = SERVER_TIME) -> None:
        self.client, self.tag = client, tag
        files = resources.files("bot.adapters.redis")
        functions = files.joinpath("functions.lua").read_text()
        self._scripts = {
            path.name.removesuffix(".lua"): clock + functions + path.read_text()
            for path in files.joinpath("lua").iterdir()
            if path.name.endswith(".lua")
        }
        self._digests = {
            name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in self._scripts.items()
        }

    @classmethod
    def open(cls, url: str, *, tag: str = "bot", silent_seconds: float = SILENT_SECONDS) -> Connection:
        """`silent_seconds`: the time-out of one command."""
        # Never retried automatically: a silence was already waited for, and after a cut the command may have been
        # carried out.
        retry = Retry(NoBackoff(), 0)
        client = aioredis.from_url(
            url, decode_responses=True, max_connections=500, socket_timeout=silent_seconds,
            socket_connect_timeout=CONNECT_SECONDS, retry=retry,
        )  # fmt: skip
        return cls(client, tag=tag)

    @property
    def address(self) -> str:
        """Host and port, or the socket's path: the parts of the URL that may be shown."""
        where = self.client.connection_pool.connection_kwargs
        return str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")

    def key(self, *parts: str) -> str:
        return "{" + self.tag + "}:" + ":".join(parts)

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            try:
                return await _heard(self.client.evalsha(self._digests[name], len(keys), *keys, *map(str, args)))
            except NoScriptError:
                return await _heard(self.client.eval(self._scripts[name], len(keys), *keys, *map(str, args)))
        except (RedisError, OSError, TimeoutError) as error:
            raise StorageUnavailableError(f"Redis did not do '{name}': {error}") from error

    async def ask(self, command: Any) -> Any:
        """Awaits one redis-py command; a failure becomes `StorageUnavailableError`."""
        try:
            return await _heard(command)
        except (RedisError, OSError, TimeoutError) as error:
            raise StorageUnavailableError(f"Redis did not answer: {error}") from error

    async def now(self) -> float:
        """The storage's time in epoch seconds."""
        return float(await self.script("now", [], []))

    async def wait_for_replicas(self, replicas: int, *, timeout_milliseconds: int = 2000) -> None:
        """Returns once `replicas` have the last write; raises if they do not: no call on an unreplicated claim."""
        if replicas and await self.ask(self.client.wait(replicas, timeout_milliseconds)) < replicas:
            raise StorageUnavailableError(f"fewer than {replicas} replicas confirmed the claim")

    async def close(self) -> None:
        await self.client.aclose()


async def _heard(command: Any) -> Any:
    """The answer, unless this task was cancelled meanwhile.

    redis-py sends by `asyncio.wait_for`, which before Python 3.12 loses a cancellation that comes just when the command
    is sent: then a deadline would not end what it limits, and a cancelled loop would run forever.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    answer = await command
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer
