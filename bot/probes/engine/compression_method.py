"""The `compression_method` probe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from bot.domain.cluster.objects import name_of, namespace_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import BotError, ClusterError
from bot.domain.signals.signal import Reading
from bot.domain.signals.window import STALE_SECONDS
from bot.flow.ports.readings import History, PodLogs, ProbeRequest
from bot.probes.answers import agreed, answer
from bot.probes.declaration import Probe
from bot.probes.engine.compression import Compression, Kind, compression_of, evidence_of
from bot.probes.engine.pod_logs import MAX_LOGS, PodsProbe, one_of_each_template


@dataclass(frozen=True)
class CompressionMethod:
    kind: str | None
    offloads: bool | None
    evidence: str


class ReadCompressionMethod(PodsProbe):
    """The class of KV compression that all replicas share, with its evidence."""

    def __init__(self, logs: PodLogs, history: History, now: Callable[[], float]) -> None:
        super().__init__(logs)
        self._history, self._now = history, now

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MAX_LOGS]
        dtypes = await self._cache_dtypes(request)
        logs = await asyncio.gather(*(self._start_of(pod) for pod in pods))
        found = [
            compression_of(evidence_of(pod, snapshot.config_maps, cache_dtype=dtypes.get(name_of(pod), ""), log=log))
            for pod, log in zip(pods, logs, strict=True)
        ]
        return _reading_of(request, found)

    async def _start_of(self, pod: Obj) -> str:
        try:
            return await self._logs.read(namespace_of(pod), name_of(pod)) or ""
        except ClusterError:
            # Without the log the flags and the image may still decide; if they do not, the answer is unknown.
            return ""

    async def _cache_dtypes(self, request: ProbeRequest) -> Mapping[str, str]:
        now = self._now()
        wanted = frozenset({"num_gpu_blocks"})
        try:
            await self._history.sample(request.context)
            scrapes = await self._history.between(request.context, wanted, now - STALE_SECONDS, now)
        except BotError:
            # One of five kinds of evidence: what the others do not show stays unknown.
            return {}
        return {scrape.replica: scrape.config["cache_dtype"] for scrape in scrapes if "cache_dtype" in scrape.config}


def _reading_of(request: ProbeRequest, found: Sequence[Compression]) -> Reading:
    seen = "; ".join(dict.fromkeys(sign for one in found for sign in one.seen))
    why = "; ".join(dict.fromkeys(one.missing for one in found if one.missing))
    parts = CompressionMethod(
        kind=agreed(one.kind for one in found),
        offloads=agreed(one.offloads for one in found),
        evidence=seen,
    )
    missing = {"kind": why or "the replicas differ", "offloads": why or "the replicas differ"}
    return answer(request, parts, missing=missing, detail=seen or why, source="flags, image, env, page and log")


PROBE = Probe(
    name="compression_method",
    label="Compression method",
    help=f"Which KV compression is on, with its evidence. Kinds: {', '.join(get_args(Kind))}.",
    answer=CompressionMethod,
    read=lambda sources: ReadCompressionMethod(sources.logs, sources.history, sources.now),
)
