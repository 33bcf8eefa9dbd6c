"""The numbers of the router or gateway in front of the engines, from the operator's own queries to Prometheus.

Routers name their metrics differently, so the bot knows none of them: a query that is not configured is unknown.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from string import Template

import httpx

from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target

DEADLINE_SECONDS = 4.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes allows as a name; nothing else goes into a query."""

_CLUSTER = re.compile(r"[^\s\"'`\\]+")
"""Text that cannot end a string of PromQL."""


class PrometheusRouter:
    """The `Router` port. `$cluster`, `$namespace` and `$workload` in a query are replaced by those of the incident."""

    def __init__(self, client: httpx.AsyncClient | None, url: str, *, errors: str, latency: str) -> None:
        self._client, self._url = client, url.rstrip("/")
        self._errors, self._latency = errors, latency

    async def error_share(self, target: Target) -> float:
        return await self._ask(self._errors, target, "prometheus.router_errors")

    async def latency_p99(self, target: Target) -> float:
        return await self._ask(self._latency, target, "prometheus.gateway_p99")

    async def _ask(self, query: str, target: Target, setting: str) -> float:
        if not query or self._client is None:
            raise SourceError(f"no query is configured ({setting})")
        names = {"namespace": target.namespace, "workload": target.name}
        if strange := [name for name in names.values() if not _NAME.fullmatch(name)]:
            raise SourceError(f"{strange[0][:60]!r} is no name of a Kubernetes object, so it is not asked for")
        template = Template(query)
        if "cluster" in template.get_identifiers() and not _CLUSTER.fullmatch(target.cluster):
            raise SourceError(f"{target.cluster[:60]!r} cannot be the name of a cluster in a query ({setting})")
        asked = template.safe_substitute(names, cluster=target.cluster)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                answer = await self._client.post(f"{self._url}/api/v1/query", data={"query": asked})
        except TimeoutError as error:
            raise SourceError(f"{setting}: did not answer within {DEADLINE_SECONDS:g} s") from error
        except httpx.HTTPError as error:
            raise SourceError(f"{setting}: {error or type(error).__name__}") from error
        return _number(answer, setting)


def _number(answer: httpx.Response, setting: str) -> float:
    """The one number of the answer: no series is not zero, and several series are ambiguous."""
    try:
        body = answer.json()
        if body["status"] != "success":
            raise SourceError(f"{setting}: refused: {str(body.get('error', ''))[:300]}")
        result = body["data"]["result"]
        values = [result] if body["data"]["resultType"] == "scalar" else [series["value"] for series in result]
        numbers = [float(value[1]) for value in values]
    except (json.JSONDecodeError, KeyError, TypeError, IndexError, ValueError) as error:
        raise SourceError(f"{setting}: its answer is not in the form that Prometheus gives") from error
    if len(numbers) != 1:
        raise SourceError(f"{setting}: gave {len(numbers)} series, and one is needed")
    if math.isnan(numbers[0]):
        raise SourceError(f"{setting}: gave no number")
    return numbers[0]
