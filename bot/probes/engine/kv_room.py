"""The `kv_room` probe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.signals.history import gather
from bot.domain.signals.metric import value_of
from bot.domain.signals.sampling import span_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import MeanSignal
from bot.domain.signals.window import STALE_SECONDS, Window
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled


@dataclass(frozen=True)
class KvRoom:
    free_blocks: float
    blocks_per_request: float | None
    more_requests: float | None
    concurrency: float | None
    tail_waste: float | None


class ReadKvRoom(Sampled):
    """Block arithmetic: blocks of a mean request, how many fit now and in total, and the waste in last blocks."""

    OVER = "30m"

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        window = Window(now - span_of(self.OVER, {}), now)
        lengths = await self.read(
            request,
            {
                "prompt": MeanSignal(mean="request_prompt_tokens"),
                "output": MeanSignal(mean="request_generation_tokens"),
            },
            window,
        )
        needed = frozenset({"num_gpu_blocks", "block_size", "kv_cache_usage_perc"})
        fresh = Window(now - STALE_SECONDS, now)
        gathered = gather(
            await self.scrapes(request, needed, fresh),
            of=request.spec.of,
            picked=request.context.picked,
            window=fresh,
        )
        pools = [pool for scrapes in gathered.scrapes.values() for pool in _pools(scrapes[-1])]
        if not pools:
            return unknown(request.name, "no pool is on any page", at=now, source=self.history.source)
        size = min(size for size, _, _ in pools)
        free = sum(blocks for _, blocks, _ in pools)
        parts = _arithmetic(lengths, size, free, least=min(blocks for _, _, blocks in pools))
        missing = dict.fromkeys(PROBE.kinds, lengths["prompt"].unknown or lengths["output"].unknown)
        return answer(request, parts, missing=missing, source=self.history.source)


def _pools(scrape: Scrape) -> list[tuple[float, float, float]]:
    """Block size, free blocks and usable blocks of each engine rank."""
    found = []
    for rank in scrape.ranks:
        size, free = scrape.ranks[rank].get("block_size"), value_of(scrape, rank, "free_blocks")
        tokens = value_of(scrape, rank, "usable_tokens")
        if size and free is not None and tokens is not None:
            found.append((size, free, tokens / size))
    return found


def _arithmetic(lengths: Mapping[str, Reading], size: float, free: float, *, least: float) -> KvRoom:
    prompt, output = lengths["prompt"].value, lengths["output"].value
    if not isinstance(prompt, float) or not isinstance(output, float) or prompt + output <= 0:
        return KvRoom(free, blocks_per_request=None, more_requests=None, concurrency=None, tail_waste=None)
    blocks = math.ceil((prompt + output) / size)
    # On average the last block of a request is half empty.
    return KvRoom(
        free_blocks=free,
        blocks_per_request=float(blocks),
        more_requests=float(math.floor(free / blocks)),
        concurrency=float(math.floor(least / blocks)),
        tail_waste=(size - 1) / 2 / (prompt + output),
    )


PROBE = Probe(
    name="kv_room",
    label="Room in the KV pool",
    units={"tail_waste": "ratio"},
    help="Free blocks, what a mean request takes, and how many more fit.",
    answer=KvRoom,
    read=ReadKvRoom.of,
)
