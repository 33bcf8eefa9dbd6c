"""The XID registers of GPUs as Prometheus recorded them, which dates a fault that the bot did not see happen."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import httpx

from bot.adapters.prometheus.queries import NO_LABELS, PrometheusQueries, also
from bot.domain.kernel.errors import SourceError

_UUID = re.compile(r"[A-Za-z0-9-]{1,80}")
"""A GPU's name; nothing else goes into a query."""


class PrometheusRegisters:
    def __init__(self, client: httpx.AsyncClient, url: str, labels: Mapping[str, str] = NO_LABELS) -> None:
        """`labels`: those that only the series of this cluster have."""
        self._queries, self._labels = PrometheusQueries(client, url, about="Prometheus: "), labels

    async def xids(self, uuids: Sequence[str], start: float, end: float) -> Mapping[str, Sequence[tuple[float, float]]]:
        """A GPU has a series for each pod that held it and for each of its slices: the highest of a time counts."""
        answer = await self._queries.ask(xid_query(uuids, end - start, self._labels), at=end)
        points = defaultdict[str, dict[float, float]](dict)
        for series in self._queries.series_of(answer):
            of_gpu = points[str(series["metric"].get("UUID", ""))]
            for at, value in series.get("values", []):
                of_gpu[float(at)] = max(of_gpu.get(float(at), 0.0), float(value))
        return {uuid: sorted(found.items()) for uuid, found in points.items()}


def xid_query(uuids: Sequence[str], seconds: float, labels: Mapping[str, str] = NO_LABELS) -> str:
    """Raises `SourceError` for a name that no GPU has."""
    strange = [uuid for uuid in uuids if not _UUID.fullmatch(uuid)]
    if strange or not uuids:
        raise SourceError(f"{(strange or ['no GPU'])[0][:80]!r} is not the name of a GPU, so it is not asked for")
    return f'DCGM_FI_DEV_XID_ERRORS{{UUID=~"{"|".join(uuids)}"{also(labels)}}}[{math.ceil(seconds)}s]'
