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
from redis.driver_info import DriverInfo
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from bot.adapters.redis.primary import client_of
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.redis_address import redis_address

SILENT_SECONDS = 3.0
"""A frozen Redis is reported after this time. It is longer than replicas may take to confirm."""
REPLICAS_MILLISECONDS = 2000
CONNECT_SECONDS = 2.0
SERVER_TIME = "local function TIME() return redis.call('TIME') end\n"
"""Precedes every script. Tests replace it with their own clock, so that a day passes in a moment."""


class Connection:
    """Runs the Lua scripts of `lua/` by name; every Redis failure becomes `StorageUnavailableError`."""

    def __init__(
        self,
        client: aioredis.Redis,
        *,
        tag: str = "bot",
        clock: str = SERVER_TIME,
        address: str = "",
        silent_seconds: float | None = None,
    ) -> None:
        """`address`: what may be shown of it; empty: the client's host and port.

        `silent_seconds`: the time-out of one command; None: the client has its own.
        """
        self.client, self.tag, self._address, self._silent_seconds = client, tag, address, silent_seconds
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
        """`url`: as `redis_address` reads it. `silent_seconds`: the time-out of one command."""
        # Never retried automatically: a silence was already waited for, and after a cut the command may have been
        # carried out.
        retry = Retry(NoBackoff(), 0)
        address = redis_address(url)
        # To find a primary takes a time-out for each server that is gone, so there redis-py limits each command itself.
        is_server = address.kind == "server"
        client = client_of(
            address, tag=tag, decode_responses=True, max_connections=500,
            socket_timeout=None if is_server else silent_seconds, socket_connect_timeout=CONNECT_SECONDS, retry=retry,
            driver_info=DriverInfo(),  # else each connection reads its version from the installed package
        )  # fmt: skip
        if is_server:
            return cls(client, tag=tag, silent_seconds=silent_seconds)
        return cls(client, tag=tag, address=str(address))

    @property
    def address(self) -> str:
        """The parts of the URL that may be shown."""
        where = self.client.connection_pool.connection_kwargs
        return self._address or str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")

    def key(self, *parts: str) -> str:
        return "{" + self.tag + "}:" + ":".join(parts)

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            try:
                return await self.answer_to(
                    self._run("EVALSHA", self._digests[name], len(keys), *keys, *map(str, args))
                )
            except NoScriptError:
                return await self.answer_to(self.client.eval(self._scripts[name], len(keys), *keys, *map(str, args)))
        except (RedisError, OSError, TimeoutError) as error:
            raise _unavailable(f" '{name}'", error) from error

    async def _run(self, *command: Any) -> Any:
        """Like redis-py's `execute_command`, for an answer that needs no conversion, at three quarters of its CPU.

        Omitted are its retries, of which none are wanted here, and its telemetry.
        """
        pool = self.client.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.send_command(*command)
            return await connection.read_response()
        finally:
            await pool.release(connection)

    async def replicated_script(self, name: str, keys: Sequence[str], args: Sequence[Any], *, replicas: int) -> Any:
        """Like `script`, and returns only once `replicas` have what it wrote; raises if they do not within 2 s.

        WAIT counts the writes of its own connection, so all is sent on one. The script may find that another connection
        has done its writes: a write of this one comes after them.
        """
        if not replicas:
            return await self.script(name, keys, args)
        sent = self.client.pipeline(transaction=False)
        sent.eval(self._scripts[name], len(keys), *keys, *map(str, args))
        sent.incr(self.key("confirmed"))
        sent.execute_command("WAIT", replicas, REPLICAS_MILLISECONDS)
        try:
            answer, _, confirmed = await self.answer_to(sent.execute())
        except (RedisError, OSError, TimeoutError) as error:
            raise _unavailable(f" '{name}'", error) from error
        if confirmed < replicas:
            raise StorageUnavailableError(f"fewer than {replicas} replicas confirmed '{name}'")
        return answer

    async def ask(self, command: Any) -> Any:
        """Awaits one redis-py command; a failure becomes `StorageUnavailableError`."""
        try:
            return await self.answer_to(command)
        except (RedisError, OSError, TimeoutError) as error:
            raise _unavailable("", error) from error

    async def answer_to(self, command: Any) -> Any:
        """The answer to one redis-py command, or its own failure, unless this task was cancelled meanwhile.

        Where redis-py limits a command itself, it uses `asyncio.wait_for`. That makes a task for each, and before
        Python 3.12 it loses a cancellation that comes just when the command is sent or times out: then a deadline would
        not end what it limits, and a cancelled loop would run forever.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        timeout = asyncio.timeout(self._silent_seconds)
        try:
            async with timeout:
                answer = await command
        except (RedisError, OSError, TimeoutError) as error:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from error
            if isinstance(error, ReadOnlyError):
                await self._leave()
            if timeout.expired():
                raise TimeoutError(f"no answer within {self._silent_seconds:g} s") from error
            raise
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return answer

    async def _leave(self) -> None:
        """Closes what is open to a server that has become a replica: behind its address may be another one by now."""
        for connection in tuple(self.client.connection_pool._available_connections):
            await connection.disconnect(nowait=True)

    async def now(self) -> float:
        """The storage's time in epoch seconds."""
        return float(await self.script("now", [], []))

    async def close(self) -> None:
        await self.client.aclose()


def _unavailable(what: str, error: Exception) -> StorageUnavailableError:
    did = "refused" if isinstance(error, ResponseError) else "did not answer"
    return StorageUnavailableError(f"Redis {did}{what}: {error}")
