"""The `slow_part` probe: one engine rank, model or adapter that is slower than the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from bot.domain.signals.history import History, Missing, Reader, gather, ranks_with, rise
from bot.domain.signals.scrape import BY_MODEL, Histogram
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import FIRST_LOOK_SECONDS, Window, short
from bot.flow.ports import ProbeRequest
from bot.probes.answers import answer, seconds_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

WINDOW = "5m"
LEAST_FINISHED = 10
"""A mean of fewer requests says little."""


@dataclass(frozen=True)
class SlowPart:
    kind: str
    """`rank` or `model`."""
    name: str
    replica: str
    """The replica of a rank; empty for a model."""
    ratio: float
    """Its mean time of a request per that of the median of the others."""


@dataclass(frozen=True)
class _Part:
    kind: str
    name: str
    replica: str
    mean: float


class ReadSlowPart(Sampled):
    """Compares the mean times of whole requests. Replicas are compared by signals, and not here."""

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        span = seconds_asked_for(request, "over", WINDOW)
        if isinstance(span, str):
            return unknown(request.name, span, at=now, source=self.history.source)
        window = Window(now - span, now, FIRST_LOOK_SECONDS)
        scrapes = await self.scrapes(request, frozenset({f"{BY_MODEL}_sum", f"{BY_MODEL}_count"}), window)
        history = gather(scrapes, of=request.spec.of, picked={}, window=window)
        found = [slow for parts in (_ranks(history), _models(history)) if (slow := _slowest(parts)) is not None]
        if not found:
            reason = next(iter(history.unreadable.values()), "no two engine ranks or models finish requests")
            return unknown(request.name, reason, at=now, source=self.history.source)
        worst = max(found, key=lambda part: part.ratio)
        where = f" of {worst.replica}" if worst.replica else ""
        detail = f"{worst.kind} {worst.name}{where}: {worst.ratio:.1f} times the others over {short(span)}"
        return answer(request, worst, detail=detail, source=self.history.source)


def _slowest(parts: list[_Part]) -> SlowPart | None:
    if len(parts) < 2:
        return None
    worst = max(parts, key=lambda part: (part.mean, part.replica, part.name))
    others = median(part.mean for part in parts if part is not worst)
    return SlowPart(worst.kind, worst.name, worst.replica, worst.mean / others) if others > 0 else None


def _ranks(history: History) -> list[_Part]:
    """Only of replicas with several: a single rank is the replica itself."""
    found = []
    for replica, scrapes in history.scrapes.items():
        ranks = ranks_with(scrapes, _of_rank("count"))
        for rank in ranks if len(ranks) > 1 else ():
            risen = [rise(scrapes, rank, history.window, _of_rank(part)) for part in ("sum", "count")]
            if (mean := _mean([None if isinstance(one, Missing) else one[0] for one in risen])) is not None:
                found.append(_Part("rank", rank, replica, mean))
    return found


def _models(history: History) -> list[_Part]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for scrapes in history.scrapes.values():
        for model in scrapes[-1].models:
            for index, part in enumerate(("sum", "count")):
                risen = rise(scrapes, model, history.window, _of_model(part))
                sums[model][index] += 0.0 if isinstance(risen, Missing) else risen[0]
    means: Mapping[str, float | None] = {model: _mean(list(both)) for model, both in sums.items()}
    return [_Part("model", model, "", mean) for model, mean in means.items() if mean is not None]


def _mean(risen: list[float] | list[float | None]) -> float | None:
    total, count = risen
    return None if total is None or count is None or count < LEAST_FINISHED else total / count


def _of_rank(part: str) -> Reader:
    return lambda scrape, rank: _value(scrape.histograms.get(rank, {}).get(BY_MODEL), part)


def _of_model(part: str) -> Reader:
    return lambda scrape, model: _value(scrape.models.get(model), part)


def _value(found: Histogram | None, part: str) -> float | None:
    return None if found is None else found.sum if part == "sum" else found.count


PROBE = Probe(
    name="slow_part",
    label="Slow part of a replica",
    help="An engine rank (kind: rank) or model (kind: model) whose requests take longer than those of the others.",
    answer=SlowPart,
    parameters={"over": "How much time is compared."},
    durations=("over",),
    read=ReadSlowPart.of,
)
