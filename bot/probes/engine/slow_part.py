"""The `slow_part` probe: one engine rank, model or adapter that is slower than the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bot.domain.kernel.durations import lasting
from bot.domain.signals.history import (
    HistogramPart,
    History,
    Missing,
    Reader,
    gather,
    histogram_reader,
    lives_of,
    part_of,
    ranks_with,
    rise,
)
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import MeanRequest, median_request
from bot.domain.signals.scrape import OF_REQUESTS, WHOLE, Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import NEEDED_SECONDS, Window
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, seconds_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

WINDOW = "5m"
LEAST_FINISHED = 10
"""A mean of fewer requests says little."""
PARTS: tuple[HistogramPart, ...] = ("sum", "count")
_Sums = tuple[float, float]
"""Of a histogram: how much its sum and its count rose."""


@dataclass(frozen=True)
class SlowPart:
    kind: str
    """`rank` or `model`."""
    name: str
    replica: str
    """The replica of a rank; empty for a model."""
    ratio: float
    """Its mean time of a request, as long as it would be for lengths like the others', per the median of theirs."""


@dataclass(frozen=True)
class _Part:
    kind: str
    name: str
    replica: str
    requests: MeanRequest | None
    """None: the lengths of its requests are not on its page."""


class ReadSlowPart(Sampled):
    """Compares the mean times of whole requests at equal lengths. Replicas are compared by signals, and not here."""

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        span = seconds_asked_for(request, "over", WINDOW)
        if isinstance(span, str):
            return unknown(request.name, span, at=now, source=self.history.source)
        window = Window(now - span, now, NEEDED_SECONDS)
        metrics = frozenset(f"{metric}_{part}" for metric in OF_REQUESTS for part in PARTS)
        history = gather(await self.scrapes(request, metrics, window), of=request.spec.of, picked={}, window=window)
        kinds = (_ranks(history), _models(history))
        found = [slow for parts in kinds if (slow := _slowest(parts)) is not None]
        if not found:
            unmeasured = [part for parts in kinds for part in parts if part.requests is None]
            reason = next(iter(history.unreadable.values()), _why_none(unmeasured))
            return unknown(request.name, reason, at=now, source=self.history.source)
        worst = max(found, key=lambda part: part.ratio)
        where = f" of {worst.replica}" if worst.replica else ""
        compared = f"{worst.ratio:.1f} times the others over {lasting(span)}, at equal lengths of requests"
        return answer(
            request, worst, detail=f"{worst.kind} {worst.name}{where}: {compared}", source=self.history.source
        )


def _why_none(unmeasured: Sequence[_Part]) -> str:
    if not unmeasured:
        return "no two engine ranks or models finish requests"
    first = unmeasured[0]
    alike = [part.name for part in unmeasured if (part.kind, part.replica) == (first.kind, first.replica)]
    where = f" of {first.replica}" if first.replica else ""
    return f"the lengths of the requests of {first.kind}s {', '.join(alike)}{where} are not on its page"


def _slowest(parts: Sequence[_Part]) -> SlowPart | None:
    """The slowest for the lengths of its requests, compared with the median of the others."""
    known = [(part, part.requests) for part in parts if part.requests is not None]
    if len(known) < 2:
        return None
    usual = median_request(requests for _, requests in known)
    part, own = max(known, key=lambda one: (one[1].whole / one[1].needs(usual), one[0].replica, one[0].name))
    others = median_request(requests for other, requests in known if other is not part)
    if others.whole <= 0:
        return None
    return SlowPart(part.kind, part.name, part.replica, own.whole / own.needs(others) / others.whole)


def _ranks(history: History) -> list[_Part]:
    """Only of replicas with several: a single rank is the replica itself."""
    found = []
    for replica, scrapes in history.scrapes.items():
        ranks = ranks_with(scrapes, histogram_reader(WHOLE, "count"))
        for rank in ranks if len(ranks) > 1 else ():
            lives = lives_of(scrapes, rank)
            risen = {
                metric: _risen(scrapes, rank, history, partial(histogram_reader, metric), lives)
                for metric in OF_REQUESTS
            }
            found += _part("rank", rank, replica, risen)
    return found


def _models(history: History) -> list[_Part]:
    sums: dict[str, dict[str, _Sums]] = defaultdict(lambda: dict.fromkeys(OF_REQUESTS, (0.0, 0.0)))
    for scrapes in history.scrapes.values():
        for model in scrapes[-1].by_model:
            lives = lives_of(scrapes, model)
            for metric, (total, count) in sums[model].items():
                more = _risen(scrapes, model, history, partial(_of_model, metric), lives)
                sums[model][metric] = total + more[0], count + more[1]
    return [part for model, risen in sums.items() for part in _part("model", model, "", risen)]


def _risen(
    scrapes: Sequence[Scrape],
    key: str,
    history: History,
    reader: Callable[[HistogramPart], Reader],
    lives: Sequence[int],
) -> _Sums:
    """How much sum and count rose; nothing where that is not known."""
    if reader("count")(scrapes[-1], key) is None:
        return 0.0, 0.0
    total, count = (rise(scrapes, key, history.window, reader(part), lives=lives) for part in PARTS)
    return (0.0, 0.0) if isinstance(total, Missing) or isinstance(count, Missing) else (total[0], count[0])


def _part(kind: str, name: str, replica: str, risen: Mapping[str, _Sums]) -> list[_Part]:
    """Empty if it finished too little to be compared."""
    if risen[WHOLE][1] < LEAST_FINISHED:
        return []
    means = [total / count for total, count in risen.values() if count > 0]
    return [_Part(kind, name, replica, MeanRequest(*means) if len(means) == len(OF_REQUESTS) else None)]


def _of_model(metric: str, part: HistogramPart) -> Reader:
    return lambda scrape, model: part_of(scrape.by_model.get(model, {}).get(metric), part)


PROBE = Probe(
    name="slow_part",
    label="Slow part of a replica",
    help="An engine rank (kind: rank) or model (kind: model) whose requests take longer than those of the others, "
    "at equal lengths.",
    answer=SlowPart,
    parameters={
        "over": Parameter("How much time is compared.", "duration"),
    },
    read=ReadSlowPart.of,
)
