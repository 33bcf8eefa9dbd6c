"""The history of the replicas' metrics from a Prometheus: raw samples as scraped, without its query functions.

The same windows are then computed from them as from direct scrapes, so both sources give the same verdict.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import httpx

from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target
from bot.domain.signals.metric import Sample
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.window import STALE_SECONDS
from bot.flow.ports import ReadContext, Replica, Replicas

DEADLINE_SECONDS = 4.0
MAX_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes allows as the name of a pod or namespace; nothing else goes into a query."""
NO_LABELS: Mapping[str, str] = MappingProxyType({})
POD_OF_IT = "-[a-z0-9]{1,10}-[a-z0-9]{5}"
"""The rest of a pod's name after its Deployment's: template hash and a random suffix."""


class EngineNames(Protocol):
    """The engine's names of its series, and the meaning of their samples."""

    def series_pattern(self, metrics: frozenset[str]) -> str:
        """An RE2 pattern for the names of all series that these metrics need."""
        ...

    def scrape_of(self, samples: Iterable[Sample], replica: Replica, at: float) -> Scrape | None:
        """The scrape that these samples of one moment make; None if none of them is the engine's."""
        ...


Pages = dict[str, dict[str, dict[float, list[Sample]]]]
"""Pod, then scrape target, then time: the samples of one scrape."""


class PrometheusHistory:
    """The `History` port. Prometheus scrapes by itself, so `sample` has nothing to do."""

    source = "Prometheus"

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
        self._client, self._url, self._replicas, self._engine = client, url.rstrip("/"), replicas, engine
        self._labels, self._now = labels, now

    async def sample(self, context: ReadContext) -> None:
        return

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float
    ) -> Sequence[Scrape]:
        replicas = await self._replicas.replicas(context.target, incident_id=context.incident_id)
        pattern, target = self._engine.series_pattern(metrics), context.target
        pods = [replica.name for replica in replicas]
        query = raw_query(pattern, target.namespace, pods, end - start, of=target, labels=self._labels)
        body = await self._ask(query, at=end)
        # Reading a day of a fleet's samples takes a second: not on the loop that serves Slack and webhooks.
        return await asyncio.to_thread(self._made_of, body, replicas, end)

    def _made_of(self, body: bytes, replicas: Sequence[Replica], end: float) -> list[Scrape]:
        pages = _by_target(result_of(body))
        # Pods that are gone by now were the fleet of a past window; a window that ends now leaves them out itself.
        gone = sorted(pages.keys() - {replica.name for replica in replicas} - {""})
        fleet = [*replicas, *(Replica(name=name, uid="", address="") for name in gone)]
        return [scrape for replica in fleet for scrape in self._scrapes(replica, pages, end)]

    def _scrapes(self, replica: Replica, pages: Pages, end: float) -> list[Scrape]:
        """The replica's scrapes, and a failed one if Prometheus has no fresh scrape.

        For a past moment that is unknown: the replica may not have existed then.
        """
        best: list[Scrape] = []
        for target in sorted(pages.get(replica.name, {})):
            by_time = pages[replica.name][target]
            made = [self._engine.scrape_of(samples, replica, at) for at, samples in sorted(by_time.items())]
            found = [scrape for scrape in made if scrape is not None]
            # Two scrape jobs may cover one pod; adding both would count everything twice.
            best = found if len(found) > len(best) else best
        is_live = bool(replica.address) and self._now() - end <= STALE_SECONDS
        if is_live and (not best or end - best[-1].at > STALE_SECONDS):
            reason = "Prometheus has no fresh sample of it"
            best.append(Scrape(replica=replica.name, uid=replica.uid, at=end, role=replica.role, error=reason))
        return best

    async def _ask(self, query: str, *, at: float) -> bytes:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._post({"query": query, "time": f"{at:.3f}"})
        except TimeoutError as error:
            raise SourceError(f"did not answer within {DEADLINE_SECONDS:g} s") from error
        except httpx.HTTPError as error:
            raise SourceError(f"{error or type(error).__name__}") from error

    async def _post(self, form: Mapping[str, str]) -> bytes:
        async with self._client.stream("POST", f"{self._url}/api/v1/query", data=dict(form)) as response:
            body = bytearray()
            async for fragment in response.aiter_bytes():
                body += fragment
                if len(body) > MAX_BYTES:
                    raise SourceError(f"answered more than {MAX_BYTES >> 20} MiB")
        # A refused query is a 4xx with its reason in JSON; any other status outside 2xx has none.
        if response.status_code >= 300 and not body.startswith(b"{"):
            raise SourceError(f"answered HTTP {response.status_code}")
        return bytes(body)


# --- answers and queries ----------------------------------------------------------------------------------------------


def result_of(body: bytes) -> list[dict[str, Any]]:
    """The series of a query's answer; raises `SourceError` if it has none."""
    try:
        answer = json.loads(body)
        if answer["status"] != "success":
            raise SourceError(f"refused the query: {str(answer.get('error', ''))[:300]}")
        return list(answer["data"]["result"])
    except ValueError as error:
        raise SourceError("answered no JSON") from error
    except (KeyError, TypeError) as error:
        raise SourceError("its answer is not in the form that Prometheus gives") from error


def raw_query(
    pattern: str,
    namespace: str,
    pods: Sequence[str],
    seconds: float,
    *,
    of: Target | None = None,
    labels: Mapping[str, str] = NO_LABELS,
) -> str:
    """The selector of all samples of these series, of these pods and of those that a Deployment `of` once had.

    Raises `SourceError` for a name that is invalid in Kubernetes.
    """
    former = of.name if of is not None and of.kind == "Deployment" else ""
    strange = [name for name in (namespace, *pods, *filter(None, [former])) if not _NAME.fullmatch(name)]
    if strange:
        raise SourceError(f"{strange[0][:60]!r} is no name of a Kubernetes object, so it is not asked for")
    names = "|".join([*(re.escape(pod) for pod in pods), *([f"{re.escape(former)}{POD_OF_IT}"] if former else [])])
    matchers = f'__name__=~{_quoted(pattern)},namespace="{namespace}",pod=~{_quoted(names)}{also(labels)}'
    return f"{{{matchers}}}[{math.ceil(seconds * 1000)}ms]"


def also(labels: Mapping[str, str]) -> str:
    """Returns these labels as further matchers of a selector."""
    return "".join(f",{name}={_quoted(value)}" for name, value in labels.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _by_target(result: Iterable[Mapping[str, Any]]) -> Pages:
    """The series of one scrape share its time to the millisecond."""
    pages: Pages = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for one in result:
        labels: dict[str, str] = one["metric"]
        target = f"{labels.get('job', '')} {labels.get('instance', '')}"
        for at, value in one.get("values", ()):
            number = float(value)
            if not math.isnan(number):
                pages[labels.get("pod", "")][target][at].append(Sample(labels["__name__"], labels, number))
    return pages
