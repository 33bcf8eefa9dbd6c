"""The epoch of the data in Redis: it lets a process detect that the data was lost, and give no number twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from bot.adapters.redis.connection import Connection
from bot.domain.kernel.epoch import Epoch
from bot.domain.kernel.errors import StorageUnavailableError
from bot.flow.ports.storage import StorageSeen

log = structlog.get_logger()


class RedisEpoch:
    """`flow.ports.EpochStore`. This process knows the epoch that it last saw or began."""

    def __init__(self, connection: Connection) -> None:
        self._redis = connection
        self._known = ""

    async def look(self) -> StorageSeen:
        ask, client, key = self._redis.ask, self._redis.client, self._redis.key
        raw, counter = await ask(client.mget([key("epoch"), key("counter")]))
        server = await self._server()
        if raw is not None:
            self._known = str(raw)
        return StorageSeen(
            epoch=None if raw is None else Epoch.model_validate_json(raw),
            counter=None if counter is None else int(counter),
            server=str(server.get("run_id", "")),
            # Forty zeros if it was never a replica, which redis-py reads as a number.
            was_promoted=str(server.get("master_replid2", "")).strip("0") != "",
        )

    async def _server(self) -> Mapping[str, Any]:
        """Empty if a managed Redis does not report it: then only missing data shows a failover."""
        try:
            info = self._redis.client.info
            return {**await self._redis.ask(info("server")), **await self._redis.ask(info("replication"))}
        except StorageUnavailableError as error:
            log.debug("storage.server_unknown", reason=str(error))
            return {}

    async def begin(self, epoch: Epoch) -> Epoch:
        keys = [self._redis.key("epoch"), self._redis.key("counter")]
        self._known = str(await self._redis.script("epoch", keys, [epoch.model_dump_json(), epoch.after]))
        return Epoch.model_validate_json(self._known)

    async def raise_counter(self, least: int) -> None:
        await self._redis.script("raise_counter", [self._redis.key("counter")], [least])

    async def next_number(self) -> int:
        """Raises `StorageUnavailableError` until the epoch is known."""
        keys = [self._redis.key("epoch"), self._redis.key("counter")]
        number = await self._redis.script("next_number", keys, [self._known]) if self._known else None
        if number is None:
            raise StorageUnavailableError("Redis is empty or was replaced; new incidents wait until that is looked at")
        return int(number)
