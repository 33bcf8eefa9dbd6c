"""The history of the replicas' metrics from a Prometheus: raw samples as scraped, without its query functions.

The same windows are then computed from them as from direct scrapes, so both sources give the same verdict.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import httpx

from bot.adapters.prometheus.queries import NO_LABELS, PrometheusQueries, also, quoted, refuse_strange
from bot.domain.cluster.workload import PODS_OF
from bot.domain.kernel.target import Target
from bot.domain.signals.metric import Series
from bot.domain.signals.scrape import Scrape, of_group
from bot.domain.signals.window import STALE_SECONDS
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import ReadContext, Replicas

TARGET_LABELS = ("job", "instance", "prometheus_replica", "replica")
"""What tells scrape targets apart, and the two servers of a highly available pair that both scrape one target."""


class EngineNames(Protocol):
    """The engine's names of its series, and the meaning of their samples."""

    def series_pattern(self, metrics: frozenset[str]) -> str:
        """An RE2 pattern for the names of all series that these metrics need."""
        ...

    def scrapes_of(self, series: Iterable[Series], replica: Replica) -> list[Scrape]:
        """The scrapes that these series make, oldest first; the samples of one scrape have one time."""
        ...


Pages = dict[str, dict[str, list[Series]]]
"""Pod, then scrape target."""


class PrometheusHistory:
    """The `History` port. Prometheus scrapes by itself, so `sample` has nothing to do."""

    source = "Prometheus"
    has_whole_pages = False

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        replicas: Replicas,
        engine: EngineNames,
        labels: Mapping[str, str] = NO_LABELS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`labels`: those that only the series of this cluster have."""
        self._queries, self._replicas, self._engine = PrometheusQueries(client, url), replicas, engine
        self._labels, self._now = labels, now

    async def sample(self, context: ReadContext) -> None:
        return

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        replicas = await self._replicas.replicas(context.target, incident_id=context.incident_id)
        pods = [page.name for replica in replicas for page in replica.pages]
        pattern = self._engine.series_pattern(metrics)
        selector = selector_of(pattern, context.target.namespace, pods, of=context.target, labels=self._labels)
        bodies = await asyncio.gather(*self._asked(selector, start, end, step))
        # Reading a day of a fleet's samples takes a second: not on the loop that serves Slack and webhooks.
        return await asyncio.to_thread(self._made_of, bodies, replicas, end)

    def _asked(self, selector: str, start: float, end: float, step: float) -> list[Awaitable[bytes]]:
        """With a step, the values at each step; up to now the newest samples as they are, since their age counts."""
        if step <= 0:
            return [self._queries.ask(ranged(selector, end - start), at=end)]
        if self._now() - end >= STALE_SECONDS:
            first = end - math.floor((end - start) / step) * step
            return [self._queries.ask_each(selector, start=first, end=end, step=step)]
        newest = end - STALE_SECONDS
        first = newest - math.floor((newest - start) / step) * step
        return [
            self._queries.ask_each(selector, start=first, end=newest, step=step),
            self._queries.ask(ranged(selector, STALE_SECONDS), at=end),
        ]

    def _made_of(self, bodies: Sequence[bytes], replicas: Sequence[Replica], end: float) -> list[Scrape]:
        found, *newest = map(self._queries.series_of, bodies)
        # More of them would give the last minute more weight than the others.
        last = [{**one, "values": one.get("values", ())[-1:]} for series in newest for one in series]
        pages = _by_target([*found, *last])
        others = sorted(pages.keys() - {page.name for replica in replicas for page in replica.pages} - {""})
        made = [scrape for replica in replicas for scrape in self._scrapes(replica, pages, end)]
        for name in others:
            scrapes = self._scrapes(Replica(name=name, uid="", address=""), pages, end)
            # Pods that are gone by now were the fleet of a past window. One that is still scraped now is leaving, or is
            # none of the workload's, whatever its name.
            if scrapes and not (self._is_now(end) and end - scrapes[-1].at <= STALE_SECONDS):
                made += scrapes
        return made

    def _scrapes(self, replica: Replica, pages: Pages, end: float) -> list[Scrape]:
        """The replica's scrapes, and a failed one if Prometheus has no fresh scrape.

        For a past moment that is unknown: the replica may not have existed then.
        """
        found = [] if replica.unread else _together([self._scrapes_of_pod(one, pages) for one in replica.pages])
        is_live = bool(replica.address) and self._is_now(end)
        if is_live and (not found or end - found[-1].at > STALE_SECONDS):
            reason = replica.unread or "Prometheus has no fresh sample of it"
            found.append(
                Scrape(
                    replica=replica.name,
                    uid=replica.uid,
                    at=end,
                    role=replica.role,
                    in_rotation=replica.in_rotation,
                    error=reason,
                )
            )
        return found

    def _is_now(self, end: float) -> bool:
        return self._now() - end <= STALE_SECONDS

    def _scrapes_of_pod(self, pod: Replica, pages: Pages) -> list[Scrape]:
        targets = [self._engine.scrapes_of(series, pod) for _, series in sorted(pages.get(pod.name, {}).items())]
        return _one_at_a_time([target for target in targets if target])


# --- queries and answers ----------------------------------------------------------------------------------------------


def selector_of(
    pattern: str,
    namespace: str,
    pods: Sequence[str],
    *,
    of: Target | None = None,
    labels: Mapping[str, str] = NO_LABELS,
) -> str:
    """The selector of these series, of these pods and of those that the workload `of` once had.

    Raises `SourceError` for a name that is invalid in Kubernetes.
    """
    former = [of] if of is not None and of.kind in PODS_OF else []
    refuse_strange((namespace, *pods, *(workload.name for workload in former)))
    patterns = [f"{re.escape(workload.name)}{PODS_OF[workload.kind]}" for workload in former]
    names = "|".join([*(re.escape(pod) for pod in pods), *patterns])
    return f'{{__name__=~{quoted(pattern)},namespace="{namespace}",pod=~{quoted(names)}{also(labels)}}}'


def ranged(selector: str, seconds: float) -> str:
    """All samples of this time, as they were scraped."""
    return f"{selector}[{math.ceil(seconds * 1000)}ms]"


def _by_target(result: Iterable[Mapping[str, Any]]) -> Pages:
    """The series of one scrape share its time to the millisecond."""
    pages: Pages = defaultdict(lambda: defaultdict(list))
    for one in result:
        labels: dict[str, str] = one["metric"]
        target = " ".join(labels.get(label, "") for label in TARGET_LABELS)
        points = [(at, number) for at, value in one.get("values", ()) if math.isfinite(number := float(value))]
        pages[labels.get("pod", "")][target].append(Series(labels["__name__"], labels, points))
    return pages


def _one_at_a_time(targets: Sequence[list[Scrape]]) -> list[Scrape]:
    """The scrapes of one pod name, from the target that is scraped now and from those that had ended before it began.

    A replaced pod has another address. Two scrape jobs may cover one pod: adding both would count everything twice, so
    the one with the most samples stands for those that are scraped at the same time.
    """
    if not targets:
        return []
    newest = max(targets, key=lambda target: target[-1].at)
    present = [target for target in targets if target is newest or _is_scraped_beside(target, newest)]
    best = max(present, key=len)
    return [*_one_at_a_time([target for target in targets if target[-1].at < best[0].at]), *best]


def _together(pods: Sequence[list[Scrape]]) -> list[Scrape]:
    """Each scrape of the leader with the last ones of its workers; none where one of these is missing or old."""
    leader, *workers = pods
    together = []
    for scrape in leader:
        seen = [(one, bisect_right(one, scrape.at, key=lambda each: each.at)) for one in workers]
        last = [one[count - 1] for one, count in seen if count and scrape.at - one[count - 1].at <= STALE_SECONDS]
        together += [of_group([scrape, *last])] if len(last) == len(workers) else []
    return together


def _is_scraped_beside(target: Sequence[Scrape], newest: Sequence[Scrape]) -> bool:
    """Whether it overlaps with the newest and had not missed a scrape yet when that was scraped last."""
    interval = (target[-1].at - target[0].at) / max(1, len(target) - 1)
    return target[-1].at >= newest[0].at and newest[-1].at - target[-1].at <= interval
