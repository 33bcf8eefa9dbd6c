"""The bot's own incidents: does this target recur, was a replica replaced on that node, was it rolled back lately?

Only stored incidents count; a deleted incident is not remembered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from bot.domain.approvals.repeats import asked_before
from bot.domain.changes.plan import LedgerEntry, Plan, request_of
from bot.domain.incidents.run import Run
from bot.domain.incidents.subjects import about_target
from bot.domain.kernel.target import Target

SOURCE = "the bot's own incidents"
DAY_SECONDS = 24 * 3600.0
MAX_INCIDENTS = 200
"""Of one subject, newest first; older ones are not seen."""


class PastRuns(Protocol):
    async def recent_incidents(self, limit: int) -> Sequence[str]:
        """Newest first, including open ones."""
        ...

    async def incidents_about(self, subject: str, limit: int) -> Sequence[str]:
        """Those of this subject (see `subjects`), newest first, including open ones."""
        ...

    async def last_incident(self, target_key: str) -> str | None:
        """The incident of this target that was closed last."""
        ...

    async def load(self, incident_id: str) -> Run | None: ...

    async def load_all(self, incident_ids: Sequence[str], *, mentioning: str = "") -> Sequence[Run]:
        """Those that are stored; may leave out those without the text `mentioning` anywhere."""
        ...


async def rollbacks_in_a_day(runs: PastRuns, target: Target, *, at: float) -> list[str]:
    """Incidents that rolled this workload back in the last day, and did not undo it."""
    return [
        run.incident_id
        for run in await runs_since(runs, at - DAY_SECONDS, about=about_target(target.key), mentioning=target.name)
        if run.target.key == target.key and any(_is_rollback(entry, run, at - DAY_SECONDS) for entry in run.ledger)
    ]


async def the_last(runs: PastRuns, run: Run) -> Run | None:
    """Returns the incident of this run's target that was closed last; None if there was none."""
    last = await runs.last_incident(run.target.key)
    return await runs.load(last) if last is not None and last != run.incident_id else None


def asked_by(earlier: Run, plan: Plan, *, at: float) -> str:
    """The request of this incident for exactly the same change; empty if there was none, or long ago."""
    found = asked_before(plan, earlier.requests.values(), at=at)
    return f"{earlier.incident_id}/{found}" if found else ""


async def troubled_times(runs: PastRuns, target: Target, *, but: str) -> list[tuple[float, float]]:
    """The times at which this target had an incident, from the stored ones; an open incident has no end yet."""
    return [
        (min(run.starts_at, run.opened_at), math.inf if run.closed_at is None else run.closed_at)
        for run in await runs_since(runs, 0.0, about=about_target(target.key), mentioning=target.name)
        if run.target.key == target.key and run.incident_id != but
        if run.ending != "not_applicable"
    ]


def _is_rollback(entry: LedgerEntry, run: Run, start: float) -> bool:
    """A rollback that completed; one that stopped half-way may be tried again."""
    request = run.requests.get(request_of(entry.call_id))
    went_through = request is not None and request.outcome == "done"
    is_own = entry.call_id.startswith(f"{run.incident_id}/")
    return is_own and entry.verb == "rollback" and not entry.undone_by and entry.applied_at >= start and went_through


async def runs_since(runs: PastRuns, start: float, *, about: str, mentioning: str) -> list[Run]:
    """The incidents of a subject that opened or acted since then, and others that mention the text.

    Incidents of versions before 2026-11-27 are listed under no subject, so the newest incidents are read as well. In a
    storm those are the storm's: only those with the text are worth parsing.
    """
    listed = await runs.incidents_about(about, MAX_INCIDENTS)
    newest = await runs.recent_incidents(MAX_INCIDENTS)
    found = await runs.load_all(list(dict.fromkeys([*listed, *newest])), mentioning=mentioning)
    return [run for run in found if run.closed_at is None or run.closed_at >= start]
