"""The `no_progress` probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.signals.history import Missing, gather, measured, reader_of
from bot.domain.signals.metric import value_of
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import MADE
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import REACH_SECONDS, Window, quantile
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, number_asked_for, seconds_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

OVER = "5m"
POLLS = 10
BAD = 3.0
"""Of the polls: one without progress may be a pause of a process."""
READS = "kv_cache_usage_perc"
"""It rises while an engine reads a long prompt, whose tokens are counted at its end. Not on every page."""
HELD = ("num_requests_running", "num_requests_waiting")
WHAT = f"{HELD[0]}, {HELD[1]}, {MADE[0]} or {MADE[1]}"


@dataclass(frozen=True)
class NoProgress:
    bad: float
    """Of the worst replica, which is as bad as its worst rank."""
    worst: str
    least: float | None
    """Of the best rank of any replica: if its polls are bad too, the whole fleet stands still.

    Unknown if fewer of the replicas that were up for the time could be read than could not.
    """
    hung: float
    """How many replicas have that many bad polls."""
    names: str
    """Of those."""


@dataclass(frozen=True)
class _Polls:
    """Of one rank, or of a replica's ranks together."""

    judged: int
    bad: float
    """Of the worst rank."""
    least: float
    """Of the best rank."""


class ReadNoProgress(Sampled):
    """Of ten polls, how many found requests on a replica on which nothing moved."""

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        seconds = seconds_asked_for(request, "over", OVER)
        if isinstance(seconds, str):
            return unknown(request.name, seconds, at=now, source=self.history.source)
        window = Window(now - seconds, now)
        # The first poll needs the last sample before it.
        longer = Window(window.start - max(seconds / POLLS, REACH_SECONDS), now)
        scrapes = await self.scrapes(request, frozenset({*HELD, *MADE, READS}), longer)
        gathered = gather(scrapes, of=request.spec.of, picked={}, window=longer)
        by_rank, missing = measured(
            gathered, WHAT, reader_of(HELD[0]), lambda scrapes, rank: _polls(scrapes, rank, window)
        )
        polls = {replica: _together(ranks) for replica, ranks in by_rank.items()}
        known = {replica: found.bad for replica, found in polls.items() if found.judged * 2 >= POLLS}
        if not known:
            reason = next(iter(missing.values()), "fewer than half of the polls are there")
            return unknown(request.name, reason, at=now, source=self.history.source)
        worst = min(known, key=lambda replica: (-known[replica], replica))
        unread = gathered.due - known.keys()
        # Of a replica that is too young there are few polls, but no more: they show whether it moves.
        seen = [found.least for replica, found in polls.items() if found.judged and replica not in unread]
        limit = number_asked_for(request, "bad") or BAD
        hung = sorted(replica for replica, bad in known.items() if bad >= limit)
        least = min(seen) if len(known) >= len(unread) else None
        parts = NoProgress(known[worst], worst, least, float(len(hung)), ", ".join(hung))
        why = {"least": f"{len(unread)} of {len(known) + len(unread)} replicas could not be read"}
        detail = f"{worst}: {known[worst]:.0f} of {POLLS} polls without progress"
        reading = answer(request, parts, missing=why, detail=detail, source=self.history.source)
        return reading.model_copy(update={"by_replica": known})


def _together(ranks: Sequence[_Polls]) -> _Polls:
    return _Polls(
        judged=min(rank.judged for rank in ranks),
        bad=max(rank.bad for rank in ranks),
        least=min(rank.least for rank in ranks),
    )


def _polls(scrapes: Sequence[Scrape], rank: str, window: Window) -> _Polls | Missing:
    """The polls with two samples, one of which may be the last before it, and one the next after it."""
    seconds = window.seconds / POLLS
    starts = [window.start + number * seconds for number in range(POLLS)]
    samples = [_samples_in(Window(start, start + seconds), scrapes) for start in starts]
    verdicts = [_stands_still(own, rank) for own in samples if len(own) >= 2]
    known = [verdict for verdict in verdicts if verdict is not None]
    if len(known) < len(verdicts):
        return Missing(f"no {WHAT} on its page")
    bad = float(sum(known))
    return _Polls(judged=len(known), bad=bad, least=bad)


def _samples_in(poll: Window, scrapes: Sequence[Scrape]) -> Sequence[Scrape]:
    reach = max(poll.seconds, REACH_SECONDS)
    before = [scrape for scrape in scrapes if poll.start - reach <= scrape.at <= poll.start]
    inside = [scrape for scrape in scrapes if poll.start < scrape.at <= poll.end]
    # A rank that made no progress in a longer time made none in the poll.
    after = [] if inside else [scrape for scrape in scrapes if poll.end < scrape.at <= poll.end + reach]
    return [*before[-1:], *inside, *after[:1]]


def _stands_still(scrapes: Sequence[Scrape], rank: str) -> bool | None:
    """Requests are present all the time, none finishes, no token is generated, and no long prompt is read.

    None: the pages do not say it.
    """
    held, rose = _median_held(scrapes, rank), [_rose(scrapes, rank, name) for name in MADE]
    if any(rose) or _rose(scrapes, rank, READS) or (held is not None and held < 1):
        return False
    return None if held is None or None in rose else True


def _median_held(scrapes: Sequence[Scrape], rank: str) -> float | None:
    running, waiting = (_values(scrapes, rank, name) for name in HELD)
    if not len(running) == len(waiting) == len(scrapes):
        return None
    return quantile([sum(both) for both in zip(running, waiting, strict=True)], 0.5)


def _rose(scrapes: Sequence[Scrape], rank: str, name: str) -> bool | None:
    values = _values(scrapes, rank, name)
    return values[-1] != values[0] if len(values) >= 2 else None


def _values(scrapes: Sequence[Scrape], rank: str, name: str) -> list[float]:
    return [value for scrape in scrapes if (value := value_of(scrape, rank, name)) is not None]


PROBE = Probe(
    name="no_progress",
    label="Replicas without progress",
    help="Of ten polls, how many found requests on a replica and none finished.",
    answer=NoProgress,
    parameters={
        "over": Parameter("How long the ten polls take together.", "duration"),
        "bad": Parameter("How many polls without progress are a hang, 3 by default: a number or a setting.", "number"),
    },
    read=ReadNoProgress.of,
)
