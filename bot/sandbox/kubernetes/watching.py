"""Watches: every change after a version, as one JSON object a line.

Without a version the stream starts with the existing objects; for a version that is no longer kept it sends 410 and
ends.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.resources import Resource
from bot.sandbox.kubernetes.selectors import Predicate
from bot.sandbox.kubernetes.store import Change, Store, namespace_of

Obj = dict[str, Any]

BOOKMARK_SECONDS = 30.0


@dataclass(frozen=True)
class Watch:
    """One client's watch. `version` 0 means "start with what exists"."""

    resource: Resource
    namespace: str
    selects: Predicate
    version: int
    wants_bookmarks: bool
    timeout_seconds: float

    def covers(self, obj: Obj) -> bool:
        return (not self.namespace or namespace_of(obj) == self.namespace) and self.selects(obj)


class Streams:
    """The open watches of a server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: set[asyncio.Queue[Change | None]] = set()

    def end_all(self) -> None:
        """Ends every watch as a timeout would, so that the server can stop."""
        for changes in self._open:
            changes.put_nowait(None)

    async def stream(self, watch: Watch) -> AsyncIterator[bytes]:
        """Lines until the timeout; the client is expected to return."""
        changes: asyncio.Queue[Change | None] = asyncio.Queue()
        # Subscribed before the history is read, without an await between: no change is lost or seen twice.
        unsubscribe = self._store.subscribe(changes.put_nowait)
        self._open.add(changes)
        try:
            try:
                past = list(_past(self._store, watch))
            except ApiError as error:
                yield _line("ERROR", json.dumps(error.body))
                return
            for line in past:
                yield line
            async for line in self._follow(watch, changes):
                yield line
        finally:
            self._open.discard(changes)
            unsubscribe()

    async def _follow(self, watch: Watch, changes: "asyncio.Queue[Change | None]") -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + watch.timeout_seconds
        while (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):
                    change = await changes.get()
            except TimeoutError:
                if watch.wants_bookmarks:
                    yield _bookmark(self._store, watch)
                continue
            if change is None:
                return
            if (event := event_line(change, watch)) is not None:
                yield event


def _past(store: Store, watch: Watch) -> Iterator[bytes]:
    if watch.version:
        for change in store.since(watch.version):
            line = event_line(change, watch)
            if line is not None:
                yield line
        return
    for obj in store.list(watch.resource, watch.namespace or None):
        if watch.selects(obj):
            yield _line("ADDED", json.dumps(obj, separators=(",", ":")))


def event_line(change: Change, watch: Watch) -> bytes | None:
    """An object that starts or stops matching the selector is ADDED or DELETED for this client."""
    if change.resource is not watch.resource:
        return None
    matched = change.previous is not None and watch.covers(change.previous)
    matches = change.kind != "DELETED" and watch.covers(change.obj)
    if matches:
        return _line("MODIFIED" if matched else "ADDED", change.text)
    return _line("DELETED", change.text) if matched else None


def _bookmark(store: Store, watch: Watch) -> bytes:
    obj = {
        "kind": watch.resource.kind,
        "apiVersion": watch.resource.api_version,
        "metadata": {"resourceVersion": str(store.version)},
    }
    return _line("BOOKMARK", json.dumps(obj))


def _line(kind: str, obj: str) -> bytes:
    return f'{{"type":"{kind}","object":{obj}}}\n'.encode()
