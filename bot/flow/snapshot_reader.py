"""The cluster state for planning, with the present load of each replica.

A replica that cannot be read is absent, not idle.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from bot.domain.changes.context import QUIET_SECONDS
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.incidents.impact import IMPACT_METRICS, IMPACT_SECONDS, Impact, impact_in
from bot.domain.incidents.named_values import Moments
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import BotError
from bot.domain.signals.sampling import MOVED, loads_in
from bot.domain.signals.signal import Value
from bot.domain.signals.window import Window
from bot.flow.ports.cluster import Cluster
from bot.flow.ports.readings import History, ReadContext

log = structlog.get_logger()

CLOCKS_DIFFER_SECONDS = 10.0
"""Samples carry this process's time and runs the storage's: a small difference must not hide the newest sample."""
SAMPLES_APART_SECONDS = 2.0
"""A quiet time is proved by samples on both sides of it: the window begins this much earlier."""


def context_of(run: Run, settings: dict[str, Value], *, shares_lists: bool = False) -> ReadContext:
    plain = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    return ReadContext(
        target=run.target,
        incident_id=run.incident_id,
        opened_at=run.opened_at,
        picked=run.findings.picked,
        settings=plain,
        moments=Moments(run),
        alerts=tuple(run.alerts.values()),
        handed_out=run.findings.handed_out,
        entered_at=run.visit.entered_at,
        shares_lists=shares_lists,
    )


class SnapshotReader:
    def __init__(self, cluster: Cluster, scraped: History) -> None:
        self._cluster, self._scraped = cluster, scraped

    async def __call__(self, run: Run, context: ReadContext, *, at: float) -> ClusterSnapshot:
        """Reads the cluster and the load. Raises `ClusterError` if the workload itself cannot be read."""
        snapshot = await self._cluster.snapshot(run.target, incident_id=run.incident_id)
        metrics = frozenset({"num_requests_running", "num_requests_waiting", "arrivals", *MOVED})
        quiet_for = context.settings.get("quiet_for", QUIET_SECONDS)
        window = Window(at - float(quiet_for) - SAMPLES_APART_SECONDS, at + CLOCKS_DIFFER_SECONDS)
        try:
            await self._scraped.sample(context)
            scrapes = await self._scraped.between(context, metrics, window.start, window.end)
        except BotError as error:
            return replace(snapshot, unreadable=snapshot.unreadable | {"load": str(error)})
        return replace(snapshot, load=loads_in(scrapes, window))

    async def impact(self, context: ReadContext, *, at: float) -> Impact:
        """The impact on users in the minute before `at`, from the samples; unknown if there are none."""
        window = Window(at - IMPACT_SECONDS, at + CLOCKS_DIFFER_SECONDS)
        try:
            scrapes = await self._scraped.between(context, IMPACT_METRICS, window.start, window.end)
        except BotError as error:
            log.warning("impact.unreadable", incident=context.incident_id, reason=str(error))
            return Impact()
        return impact_in(scrapes, window)
