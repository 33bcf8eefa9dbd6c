"""Removes what closed incidents leave behind when they expire: index entries, halts, bundles, buckets of the pace.

The lists of incidents by subject are indexes too: one whose last incident is gone is deleted with its last entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.adapters.redis.connection import Connection
from bot.flow.ports.storage import EVERYTHING

AT_ONCE = 100
SCANNED_AT_ONCE = 1000
UNUSED_BUNDLES_KEPT_SECONDS = 2 * 24 * 3600
"""Longer than the time between two sweeps: an incident that opens with such a bundle keeps it at the next one."""
IDLE_BUCKETS_KEPT_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Swept:
    index_entries: int
    halts: int
    unused_bundles: int
    idle_buckets: int


class RedisSweep:
    def __init__(self, connection: Connection) -> None:
        self._redis = connection

    async def __call__(self) -> Swept:
        """Raises `StorageUnavailableError`; the next sweep does the rest."""
        names = await self._redis.ask(self._redis.client.zrange(self._redis.key("incidents"), 0, -1))
        last = await self._redis.ask(self._redis.client.hgetall(self._redis.key("last")))
        listed = [(str(name), "") for name in names]
        listed += [(str(name), str(target)) for target, name in last.items()]
        removed = await self._index(self._redis.key("incidents"), listed)
        for subject in await self._names("about"):
            about = await self._redis.ask(self._redis.client.zrange(subject, 0, -1))
            removed += await self._index(subject, [(str(name), "") for name in about])
        return Swept(removed, await self._halts(), await self._bundles(), await self._buckets())

    async def _index(self, incidents: str, listed: Sequence[tuple[str, str]]) -> int:
        key = self._redis.key
        removed = 0
        for start in range(0, len(listed), AT_ONCE):
            part = listed[start : start + AT_ONCE]
            keys = [incidents, key("last"), *(key("run", name) for name, _ in part)]
            arguments = [text for pair in part for text in pair]
            removed += int(await self._redis.script("sweep_indexes", keys, arguments))
        return removed

    async def _halts(self) -> int:
        """Closing keeps the halt of an incident, because it may be opened again."""
        key, removed = self._redis.key("halt"), 0
        for name in await self._redis.ask(self._redis.client.hkeys(key)):
            is_stored = name == EVERYTHING or await self._redis.ask(
                self._redis.client.exists(self._redis.key("run", name))
            )
            removed += 0 if is_stored else int(await self._redis.ask(self._redis.client.hdel(key, name)))
        return removed

    async def _bundles(self) -> int:
        """Lets bundles expire that no stored run mentions; returns how many."""
        bundles, runs = await self._names("bundle"), await self._names("run")
        used: set[str] = set()
        for start in range(0, len(runs), AT_ONCE):
            used |= set(await self._redis.script("digests_of", runs[start : start + AT_ONCE], []))
        unused = {name for name in bundles if name.rpartition(":")[2] not in used}
        for name in bundles:
            if name in unused:
                ends = self._redis.client.expire(name, UNUSED_BUNDLES_KEPT_SECONDS, nx=True)
            else:
                ends = self._redis.client.persist(name)
            await self._redis.ask(ends)
        return len(unused)

    async def _buckets(self) -> int:
        """A bucket that was not used for a day is full, as one that is not stored."""
        key, now = self._redis.key("pace"), await self._redis.now()
        stored = await self._redis.ask(self._redis.client.hgetall(key))
        ended = now - IDLE_BUCKETS_KEPT_SECONDS
        idle = [str(name) for name, value in stored.items() if float(str(value).rpartition("|")[2]) < ended]
        if idle:
            await self._redis.ask(self._redis.client.hdel(key, *idle))
        return len(idle)

    async def _names(self, kind: str) -> list[str]:
        """Every key of a kind; a key may be missing that was stored meanwhile."""
        found, cursor = set[str](), 0
        while True:
            page = self._redis.client.scan(cursor, match=f"{self._redis.key(kind)}:*", count=SCANNED_AT_ONCE)
            cursor, names = await self._redis.ask(page)
            found |= set(map(str, names))
            if not int(cursor):
                return sorted(found)
