"""Samples of a workload's live replicas in a window, replica by replica, and the replicas that could not be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Literal, TypeVar

from bot.domain.kernel.durations import lasting
from bot.domain.kernel.references import pick_in
from bot.domain.signals.metric import on_pages, value_of
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.window import STALE_SECONDS, Point, Window, counted_seconds, increase

HistogramPart = Literal["sum", "count"]
COUNTERS = tuple(sorted(on_pages("counter")))

Reader = Callable[[Scrape, str], float | None]
"""One value of a scrape for an engine rank; None when the page does not have it."""


@dataclass(frozen=True)
class Missing:
    """Why a number is unavailable."""

    reason: str


@dataclass(frozen=True)
class History:
    """Samples in a signal's window from the live replicas that it covers, oldest first, and unreadable replicas."""

    window: Window
    scrapes: Mapping[str, Sequence[Scrape]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    due: frozenset[str] = frozenset()
    """Replicas that should have samples of enough of the window: neither too young nor silent out of rotation."""

    @property
    def newest(self) -> float:
        return max((scrapes[-1].at for scrapes in self.scrapes.values()), default=self.window.end)


def gather(
    scrapes: Sequence[Scrape], *, of: str, picked: Mapping[str, str], window: Window, looks_back: bool = False
) -> History:
    """Sorts the window's scrapes by replica. Replicas that are gone have no bearing on now and are left out.

    `looks_back`: what a replica answered before counts, although it cannot be read now.
    """
    by_replica: dict[str, list[Scrape]] = defaultdict(list)
    for scrape in sorted(scrapes, key=lambda s: s.at):
        if window.start <= scrape.at <= window.end:
            by_replica[scrape.replica].append(scrape)
    good: dict[str, Sequence[Scrape]] = {}
    unreadable: dict[str, str] = {}
    due: set[str] = set()
    for replica, of_replica in by_replica.items():
        newest = of_replica[-1]
        if not _is_asked_for(newest, of, picked) or window.end - newest.at > STALE_SECONDS:
            continue
        answers = [scrape for scrape in of_replica if not scrape.error]
        is_fresh = bool(answers) and window.end - answers[-1].at <= STALE_SECONDS
        if answers and (looks_back or (is_fresh and not _is_reborn(answers[-1], newest))):
            good[replica] = answers
            # One that has ended is not scraped any more, and need not have covered the window.
            is_due = window.is_covered(newest.at - _up_since(of_replica))
        else:
            unreadable[replica] = newest.error
            # One that loads its model or starts over and over serves nobody.
            is_due = newest.in_rotation is not False
        if is_due:
            due.add(replica)
    return History(window, good, unreadable, frozenset(due))


def _up_since(scrapes: Sequence[Scrape]) -> float:
    """When it first answered, or was in rotation and should have."""
    return next(scrape.at for scrape in scrapes if not scrape.error or scrape.in_rotation is not False)


def _is_asked_for(scrape: Scrape, of: str, picked: Mapping[str, str]) -> bool:
    if (pick := pick_in(of)) is not None:
        return scrape.replica == picked.get(pick)
    return scrape.role == of


def _is_reborn(answered: Scrape, newest: Scrape) -> bool:
    """Whether the newest attempt met another pod of the same name, as a StatefulSet creates them."""
    return bool(answered.uid and newest.uid and answered.uid != newest.uid)


def nobody(of: str, *, is_past: bool = False) -> str:
    who = {"target": "no replica", "canary": "no canary"}.get(of, f"the replica in {of}")
    if is_past:
        return f"{who} was scraped in the {lasting(STALE_SECONDS)} before the window's end: no history reaches there"
    return f"{who} was scraped in the last {lasting(STALE_SECONDS)}"


def lives_of(scrapes: Sequence[Scrape], rank: str) -> list[int]:
    """Returns the number of the process behind each scrape: a new pod, a new start or a counter that falls is another.

    Every counter of the rank on the page is compared: the page may lack its process's start time, and the value that is
    read may fall by itself.
    """
    lives: list[int] = []
    life, uid, born = 0, "", None
    before = [0.0] * len(COUNTERS)
    for scrape in scrapes:
        another_pod = bool(uid and scrape.uid and scrape.uid != uid)
        another_start = born is not None and scrape.started_at is not None and abs(scrape.started_at - born) > 1
        page = scrape.ranks.get(rank, {})
        # A counter that is not on this page keeps its last value.
        counted = list(map(page.get, COUNTERS, before))
        if another_pod or another_start or any(map(lt, counted, before)):
            life += 1
            counted = [page.get(name, 0.0) for name in COUNTERS]
        uid, born, before = scrape.uid or uid, scrape.started_at if scrape.started_at is not None else born, counted
        lives.append(life)
    return lives


def series(scrapes: Sequence[Scrape], rank: str, read: Reader, *, lives: Sequence[int] | None = None) -> list[Point]:
    """Returns one rank's values over time. `lives`: of these scrapes, from a caller that reads many of their values."""
    return [
        Point(scrape.at, value, life, scrape.started_at)
        for scrape, life in zip(scrapes, lives_of(scrapes, rank) if lives is None else lives, strict=True)
        if (value := read(scrape, rank)) is not None
    ]


def ranks_with(scrapes: Sequence[Scrape], read: Reader) -> list[str]:
    """Returns the engine ranks whose newest page has it; some metrics are counted once for all ranks of a replica."""
    newest = scrapes[-1]
    return [rank for rank in sorted({*newest.ranks, *newest.histograms}) if read(newest, rank) is not None]


T = TypeVar("T")


def measured(
    history: History, what: str, read: Reader, measure: Callable[[Sequence[Scrape], str], T | Missing]
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """Runs `measure` on each rank of each replica that has it; returns why the other replicas could not be measured."""
    found: dict[str, list[T]] = {}
    missing = dict(history.unreadable)
    for replica, scrapes in history.scrapes.items():
        answers = [measure(scrapes, rank) for rank in ranks_with(scrapes, read)]
        failed = [answer.reason for answer in answers if isinstance(answer, Missing)]
        if failed or not answers:
            missing[replica] = failed[0] if failed else f"no {what} on its page"
        else:
            found[replica] = [answer for answer in answers if not isinstance(answer, Missing)]
    return found, missing


def short_history(covered: float, window: Window) -> Missing | None:
    if window.is_covered(covered):
        return None
    return Missing(f"only {lasting(covered)} of {lasting(window.seconds)} of history")


def rise(
    scrapes: Sequence[Scrape],
    rank: str,
    window: Window,
    read: Reader,
    *,
    may_fall: bool = False,
    lives: Sequence[int] | None = None,
) -> tuple[float, float] | Missing:
    """Returns how much a counter rose in the window, and the seconds over which that was counted."""
    points = series(scrapes, rank, read, lives=lives)
    counted = counted_seconds(points, window)
    if len(points) < 2 and counted <= 0:
        return Missing(f"only one sample in {lasting(window.seconds)}; a counter needs two")
    return short_history(counted, window) or (increase(points, window, may_fall=may_fall), counted)


def reader_of(metric: str) -> Reader:
    return lambda scrape, rank: value_of(scrape, rank, metric)


def histogram_reader(histogram: str, part: HistogramPart) -> Reader:
    return lambda scrape, rank: part_of(scrape.histograms.get(rank, {}).get(histogram), part)


def part_of(found: Histogram | None, part: HistogramPart) -> float | None:
    return None if found is None else found.sum if part == "sum" else found.count
