"""The `bad_replicas` probe: how many replicas are bad, and what they have in common that the good ones do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bot.domain.cluster.in_common import JudgedReplica, in_common, judged_replicas, starts_outside
from bot.domain.cluster.objects import name_of
from bot.domain.cluster.rollout import new_and_old_pods
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import metrics_of, read_window
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import MeanSignal, RatioSignal
from bot.domain.signals.window import NEEDED_SECONDS, Window
from bot.flow.ports.readings import History, ProbeRequest
from bot.probes.answers import answer, no_answer, number_asked_for, seconds_asked_for, unreadable
from bot.probes.declaration import Probe

WINDOW = "5m"
THRASH = RatioSignal(ratio=("num_preemptions", "request_success"), across="each")
TIME = MeanSignal(mean="e2e_request_latency_seconds", across="each", at_equal_lengths=True)


@dataclass(frozen=True)
class BadReplicas:
    bad: float
    judged: float
    """How many were read: the others are neither bad nor good."""
    node: str | None
    zone: str | None
    revision: str | None
    """Empty also if it is not the newest one: while a fix is rolled out, the old revision is bad."""
    starts_outside: bool | None
    """Whether a new replica can only start outside of the zone that the bad ones share; false if they share none."""
    summary: str


class ReadBadReplicas:
    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self._history, self._now = history, now

    async def __call__(self, request: ProbeRequest) -> Reading:
        """Counts the replicas above the playbook's threshold, and compares where the bad and the good ones run."""
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods", "replica_sets"):
            return failed
        thrash_above, slow_above = number_asked_for(request, "thrash_above"), number_asked_for(request, "slow_above")
        if (thrash_above is None) == (slow_above is None):
            return no_answer(request, "the playbook has to give either thrash_above or slow_above")
        spec = THRASH if slow_above is None else TIME
        span = seconds_asked_for(request, "over", WINDOW)
        if isinstance(span, str):
            return no_answer(request, span, source=self._history.source)
        await self._history.sample(request.context)
        now = self._now()
        window = Window(now - span, now, NEEDED_SECONDS)
        scrapes = await self._history.between(request.context, metrics_of(spec), window.start, window.end)
        values = read_window(request.name, spec, scrapes, window=window, picked={})
        if not values.is_known:
            return no_answer(request, values.unknown, source=self._history.source)
        limit = thrash_above if thrash_above is not None else (slow_above or 0.0) * median(values.by_replica.values())
        replicas = judged_replicas(snapshot, {name: each > limit for name, each in values.by_replica.items()})
        found = in_common(replicas)
        outside = starts_outside(snapshot, found.zone) if found.zone else found.zone is None and "its zone is not known"
        summary = found.summary(*(("thrashes", "thrash") if slow_above is None else ("is slow", "are slow")))
        unread = [one.name for one in replicas if one.is_bad is None]
        parts = BadReplicas(
            bad=float(found.bad),
            judged=float(found.judged),
            node=found.node,
            zone=found.zone,
            revision=found.revision and _if_newest(snapshot, replicas, found.revision),
            starts_outside=outside if isinstance(outside, bool) else None,
            summary=summary,
        )
        reason = f"not read: {', '.join(unread)[:200]}" if unread else "not all replicas name theirs"
        missing = dict.fromkeys(("node", "zone", "revision"), reason) | {"starts_outside": str(outside)}
        return answer(request, parts, missing=missing, detail=summary, source=self._history.source)


def _if_newest(snapshot: ClusterSnapshot, replicas: Sequence[JudgedReplica], revision: str) -> str | None:
    if (parted := new_and_old_pods(snapshot)) is None:
        return None
    new, old = (set(map(name_of, pods)) for pods in parted)
    bad = {one.name for one in replicas if one.is_bad}
    return revision if bad <= new else "" if bad <= new | old else None


PROBE = Probe(
    name="bad_replicas",
    label="Bad replicas",
    help="How many replicas are bad, and the node, zone or newest revision that only these have.",
    answer=BadReplicas,
    parameters={
        "thrash_above": Parameter("Preemptions per finished request above which a replica is bad.", "number"),
        "slow_above": Parameter(
            "Instead: how many times the median time of a request, at equal lengths, makes a replica bad.", "number"
        ),
        "over": Parameter("The window that is read.", "duration"),
    },
    read=lambda sources: ReadBadReplicas(sources.history, sources.now),
)
