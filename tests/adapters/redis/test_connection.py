"""The bot recovers cancellations that redis-py loses: deadlines end their operations, and loops end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from bot.adapters.redis.connection import Connection

pytestmark = pytest.mark.fast


class LateCancel:
    """Answers as redis-py does: sent by `asyncio.wait_for`, with a cancellation that comes just when it was sent."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel

    async def _send(self) -> str:
        self._cancel()
        return "1.5"

    async def evalsha(self, *_: object) -> str:
        return await asyncio.wait_for(self._send(), 5)


def connection(cancel: Callable[[], object]) -> Connection:
    return Connection(cast(Redis, LateCancel(cancel)))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("CLUSTER SLOTS",), id="two-words"),
        pytest.param(("EVALSHA", "5e1f", 1, "{bot}:run:INC-1", "Qwen – ü", b"\x00\xff", 0.25), id="arguments"),
        pytest.param(("SET", "key", "x" * 70_000), id="large"),
    ],
)
def test_a_command_is_packed_as_redis_py_packs_it(command: tuple[Any, ...]) -> None:
    pool = Connection.open("redis://127.0.0.1:1").client.connection_pool
    opened = pool.make_connection()  # type: ignore[no-untyped-call]
    assert b"".join(opened.pack_command(*command)) == b"".join(AbstractConnection.pack_command(opened, *command))


async def test_a_loop_that_is_cancelled_while_it_sends_ends() -> None:
    async def renew(asked: Connection) -> None:
        while True:
            await asked.script("renew", [], [])

    tasks: list[asyncio.Task[None]] = []
    asked = connection(lambda: tasks[0].cancel() if not tasks[0].cancelling() else None)
    tasks.append(asyncio.create_task(renew(asked)))
    await asyncio.wait(tasks, timeout=5)
    assert tasks[0].cancelled()


async def test_a_deadline_that_passes_while_it_sends_ends_what_it_limits() -> None:
    went_on = False

    async def limited() -> None:
        nonlocal went_on
        async with asyncio.timeout(3600) as deadline:
            past = asyncio.get_running_loop().time() - 1
            await connection(lambda: deadline.reschedule(past)).now()
            went_on = True

    with pytest.raises(TimeoutError):
        await limited()
    assert not went_on


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://ana:s3cret@redis.example:6380/1", "redis.example:6380"),
        ("rediss://:s3cret@10.0.0.7", "10.0.0.7:6379"),
        ("unix://:s3cret@/run/redis.sock", "/run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_its_secret(url: str, address: str) -> None:
    assert Connection.open(url).address == address
