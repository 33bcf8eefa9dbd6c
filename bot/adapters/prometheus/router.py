"""The numbers of the router or gateway in front of the engines, from the operator's own queries to Prometheus.

Routers name their metrics differently, so the bot knows none of them: a query that is not configured is unknown.
"""

from __future__ import annotations

import math
import re
from string import Template

import httpx

from bot.adapters.prometheus.queries import PrometheusQueries, refuse_strange
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target

_CLUSTER = re.compile(r"[^\s\"'`\\]+")
"""Text that cannot end a string of PromQL."""


class PrometheusRouter:
    """The `Router` port. `$cluster`, `$namespace` and `$workload` in a query are replaced by those of the incident."""

    def __init__(self, client: httpx.AsyncClient | None, url: str, *, errors: str, latency: str) -> None:
        self._client, self._url = client, url
        self._errors, self._latency = errors, latency

    async def error_share(self, target: Target) -> float:
        return await self._ask(self._errors, target, "prometheus.router_errors")

    async def latency_p99(self, target: Target) -> float:
        return await self._ask(self._latency, target, "prometheus.gateway_p99")

    async def _ask(self, query: str, target: Target, setting: str) -> float:
        if not query or self._client is None:
            raise SourceError(f"no query is configured ({setting})")
        names = {"namespace": target.namespace, "workload": target.name}
        refuse_strange(names.values())
        template = Template(query)
        if "cluster" in template.get_identifiers() and not _CLUSTER.fullmatch(target.cluster):
            raise SourceError(f"{target.cluster[:60]!r} cannot be the name of a cluster in a query ({setting})")
        asked = template.safe_substitute(names, cluster=target.cluster)
        queries = PrometheusQueries(self._client, self._url, about=f"{setting}: ")
        return _number(queries, await queries.ask(asked), setting)


def _number(queries: PrometheusQueries, answer: bytes, setting: str) -> float:
    """The one number of the answer: no series is not zero, and several series are ambiguous."""
    data = queries.data_of(answer)
    try:
        result = data["result"]
        values = [result] if data["resultType"] == "scalar" else [series["value"] for series in result]
        numbers = [float(value[1]) for value in values]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise queries.strange() from error
    if len(numbers) != 1:
        raise SourceError(f"{setting}: gave {len(numbers)} series, and one is needed")
    if not math.isfinite(numbers[0]):
        raise SourceError(f"{setting}: gave no number")
    return numbers[0]
