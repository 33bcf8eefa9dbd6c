"""The `no_progress` probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.signals.history import gather, reader_of, series
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import Window, quantile
from bot.flow.ports import ProbeRequest
from bot.probes.answers import answer, seconds_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

OVER = "5m"
POLLS = 10


@dataclass(frozen=True)
class NoProgress:
    bad: float
    """Of the worst replica."""
    worst: str
    least: float
    """Of the best replica: if its polls are bad too, the whole fleet stands still."""


class ReadNoProgress(Sampled):
    """Of ten polls, how many found requests on a replica and none of them finished."""

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        seconds = seconds_asked_for(request, "over", OVER)
        if isinstance(seconds, str):
            return unknown(request.name, seconds, at=now, source=self.history.source)
        window = Window(now - seconds, now)
        metrics = frozenset({"num_requests_running", "num_requests_waiting", "request_success", "generation_tokens"})
        said = gather(await self.scrapes(request, metrics, window), of=request.spec.of, picked={}, window=window)
        bad = {replica: _bad_polls(scrapes, window) for replica, scrapes in said.scrapes.items()}
        known = {replica: count for replica, count in bad.items() if count is not None}
        if not known:
            reason = next(iter(said.unreadable.values()), "fewer than half of the polls are there")
            return unknown(request.name, reason, at=now, source=self.history.source)
        worst = min(known, key=lambda replica: (-known[replica], replica))
        parts = NoProgress(known[worst], worst, min(known.values()))
        detail = f"{worst}: {known[worst]:.0f} of {POLLS} polls without progress"
        reading = answer(request, parts, detail=detail, source=self.history.source)
        return reading.model_copy(update={"by_replica": known})


def _bad_polls(scrapes: Sequence[Scrape], window: Window) -> float | None:
    """None if fewer than half of the polls fell on samples."""
    bad, judged = 0, 0
    poll_seconds = (window.end - window.start) / POLLS
    for poll in range(POLLS):
        part = Window(window.start + poll * poll_seconds, window.start + (poll + 1) * poll_seconds)
        own = [scrape for scrape in scrapes if part.start <= scrape.at <= part.end]
        if len(own) < 2:
            continue
        judged += 1
        bad += _stands_still(own)
    return float(bad) if judged * 2 >= POLLS else None


def _stands_still(scrapes: Sequence[Scrape]) -> bool:
    """Requests are present all the time, none finishes, and no token is generated: a long answer still makes tokens."""
    ranks = scrapes[-1].ranks
    held = [_median(scrapes, rank, "num_requests_running", "num_requests_waiting") for rank in ranks]
    moved = [_rose(scrapes, rank, name) for rank in ranks for name in ("request_success", "generation_tokens")]
    return sum(held) >= 1 and not any(moved)


def _median(scrapes: Sequence[Scrape], rank: str, *names: str) -> float:
    sums = [sum(scrape.ranks.get(rank, {}).get(name, 0.0) for name in names) for scrape in scrapes]
    return quantile(sums, 0.5)


def _rose(scrapes: Sequence[Scrape], rank: str, name: str) -> bool:
    points = series(scrapes, rank, reader_of(name))
    return len(points) >= 2 and points[-1].value != points[0].value


PROBE = Probe(
    name="no_progress",
    label="Replicas without progress",
    help="Of ten polls, how many found requests on a replica and none finished.",
    answer=NoProgress,
    parameters={"over": "How long the ten polls take together."},
    durations=("over",),
    read=ReadNoProgress.of,
)
