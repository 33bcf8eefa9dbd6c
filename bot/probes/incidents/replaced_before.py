"""The `replaced_before` probe. A deleted incident is not counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, is_cordoned, name_of
from bot.domain.incidents.subjects import about_node
from bot.domain.signals.signal import Reading
from bot.flow.incident_history import DAY_SECONDS, SOURCE, PastRuns, runs_since
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe

REPLACES = "replace_replica"


@dataclass(frozen=True)
class ReplacedBefore:
    count: float
    node: str
    cordoned: bool | None


class ReadReplacedBefore:
    """How many replicas the bot replaced in a day on the node of the replica in question."""

    def __init__(self, runs: PastRuns, now: Callable[[], float]) -> None:
        self._runs, self._now = runs, now

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        pod = next(iter(pods_asked_for(request, snapshot)), None)
        node = dig(pod, "spec", "nodeName") if pod is not None else None
        if pod is None or not node:
            return no_answer(request, "the replica is on no node", source=SOURCE)
        start, cluster = self._now() - DAY_SECONDS, request.context.target.cluster
        replaced = [
            f"{entry.target.name} in {run.incident_id}"
            for run in await runs_since(self._runs, start, about=about_node(cluster, node), mentioning=node)
            if run.target.cluster == cluster
            for entry in run.ledger
            if entry.verb == REPLACES and entry.node == node and entry.applied_at >= start
            if entry.target.name != name_of(pod)
        ]
        detail = f"replaced on {node} in the last day: {', '.join(replaced) or 'none'}"
        found = next((one for one in snapshot.nodes if name_of(one) == node), None)
        cordoned = None if found is None else is_cordoned(found)
        missing = {"cordoned": snapshot.unreadable.get("nodes", f"node {node} was not read")}
        parts = ReplacedBefore(float(len(replaced)), node, cordoned)
        return answer(request, parts, missing=missing, detail=detail, source=SOURCE)


PROBE = Probe(
    name="replaced_before",
    label="Replacements before",
    help="How many replicas the bot replaced in a day on that node.",
    answer=ReplacedBefore,
    read=lambda sources: ReadReplacedBefore(sources.runs, sources.now),
)
