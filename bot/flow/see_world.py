"""The cluster as planning sees it, with what runs on each replica now. A replica that cannot be read is absent, not idle."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.change.world import ReplicaLoad, World
from bot.domain.errors import BotError
from bot.domain.run import Run
from bot.domain.sampling import loads_in
from bot.domain.signal import Value
from bot.domain.window import Window
from bot.flow.ports import Cluster, ReadContext, Signals
from bot.flow.read_signals import History

ARRIVALS_WINDOW_SECONDS = 60.0
CLOCKS_DIFFER_SECONDS = 10.0
"""Samples carry this process's time and runs the storage's: a small difference must not hide the newest sample."""


def context_of(run: Run, settings: dict[str, Value]) -> ReadContext:
    plain = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    return ReadContext(
        target=run.target, incident_id=run.incident_id, opened_at=run.opened_at, picked=run.picked, settings=plain
    )


class SeeWorld:
    def __init__(self, cluster: Cluster, signals: Signals, history: History) -> None:
        self._cluster, self._signals, self._history = cluster, signals, history

    async def __call__(self, run: Run, context: ReadContext, *, at: float) -> World:
        """Read the cluster and the load. Raise `ClusterError` when the workload itself cannot be read."""
        world = await self._cluster.world(run.target, incident_id=run.incident_id)
        await self._signals.sample(context)
        try:
            scrapes = await self._history.between(
                context, frozenset({"num_requests_running", "num_requests_waiting", "arrivals"}),
                at - ARRIVALS_WINDOW_SECONDS, at + CLOCKS_DIFFER_SECONDS,
            )  # fmt: skip
        except BotError as error:
            return replace(world, unreadable=world.unreadable | {"load": str(error)})
        return replace(world, load=loads_in(scrapes, Window(at - ARRIVALS_WINDOW_SECONDS, at + CLOCKS_DIFFER_SECONDS)))
