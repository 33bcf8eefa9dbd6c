"""Reads from Redis for the command line, and stores commands there for the running bot."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.adapters.yaml_playbooks import StoredPlaybooks
from bot.cli.failures import CommandError
from bot.dependencies import Circuits, OneCluster, Storage, open_clusters, open_storage
from bot.domain.incidents.machine import Rules
from bot.domain.incidents.run import Run
from bot.domain.incidents.series import Series
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import UnknownClusterError
from bot.domain.kernel.target import cluster_named
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.flow.advance_run import AdvanceRun
from bot.flow.clusters import absent
from bot.flow.handlers.draw_chart import ReadSeriesHandler
from bot.flow.ports.readings import History
from bot.flow.receive_input import ReceiveInput
from bot.settings import Settings, StorageSettings

T = TypeVar("T")
_INCIDENT = re.compile(r"(?:INC-)?(\d+)", re.ASCII | re.IGNORECASE)


def incident_id(text: str) -> str:
    """The incident that a person names: `INC-7`, or as in Slack `inc-7` or `7`."""
    found = _INCIDENT.fullmatch(text)
    if found is None:
        raise CommandError(f"'{text}' is not an incident such as INC-7")
    return f"INC-{int(found[1])}"


def loaded(loading: Coroutine[Any, Any, T]) -> T:
    """What `loading` returns, by its own event loop.

    `asyncio.run` formats the repr of its task when it ends, result included. For a whole run that takes longer than
    to load it, so the task returns nothing.
    """
    kept: list[T] = []

    async def keep() -> None:
        kept.append(await loading)

    asyncio.run(keep())
    return kept[0]


@contextlib.asynccontextmanager
async def _store(redis_url: str, tag: str) -> AsyncIterator[RedisStore]:
    connection = Connection.open(redis_url, tag=tag)
    try:
        yield RedisStore(connection, owner="cli")
    finally:
        await connection.close()


async def load_run(redis_url: str, incident_id: str, *, tag: str = "bot") -> Run | None:
    async with _store(redis_url, tag) as store:
        return await store.load(incident_id)


async def load_timeline(redis_url: str, incident_id: str, *, tag: str = "bot") -> Sequence[Chained]:
    async with _store(redis_url, tag) as store:
        return await store.timeline(incident_id)


async def load_whole_timeline(
    redis_url: str, incident_id: str, *, tag: str = "bot"
) -> tuple[Sequence[Chained], StoredHead | None]:
    """The timeline, and the head that its run has stored."""
    async with _store(redis_url, tag) as store:
        return await store.whole_timeline(incident_id)


async def load_unmatched(redis_url: str, *, tag: str = "bot") -> Sequence[tuple[Alert, str]]:
    """The newest alerts that opened no incident, each with its reason."""
    async with _store(redis_url, tag) as store:
        return await store.unmatched(10)


async def load_lines(settings: Settings, incident_id: str) -> Sequence[Series]:
    """The charted signals of an open incident up to now. Empty for a closed one: its timeline has them."""
    async with contextlib.AsyncExitStack() as stack:
        storage = open_storage(settings, stack)
        run = await storage.store.load(incident_id)
        if run is None or not run.is_open:
            return ()
        history = history_of(open_clusters(settings, storage, Circuits(), stack), run, storage)
        rules = Rules(approvals=settings.approvals.rules())
        playbook_of = AdvanceRun(storage.store, StoredPlaybooks(), rules).playbook_of
        return await ReadSeriesHandler(history, playbook_of).lines_or_why_not(run, await storage.store.now())


def history_of(clusters: Mapping[str, OneCluster], run: Run, storage: Storage) -> History:
    try:
        return clusters[cluster_named(run.target.cluster, clusters)].fleet.history
    except UnknownClusterError as error:
        return absent(error, storage.store.now).history


@contextlib.asynccontextmanager
async def receiving(settings: StorageSettings) -> AsyncIterator[ReceiveInput]:
    """Stores people's commands; the running bot finds them within a second."""
    async with contextlib.AsyncExitStack() as stack:
        storage = open_storage(settings, stack)
        yield ReceiveInput(storage.store, storage.store, storage.claims, lambda incident_id: None)
