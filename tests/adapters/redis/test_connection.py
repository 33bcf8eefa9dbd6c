"""The bot recovers cancellations that redis-py loses: deadlines end their operations, and loops end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from bot.adapters.redis.connection import Connection
from bot.domain.kernel.errors import StorageUnavailableError
from bot.sandbox import valkey

pytestmark = pytest.mark.fast


class LateCancel:
    """A client, its pool and its connection in one.

    Sends as redis-py does: by `asyncio.wait_for`, with a cancellation that comes just when it was sent.
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel, self.connection_pool = cancel, self

    async def get_connection(self) -> LateCancel:
        return self

    async def release(self, connection: LateCancel) -> None:
        assert connection is self

    async def _send(self) -> None:
        self._cancel()
        await asyncio.sleep(0)  # the loop carries the cancellation out, from Python 3.12 on only here

    async def send_command(self, *_: object) -> None:
        await asyncio.wait_for(self._send(), 5)

    async def read_response(self) -> str:
        return "1.5"


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


async def test_a_connection_that_was_closed_while_idle_is_opened_again(redis_server: valkey.Embedded) -> None:
    asked = Connection.open(redis_server.url)
    pool = asked.client.connection_pool
    try:
        await asked.now()
        (idle,) = pool._available_connections
        reader = idle._reader
        assert reader is not None
        await asked.client.client_kill_filter(_id=str(await asked.client.client_id()), skipme=False)
        await reader.read()  # until the server's end arrives
        assert await asked.now() > 0
    finally:
        await asked.close()
    assert pool._available_connections == [idle]
    assert not pool._in_use_connections


async def test_a_password_that_was_rotated_is_read_again_from_its_file(
    redis_server: valkey.Embedded, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    admin = Connection.open(redis_server.url)
    asked = Connection.open(f"{redis_server.url.replace('://', '://rotated@')}?password_file={file}")
    try:
        for password in ("first", "second"):
            file.write_text(f"{password}\n")
            for command in (
                ("ACL", "SETUSER", "rotated", "on", "resetpass", f">{password}", "~*", "+@all"),
                ("CLIENT", "KILL", "USER", "rotated"),
            ):
                await admin.ask(admin.client.execute_command(*command))  # type: ignore[no-untyped-call]
            assert await asked.now() > 0
        file.unlink()
        await asked.client.connection_pool.disconnect()
        with pytest.raises(StorageUnavailableError, match="No such file"):
            await asked.now()
    finally:
        await admin.client.acl_deluser("rotated")
        await admin.close()
        await asked.close()


async def test_a_connection_that_cannot_be_opened_is_given_back() -> None:
    asked = Connection.open("redis://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            await asked.now()
    assert len(asked.client.connection_pool._available_connections) == 1


async def test_the_answer_to_a_command_that_was_cancelled_is_not_taken_for_the_next_one(
    redis_server: valkey.Embedded,
) -> None:
    asked = Connection.open(redis_server.url)
    try:
        await asked.now()
        sent = asyncio.create_task(asked.now())
        await asyncio.sleep(0)  # its first step sends it
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent
        assert await asked.ask(asked.client.echo("mine")) == "mine"
    finally:
        await asked.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_command_on_a_connection_that_just_broke_says_that_redis_did_not_answer(
    loop: Callable[[], asyncio.AbstractEventLoop], redis_server: valkey.Embedded
) -> None:
    async def ask_twice() -> None:
        asked = Connection.open(redis_server.url)
        try:
            await asked.now()
            (idle,) = asked.client.connection_pool._available_connections
            assert idle._writer is not None
            idle._writer.transport.abort()
            with pytest.raises(StorageUnavailableError, match="did not answer 'now'"):
                await asked.now()
            assert await asked.now() > 0
        finally:
            await asked.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask_twice())
