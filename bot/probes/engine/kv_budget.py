"""The `kv_budget` probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.signals.history import gather
from bot.domain.signals.metric import value_of
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import STALE_SECONDS, Window
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled


@dataclass(frozen=True)
class KvBudget:
    tokens: float
    block_size: float
    blocks: float


class ReadKvBudget(Sampled):
    """The tokens that the smallest replica's KV pool can hold for requests, from its metrics page."""

    async def __call__(self, request: ProbeRequest) -> Reading:
        context = request.context
        await self.history.sample(context)
        now = self.now()
        metrics = frozenset({"usable_tokens"})
        scrapes = await self.history.between(context, metrics, now - STALE_SECONDS, now)
        window = Window(now - STALE_SECONDS, now)
        history = gather(scrapes, of=request.spec.of, picked=context.picked, window=window)
        pools = [
            (tokens, scrape.ranks[rank]["block_size"], scrape.ranks[rank]["num_gpu_blocks"])
            for scrape in (series[-1] for series in history.scrapes.values())
            for rank in scrape.ranks
            if (tokens := value_of(scrape, rank, "usable_tokens")) is not None
        ]
        if not pools:
            reason = _first(history.unreadable) or "no cache_config_info on any page"
            return unknown(request.name, reason, at=now, source=self.history.source)
        tokens, size, blocks = min(pools)
        parts = KvBudget(tokens, size, blocks)
        detail = (
            "" if len({pool[0] for pool in pools}) == 1 else f"{tokens:,.0f} tokens, the smallest of pools that differ"
        )
        return answer(request, parts, detail=detail, source=self.history.source)


def _first(reasons: Mapping[str, str]) -> str:
    return next((f"{replica}: {reason}" for replica, reason in sorted(reasons.items())), "")


PROBE = Probe(
    name="kv_budget",
    label="KV pool",
    help="The tokens that the smallest replica's KV pool holds.",
    answer=KvBudget,
    read=ReadKvBudget.of,
)
