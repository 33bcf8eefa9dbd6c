"""The `upstream` probe: causes of slow requests outside the engine: the router, and what sets the replica count.

Each part is independent: an unreadable part is unknown with its reason, and the others still count as evidence.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.cluster.missing_pods import pending_pods, waits_for
from bot.domain.cluster.objects import dig
from bot.domain.cluster.owner import autoscaler_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.errors import BotError, SourceError
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import DURATION, Reading
from bot.domain.signals.window import NEEDED_SHARE
from bot.flow.ports.readings import History, ProbeRequest, Router
from bot.probes.answers import NOT_THERE, answer, no_answer, seconds_asked_for, unreadable
from bot.probes.declaration import Probe

BEFORE = "30m"
SLOT_SECONDS = 60.0
"""Replicas that were scraped within one slot served at the same time."""


@dataclass(frozen=True)
class Upstream:
    pending: float
    waits_for: str
    """What missing replicas wait for: image, config, quota, gpu, node or start; empty if none is missing."""
    router_errors: float | None
    gateway_p99: float | None
    replicas_before: float | None
    at_max: bool | None
    scaled_down: bool | None
    detail: str


class ReadUpstream:
    def __init__(self, *, history: History, router: Router) -> None:
        self._history, self._router = history, router

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        if snapshot.workload is None:
            return no_answer(request, NOT_THERE)
        wanted = dig(snapshot.workload, "spec", "replicas")
        before = await self._replicas_before(request)
        at_max, why_not_max = _at_max(snapshot)
        missing = dict.fromkeys(("replicas_before", "scaled_down"), str(before)) | {"at_max": why_not_max}
        found: dict[str, float | None] = {}
        for part, ask in (("router_errors", self._router.error_share), ("gateway_p99", self._router.latency_p99)):
            try:
                found[part] = await ask(request.context.target)
            except SourceError as error:
                found[part], missing[part] = None, str(error)
        missing_for, why_missing = waits_for(snapshot)
        detail = "; ".join(filter(None, [why_missing, _replicas(before, wanted), _scaler(snapshot)]))
        parts = Upstream(
            pending=float(len(pending_pods(snapshot))),
            waits_for=missing_for,
            router_errors=found["router_errors"],
            gateway_p99=found["gateway_p99"],
            replicas_before=before if isinstance(before, float) else None,
            at_max=at_max,
            scaled_down=before > float(wanted) if isinstance(before, float) and wanted is not None else None,
            detail=detail,
        )
        return answer(request, parts, missing=missing, detail=detail)

    async def _replicas_before(self, request: ProbeRequest) -> float | str:
        """How many replicas served before the incident opened, or why that is unknown."""
        end = request.context.opened_at
        span = seconds_asked_for(request, "over", BEFORE)
        if isinstance(span, str):
            return span
        try:
            seen = await self._history.between(request.context, frozenset({"num_requests_running"}), end - span, end)
        except BotError as error:
            return str(error)
        counts = _side_by_side(seen)
        slot = min(SLOT_SECONDS, span)
        if len(counts) * slot < NEEDED_SHARE * span:
            return f"only {lasting(len(counts) * slot)} of the {lasting(span)} before the incident were sampled"
        # The median: during a rollout there are more for a while, and a missed scrape shows fewer.
        return float(statistics.median(counts))


def _side_by_side(scrapes: Sequence[Scrape]) -> list[int]:
    slots: dict[int, set[str]] = defaultdict(set)
    for scrape in scrapes:
        if not scrape.error and scrape.role == "target":
            slots[int(scrape.at // SLOT_SECONDS)].add(scrape.replica)
    return [len(replicas) for replicas in slots.values()]


def _at_max(snapshot: ClusterSnapshot) -> tuple[bool | None, str]:
    scaler, wanted = autoscaler_of(snapshot), dig(snapshot.workload, "spec", "replicas")
    failed = "; ".join(
        snapshot.unreadable[part] for part in ("autoscalers", "scaled_objects") if part in snapshot.unreadable
    )
    if scaler is None:
        return (None, failed) if failed else (False, "")
    if scaler.most is None or wanted is None:
        return None, f"{scaler.text} does not say how many at most"
    return wanted >= scaler.most, ""


def _scaler(snapshot: ClusterSnapshot) -> str:
    scaler = autoscaler_of(snapshot)
    return f"scaled by {scaler.text}{f', paused: {scaler.paused}' if scaler.paused else ''}" if scaler else ""


def _replicas(before: float | str, wanted: int | None) -> str:
    if not isinstance(before, float) or wanted is None or before <= wanted:
        return ""
    return f"{before:g} replicas served before the incident, {wanted} are wanted now"


PROBE = Probe(
    name="upstream",
    label="Pending replicas and autoscaler",
    units={"router_errors": "ratio", "gateway_p99": DURATION},
    help="What is wrong before the engines: the router, the gateway, the autoscaler.",
    answer=Upstream,
    parameters={
        "over": Parameter("How long before the incident replicas are counted.", "duration"),
    },
    read=lambda sources: ReadUpstream(history=sources.history, router=sources.router),
)
