"""The `last_good` probe: which revision served well before the incident.

A revision that is too young or has no date is unknown: a guess would become a rollback target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.changes.template_differences import template_differences
from bot.domain.cluster.objects import dig
from bot.domain.cluster.rollout import replica_sets_of, revision_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.durations import lasting
from bot.domain.signals.signal import Reading
from bot.flow.incident_history import PastRuns, troubled_times
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, unreadable
from bot.probes.declaration import Probe
from bot.probes.revisions import is_ours, rolled_out_at

GOOD_SECONDS = 24 * 3600.0
"""A revision that served a whole day's load has proved itself; one that served an hour at night has not."""


@dataclass(frozen=True)
class LastGood:
    found: bool | None
    revision: float | None
    is_current: bool | None
    hours: float | None
    summary: str | None


@dataclass(frozen=True)
class _Served:
    """A revision and how long it was the newest before the incident, counted from the last incident in its time.

    None if its beginning or end has no date.
    """

    replica_set: Obj
    seconds: float | None
    is_current: bool


class ReadLastGood:
    """The newest revision that served its last day before the incident without another one, and is not the bot's own.

    Kubernetes dates a revision by its ReplicaSet; a revision that was rolled back to has a date only while it is the
    newest.
    """

    def __init__(self, runs: PastRuns) -> None:
        self._runs = runs

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "replica_sets"):
            return failed
        context = request.context
        troubled = await troubled_times(self._runs, context.target, but=context.incident_id)
        revisions = _served(snapshot, request, troubled)
        if not revisions:
            return no_answer(request, "it has no revisions")
        good = next((one for one in revisions if one.seconds is not None and one.seconds >= GOOD_SECONDS), None)
        if good is None:
            undated = any(one.seconds is None for one in revisions)
            found = None if undated else False
            parts = LastGood(found=found, revision=None, is_current=None, hours=None, summary=None)
            reason = f"no revision is known to have served {lasting(GOOD_SECONDS)} without an incident before this one"
            missing = dict.fromkeys(PROBE.kinds, reason)
            return answer(request, parts, missing=missing, detail=reason)
        return _reading(request, good, revisions[0])


def _served(snapshot: ClusterSnapshot, request: ProbeRequest, troubled: Sequence[tuple[float, float]]) -> list[_Served]:
    """Newest first, without the bot's own. Each ends when the next revision began, the bot's own included."""
    found = replica_sets_of(snapshot)
    until: float | None = request.context.began_at
    served = []
    for index, replica_set in enumerate(found):
        began = rolled_out_at(replica_set, snapshot, is_current=index == 0)
        before = found[index + 1] if index + 1 < len(found) else None
        seconds = None if began is None or until is None else _quiet_seconds(began, until, troubled)
        if not is_ours(replica_set, before, request) and (index > 0 or _is_rolled_out(snapshot)):
            served.append(_Served(replica_set, seconds, index == 0))
        # A rollout after the incident began does not shorten the revision before it.
        until = min(began, request.context.began_at) if began is not None else None
    return served


def _quiet_seconds(began: float, until: float, troubled: Sequence[tuple[float, float]]) -> float:
    """How long it served without an incident, up to its end."""
    return until - max(
        (min(ended, until) for start, ended in troubled if start < until and ended > began), default=began
    )


def _is_rolled_out(snapshot: ClusterSnapshot) -> bool:
    """Whether the newest revision has all its replicas; a rollout that is stuck half-way has never served fully."""
    wanted = dig(snapshot.workload, "spec", "replicas")
    updated = dig(snapshot.workload, "status", "updatedReplicas")
    return wanted is None or updated is None or updated >= wanted


def _reading(request: ProbeRequest, good: _Served, newest: _Served) -> Reading:
    revision = revision_of(good.replica_set)
    old, new = (dig(one.replica_set, "spec", "template") or {} for one in (good, newest))
    changed = "; ".join(change.text for change in template_differences(new, old)) if not good.is_current else ""
    hours = (good.seconds or 0.0) / 3600
    parts = LastGood(
        found=True,
        revision=None if revision is None else float(revision),
        is_current=good.is_current,
        hours=hours,
        summary=changed[:600],
    )
    missing = {"revision": "the ReplicaSet carries no revision"}
    what = "runs now" if good.is_current else f"going back to it means: {changed or 'no difference'}"
    return answer(
        request,
        parts,
        missing=missing,
        detail=f"revision {revision} served {hours:.0f} h without an incident; {what}"[:900],
    )


PROBE = Probe(
    name="last_good",
    label="Last good revision",
    help="The revision that served well before the incident.",
    answer=LastGood,
    read=lambda sources: ReadLastGood(sources.runs),
)
