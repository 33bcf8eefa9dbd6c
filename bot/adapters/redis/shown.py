"""The known content of Slack, slot by slot. The messenger's own record; wiring connects it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.domain.kernel.errors import LostRunError, NewerFormError

S = TypeVar("S")


class RedisShown(Generic[S]):
    """Keeps one record a slot. `make` and `fields` convert it from and to plain fields: adapters stay independent."""

    def __init__(
        self, connection: Connection, make: Callable[..., S], fields: Callable[[S], Mapping[str, Any]], pace: RedisPace
    ) -> None:
        """`pace`: that of posts; an attempt to post takes a token of it."""
        self._redis, self._make, self._fields, self._pace = connection, make, fields, pace

    async def load(self, incident_id: str) -> dict[str, S]:
        """Raises `NewerFormError` if a record has fields that this version of the bot does not know."""
        return self.read(
            incident_id, await self._redis.ask(self._redis.client.hgetall(self._redis.key("shown", incident_id)))
        )

    def read(self, incident_id: str, stored: Mapping[str, str]) -> dict[str, S]:
        """As `load`, from the text of the storage."""
        try:
            return {slot: self._make(**json.loads(record)) for slot, record in stored.items()}
        except TypeError as unknown:
            raise NewerFormError(f"a message of {incident_id}") from unknown

    def written(self, shown: Mapping[str, S]) -> dict[str, str]:
        return {slot: json.dumps(dict(self._fields(each))) for slot, each in shown.items()}

    async def save(self, incident_id: str, shown: Mapping[str, S]) -> None:
        """Raises `LostRunError` if the incident is not stored: its messages would be posted a second time."""
        arguments = list(chain.from_iterable(self.written(shown).items()))
        if not int(await self._redis.script("keep_shown", self._keys(incident_id), arguments)):
            raise LostRunError(f"{incident_id} is not stored any more")

    async def attempt(self, incident_id: str, shown: Mapping[str, S], *, channel: str) -> float:
        keys = [*self._keys(incident_id), self._redis.key("pace")]
        arguments = [*self._pace.bucket("post", channel), *chain.from_iterable(self.written(shown).items())]
        wait = await self._redis.script("attempt", keys, arguments)
        if wait is None:
            raise LostRunError(f"{incident_id} is not stored any more")
        return float(wait)

    def _keys(self, incident_id: str) -> list[str]:
        return [self._redis.key("run", incident_id), self._redis.key("shown", incident_id)]
