"""Connects to the primary, wherever it is after a failover.

All keys of a deployment share one hash tag, so a Redis Cluster keeps them on one node. A connection to that node, or to
the primary that Sentinel names, is therefore an ordinary one: scripts, transactions and WAIT work as on one server. The
primary is looked up whenever a connection is opened, and a connection to a server that is no longer the primary is
closed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import hiredis
import redis.asyncio as aioredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection
from redis.asyncio.connection import Connection as RedisConnection
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
)
from redis.crc import key_slot
from redis.credentials import CredentialProvider
from redis.exceptions import ClusterDownError, MovedError, RedisError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

from bot.domain.kernel.redis_address import RedisAddress


def client_of(address: RedisAddress, *, tag: str, **options: Any) -> aioredis.Redis:
    """`options`: of every connection, such as time-outs. Nothing is connected yet."""
    client = _client_of(address, tag, options)
    pool = client.connection_pool
    kind = PlainConnection if isinstance(pool, PlainPool) else PackingConnection
    pool.connection_class = type(kind.__name__, (kind, pool.connection_class), {})
    return client


def fails_over(client: aioredis.Redis) -> bool:
    """Whether another server becomes its primary: with Sentinel, or in a Redis Cluster."""
    return isinstance(client.connection_pool, SentinelConnectionPool)


def client_of_node(client: aioredis.Redis, host: str, port: int) -> aioredis.Redis:
    """Another client, for one server of those that fail over, with the same login, encryption and time-outs."""
    pool = client.connection_pool
    options = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
    kind = SSLConnection if issubclass(pool.connection_class, SSLConnection) else RedisConnection
    return aioredis.Redis.from_pool(ConnectionPool(kind, host=host, port=port, **options))


class PackingConnection(AbstractConnection):
    """A connection whose commands hiredis packs, as in redis-py's client without asyncio (8.1).

    A script with eight keys and eight arguments of 300 bytes is packed in 1.4 instead of 12 µs, a tenth of its CPU.
    """

    def pack_command(self, *args: Any) -> list[bytes]:
        command, *rest = args
        return [hiredis.pack_command((*command.split(), *rest))]  # `CLUSTER SLOTS` is two words


class PlainConnection(PackingConnection):
    """A connection of `PlainPool`: without the time-outs and health checks of redis-py (8.1), of which none are used.

    One command at a time is under way and its answer is waited for, so nothing is gained by waiting for its sending.
    """

    async def send_command(self, *args: Any, **kwargs: Any) -> None:
        writer: asyncio.StreamWriter | None = self._writer
        if writer is None:
            await super().send_command(*args, **kwargs)
        else:
            writer.write(self.pack_command(*args)[0])

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return await super().read_response(*args, **kwargs)
        parser: Any = self._parser
        try:
            answer = await parser.read_response()
        except BaseException:
            # The answer may still come: the next command must not take it for its own.
            await self.disconnect(nowait=True)
            raise
        if isinstance(answer, ResponseError):
            raise answer
        return answer


class PlainPool(ConnectionPool):
    """redis-py's pool (8.1) without its lock, telemetry and events, which take a third of the CPU of a short command.

    No lock is needed: nothing awaits between the choice of a connection and its removal from the free ones. And a
    connection that the server closed is opened again; redis-py misses that where it listens for maintenance messages.
    """

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        connection = self.get_available_connection()  # type: ignore[no-untyped-call]
        try:
            if not connection.is_connected:
                await connection.connect()
            elif await connection.can_read():  # the server closed it
                await connection.disconnect()
                await connection.connect()
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        self._in_use_connections.remove(connection)
        if connection.should_reconnect():
            await connection.disconnect()
        self._available_connections.append(connection)


class PasswordFile(CredentialProvider):
    """Reads the password for each connection that is opened, so that a rotated one needs no restart."""

    def __init__(self, username: str, path: str) -> None:
        self._username, self._path = username, path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = Path(self._path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            # After any other error, redis-py would keep the connection that has not logged in.
            raise RedisConnectionError(f"{self._path} cannot be read: {error.strerror}") from error
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


def _client_of(address: RedisAddress, tag: str, options: dict[str, Any]) -> aioredis.Redis:
    login: dict[str, Any] = {"username": address.username or None, "password": address.password or None}
    if address.password_file:
        login = {"credential_provider": PasswordFile(address.username, address.password_file)}
    if address.kind == "server":
        own_login = login if address.password_file else {}  # else it is in the address
        return aioredis.Redis.from_pool(PlainPool.from_url(address.url, **own_login, **options))
    timeouts = {name: value for name, value in options.items() if name.startswith("socket_")}
    encrypted = {"ssl": True} if address.is_encrypted else {}
    if address.kind == "sentinel":
        own = {"username": address.sentinel_username or None, "password": address.sentinel_password or None}
        finder: Any = Sentinel(address.nodes, sentinel_kwargs={**own, **encrypted, **timeouts})  # type: ignore[no-untyped-call]
        kind: dict[str, Any] = encrypted
    else:
        finder = SlotOwner(address.nodes, tag, {**login, **encrypted, **timeouts})
        kind = {"connection_class": EncryptedNodeConnection if address.is_encrypted else NodeConnection}
    own_pool = {"db": address.database, **login, **kind, **options}
    return aioredis.Redis.from_pool(SentinelConnectionPool(address.service, finder, **own_pool))  # type: ignore[no-untyped-call]


class SlotOwner:
    """Finds the node of a cluster that has the slot of the bot's keys. Has the method of `Sentinel` that pools call."""

    def __init__(self, nodes: tuple[tuple[str, int], ...], tag: str, options: dict[str, Any]) -> None:
        self._nodes, self._options = list(nodes), options
        self._slot = key_slot(b"{" + tag.encode() + b"}")

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Raises `MasterNotFoundError` if no node answers, or none has the slot."""
        reasons: list[str] = []
        for host, port in tuple(self._nodes):
            client = aioredis.Redis(host=host, port=port, decode_responses=True, **self._options)
            try:
                ranges = await client.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
            except (RedisError, OSError, TimeoutError) as error:
                reasons.append(f"{host}:{port}: {error}")
                continue
            finally:
                await client.aclose()
            known, owner = self._read(ranges, host)
            if owner is None:
                reasons.append(f"{host}:{port}: no node has slot {self._slot}")
                continue
            # Those that answered come first; those of the settings stay, because the others may get new addresses.
            self._nodes = list(dict.fromkeys([(host, port), *known, *self._nodes]))
            return owner
        raise MasterNotFoundError(f"no primary found: {'; '.join(reasons)}")

    def _read(self, ranges: Any, asked: str) -> tuple[list[tuple[str, int]], tuple[str, int] | None]:
        """The nodes in an answer to CLUSTER SLOTS, and the one that has the slot."""
        owner, known = None, list[tuple[str, int]]()
        for first, last, *nodes in ranges:
            # A node that does not know its own address leaves it empty.
            here = [(str(host or asked), int(port)) for host, port, *_ in nodes]
            known += here
            if here and int(first) <= self._slot <= int(last):
                owner = here[0]
        return known, owner


class NodeConnection(SentinelManagedConnection):
    """A connection to a node of a cluster: it ends when the node no longer has the slot."""

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)
        except (MovedError, ClusterDownError, TryAgainError) as error:
            await self.disconnect()
            raise RedisConnectionError(f"another node of the cluster has the data now, or none: {error}") from error


class EncryptedNodeConnection(NodeConnection, SSLConnection):
    pass
