"""A day of the GPUs' free memory, and of the containers' memory on the host, from a Prometheus.

An incomplete day is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from bot.adapters.prometheus.queries import NO_LABELS, PrometheusQueries, also, refuse_strange
from bot.domain.cluster.workload import POD_OF_IT
from bot.domain.kernel.errors import SourceError
from bot.flow.ports.readings import MemoryKind

Points = Sequence[tuple[float, float]]


class PrometheusMemory:
    def __init__(self, client: httpx.AsyncClient, url: str, labels: Mapping[str, str] = NO_LABELS) -> None:
        """`labels`: those that only the series of this cluster have."""
        self._queries, self._labels = PrometheusQueries(client, url, about="Prometheus: "), labels

    async def least_free_mib(self, namespace: str, pods: Sequence[str]) -> float:
        found = await self._ask(least_free_query(namespace, pods, self._labels))
        free_mib = {pod: float(one["value"][1]) for one in found if (pod := one["metric"].get("holder"))}
        absent = sorted(set(pods) - free_mib.keys())
        if absent:
            raise SourceError(f"Prometheus has no whole day of the GPU memory of {', '.join(absent)}")
        return min(free_mib.values())

    async def day_before(
        self, what: MemoryKind, namespace: str, pods: Sequence[str], at: float, *, of: str = ""
    ) -> Sequence[Points]:
        """Every series of it in the day that ends at `at`, one point in five minutes; none if there is no record.

        `of`: a Deployment whose pods of that day are included, whatever their names.
        """
        query = day_query(what, namespace, pods, of, self._labels)
        found = await self._ask(query, at=at)
        return [[(float(at), float(value)) for at, value in one.get("values", [])] for one in found]

    async def _ask(self, query: str, *, at: float | None = None) -> list[dict[str, Any]]:
        return self._queries.series_of(await self._queries.ask(query, at=at))


def day_query(
    what: MemoryKind, namespace: str, pods: Sequence[str], of: str = "", labels: Mapping[str, str] = NO_LABELS
) -> str:
    """As a subquery, so that a fleet's day stays small. Raises `SourceError` for an invalid name."""
    names = _pattern(namespace, pods)
    if of:
        names = f"{names}|{_pattern(namespace, [of])}{POD_OF_IT}"
    if what == "host":
        # The sum over a pod's cgroup has no container; the engine's own container is the one that restarts.
        where = f'{{namespace="{namespace}",pod=~"{names}",container!="",container!="POD"{also(labels)}}}'
        return f"(max by (pod, container) (container_memory_working_set_bytes{where}))[1d:5m]"
    parts = [
        f'DCGM_FI_DEV_FB_FREE{{{at}=~"{names}",{where}="{namespace}"{also(labels)}}}'
        for at, where in (("exported_pod", "exported_namespace"), ("pod", "namespace"))
    ]
    return f"({' or '.join(parts)})[1d:5m]"


def least_free_query(namespace: str, pods: Sequence[str], labels: Mapping[str, str] = NO_LABELS) -> str:
    """The least free memory of each pod's GPUs in a day, of pods that existed for the whole of it.

    Raises `SourceError` for a name that is invalid in Kubernetes.
    """
    names = _pattern(namespace, pods)
    # If Prometheus renames the exporter's labels, `pod` is the exporter's own; if it honours them, it is ours.
    parts = []
    for at, where in (("exported_pod", "exported_namespace"), ("pod", "namespace")):
        series = f'DCGM_FI_DEV_FB_FREE{{{at}=~"{names}",{where}="{namespace}"{also(labels)}}}'
        whole = f"min_over_time({series}[1d]) and {series} offset 23h"
        parts.append(f'min by (holder) (label_replace({whole}, "holder", "$1", "{at}", "(.*)"))')
    return " or ".join(parts)


def _pattern(namespace: str, pods: Sequence[str]) -> str:
    refuse_strange((namespace, *(pods or ["no pod"])))
    return "|".join(pod.replace(".", "\\\\.") for pod in pods)
