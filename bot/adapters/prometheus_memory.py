"""A day of the GPUs' free memory from a Prometheus. A day that is not whole is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx

from bot.adapters.prometheus import result_of
from bot.domain.errors import SourceError

DEADLINE_SECONDS = 4.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes allows as a name; nothing else gets into a query."""


class PrometheusMemory:
    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url = client, url.rstrip("/")

    async def least_free_mib(self, namespace: str, pods: Sequence[str]) -> float:
        query = least_free_query(namespace, pods)
        try:
            answer = await self._client.post(
                f"{self._url}/api/v1/query", data={"query": query}, timeout=DEADLINE_SECONDS
            )
        except httpx.HTTPError as error:
            raise SourceError(f"Prometheus: {error or type(error).__name__}") from error
        told = {
            pod: float(one["value"][1]) for one in result_of(answer.content) if (pod := one["metric"].get("holder"))
        }
        absent = sorted(set(pods) - told.keys())
        if absent:
            raise SourceError(f"Prometheus has no whole day of the GPU memory of {', '.join(absent)}")
        return min(told.values())


def least_free_query(namespace: str, pods: Sequence[str]) -> str:
    """The least free memory of each pod's GPUs in a day, of pods that were there for the whole of it.

    Raise `SourceError` for a name that Kubernetes cannot have given.
    """
    strange = [name for name in (namespace, *pods) if not _NAME.fullmatch(name)]
    if strange or not pods:
        raise SourceError(
            f"{(strange or ['no pod'])[0][:60]!r} is no name of a Kubernetes object, so it is not asked for"
        )
    names = "|".join(pod.replace(".", "\\\\.") for pod in pods)
    # Where Prometheus renames what the exporter says, `pod` is the exporter's own; where it honours labels, it is ours.
    parts = []
    for at, where in (("exported_pod", "exported_namespace"), ("pod", "namespace")):
        series = f'DCGM_FI_DEV_FB_FREE{{{at}=~"{names}",{where}="{namespace}"}}'
        whole = f"min_over_time({series}[1d]) and {series} offset 23h"
        parts.append(f'min by (holder) (label_replace({whole}, "holder", "$1", "{at}", "(.*)"))')
    return " or ".join(parts)
