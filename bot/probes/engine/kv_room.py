"""The `kv_room` probe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    free_blocks: float | None
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
        needed = frozenset({"free_blocks", "usable_tokens"})
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
        parts = _arithmetic(lengths, pools)
        missing = dict.fromkeys(PROBE.kinds, lengths["prompt"].unknown or lengths["output"].unknown)
        unread = {name: why for name, why in gathered.unreadable.items() if name in gathered.due}
        if unread:
            # What is free in the fleet is not known; what one request takes is.
            parts = replace(parts, free_blocks=None, more_requests=None)
            reason = next(f"{name}: {why}" for name, why in sorted(unread.items()))
            missing |= dict.fromkeys(("free_blocks", "more_requests"), reason)
        return answer(request, parts, missing=missing, source=self.history.source)


@dataclass(frozen=True)
class _Pool:
    """The pool of one engine rank."""

    block_size: float
    free_blocks: float
    tokens: float
    blocks: float
    """Without the null block."""

    def blocks_for(self, tokens: float) -> int:
        return math.ceil(tokens * self.blocks / self.tokens)


def _pools(scrape: Scrape) -> list[_Pool]:
    found = []
    for rank, values in scrape.ranks.items():
        free, tokens = value_of(scrape, rank, "free_blocks"), value_of(scrape, rank, "usable_tokens")
        if free is not None and tokens:
            found.append(_Pool(values["block_size"], free, tokens, values["num_gpu_blocks"] - 1))
    return found


def _arithmetic(lengths: Mapping[str, Reading], pools: Sequence[_Pool]) -> KvRoom:
    prompt, output = lengths["prompt"].value, lengths["output"].value
    free = sum(pool.free_blocks for pool in pools)
    if not isinstance(prompt, float) or not isinstance(output, float) or prompt + output <= 0:
        return KvRoom(free, blocks_per_request=None, more_requests=None, concurrency=None, tail_waste=None)
    blocks = max(pool.blocks_for(prompt + output) for pool in pools)
    # On average the last block of a request is half empty.
    return KvRoom(
        free_blocks=free,
        blocks_per_request=float(blocks),
        # No request has its blocks in two engines.
        more_requests=float(sum(pool.free_blocks // pool.blocks_for(prompt + output) for pool in pools)),
        concurrency=float(math.floor(min(pool.blocks for pool in pools) / blocks)),
        tail_waste=(min(pool.block_size for pool in pools) - 1) / 2 / (prompt + output),
    )


PROBE = Probe(
    name="kv_room",
    label="Room in the KV pool",
    units={"tail_waste": "ratio"},
    help="Free blocks, what a mean request takes, and how many more fit.",
    answer=KvRoom,
    read=ReadKvRoom.of,
)
