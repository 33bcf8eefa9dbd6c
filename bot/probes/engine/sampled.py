"""Reads the engines' own history of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from bot.domain.signals.sampling import SampledSpec, metrics_of, read_window
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.window import STALE_SECONDS, Window, coarse
from bot.flow.ports.readings import History, ProbeRequest
from bot.probes.declaration import Sources


@dataclass(frozen=True)
class Sampled:
    """A probe over the history of the replicas' metrics."""

    history: History
    now: Callable[[], float]

    @classmethod
    def of(cls, sources: Sources) -> Self:
        return cls(sources.history, sources.now)

    async def scrapes(
        self, request: ProbeRequest, metrics: frozenset[str], window: Window, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        await self.history.sample(request.context)
        return await self.history.between(request.context, metrics, window.start, window.end, step=step)

    async def read(
        self, request: ProbeRequest, specs: Mapping[str, SampledSpec], window: Window
    ) -> Mapping[str, Reading]:
        """None of these specs may be about a peak: a long window is read at fewer samples."""
        metrics = frozenset[str]().union(*(metrics_of(spec) for spec in specs.values()))
        step = 0.0 if self.history.has_whole_pages else coarse(window.seconds)
        scrapes = await self.scrapes(request, metrics, window, step=step)
        sparse = replace(window, longest_gap=max(step, STALE_SECONDS))
        return {
            name: read_window(name, spec, scrapes, window=sparse, picked=request.context.picked)
            for name, spec in specs.items()
        }
