"""Probes about KV pressure over the engines' own history: room for more, a day's lengths, early signs, no progress.

A day of history that is not there is unknown: a quiet hour proves nothing about the day.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, seconds_of
from bot.domain.signals.history import History as Said
from bot.domain.signals.history import Missing, gather, reader_of, rise, series
from bot.domain.signals.metric import value_of
from bot.domain.signals.sampling import SampledSpec, metrics_of, read_window, span_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import MeanSignal, MetricSignal, QuantileSignal
from bot.domain.signals.window import STALE_SECONDS, Window, quantile, short
from bot.flow.ports import History, Probe, Question
from bot.flow.probes import Part, answer, pods_asked_for

DAY_SECONDS = 24 * 3600.0
NEEDED_OF_DAY = 0.9
"""The proof of a day is nearly a whole day."""
POLL_SECONDS = 30.0
POLLS = 10
EQUAL_ARRIVALS = 0.2
"""Arrivals that differ by less than this share are called equal."""
RESTARTED_SECONDS = 1800.0


def pressure_probes(*, history: History, now: Callable[[], float]) -> dict[str, Probe]:
    return {
        "kv_room": KvRoom(history, now),
        "request_lengths": RequestLengths(history, now),
        "pressure_symptoms": PressureSymptoms(history, now),
        "no_progress": NoProgress(history, now),
    }


@dataclass(frozen=True)
class _Asking:
    history: History
    now: Callable[[], float]

    async def scrapes(self, question: Question, metrics: frozenset[str], window: Window) -> Sequence[Scrape]:
        await self.history.sample(question.context)
        return await self.history.between(question.context, metrics, window.start, window.end)

    async def read(self, question: Question, specs: Mapping[str, SampledSpec], window: Window) -> Mapping[str, Reading]:
        metrics = frozenset[str]().union(*(metrics_of(spec) for spec in specs.values()))
        scrapes = await self.scrapes(question, metrics, window)
        return {
            name: read_window(name, spec, scrapes, window=window, picked=question.context.picked)
            for name, spec in specs.items()
        }


# --- room in the pool -------------------------------------------------------------------------------------------------


class KvRoom(_Asking):
    """Block arithmetic: blocks of a mean request, how many fit now and at all, what last blocks waste."""

    OVER = "30m"

    async def __call__(self, question: Question) -> Reading:
        now = self.now()
        window = Window(now - span_of(self.OVER, {}), now)
        lengths = await self.read(
            question,
            {
                "prompt": MeanSignal(mean="request_prompt_tokens"),
                "output": MeanSignal(mean="request_generation_tokens"),
            },
            window,
        )
        needed = frozenset({"num_gpu_blocks", "block_size", "kv_cache_usage_perc"})
        fresh = Window(now - STALE_SECONDS, now)
        said = gather(
            await self.scrapes(question, needed, fresh),
            of=question.spec.of,
            picked=question.context.picked,
            window=fresh,
        )
        pools = [pool for scrapes in said.scrapes.values() for pool in _pools(scrapes[-1])]
        if not pools:
            return unknown(question.name, "no pool is on any page", at=now, source=self.history.source)
        size = min(size for size, _, _ in pools)
        free = sum(blocks for _, blocks, _ in pools)
        parts: dict[str, Part | None] = {"free_blocks": free}
        parts |= _arithmetic(lengths, size, free, least=min(blocks for _, _, blocks in pools))
        missing = dict.fromkeys(parts, lengths["prompt"].unknown or lengths["output"].unknown)
        return answer(question, parts, missing=missing, source=self.history.source)


def _pools(scrape: Scrape) -> list[tuple[float, float, float]]:
    """Block size, free blocks and usable blocks of each engine rank."""
    found = []
    for rank in scrape.ranks:
        size, free = scrape.ranks[rank].get("block_size"), value_of(scrape, rank, "free_blocks")
        tokens = value_of(scrape, rank, "usable_tokens")
        if size and free is not None and tokens is not None:
            found.append((size, free, tokens / size))
    return found


def _arithmetic(lengths: Mapping[str, Reading], size: float, free: float, *, least: float) -> dict[str, Part | None]:
    prompt, output = lengths["prompt"].value, lengths["output"].value
    if not isinstance(prompt, float) or not isinstance(output, float) or prompt + output <= 0:
        return dict.fromkeys(("blocks_per_request", "more_requests", "concurrency", "tail_waste"))
    blocks = math.ceil((prompt + output) / size)
    # On average the last block of a request is half empty.
    return {
        "blocks_per_request": float(blocks),
        "more_requests": float(math.floor(free / blocks)),
        "concurrency": float(math.floor(least / blocks)),
        "tail_waste": (size - 1) / 2 / (prompt + output),
    }


# --- a day's lengths --------------------------------------------------------------------------------------------------


class RequestLengths(_Asking):
    """How long requests could have become in a day, by the next larger bucket, and which share was longer than that.

    The engine refuses a request by the answer that it asks for, however short the answer then is. Who asks for nothing
    is counted with all that the model's length leaves, which proves no shorter one.
    """

    PROMPT, ASKED = "request_prompt_tokens", "request_params_max_tokens"

    async def __call__(self, question: Question) -> Reading:
        now = self.now()
        window = Window(now - DAY_SECONDS, now)
        metrics = frozenset({self.PROMPT, self.ASKED})
        said = gather(await self.scrapes(question, metrics, window), of=question.spec.of, picked={}, window=window)
        if not said.scrapes:
            return unknown(question.name, "no replica was scraped", at=now, source=self.history.source)
        counts = {name: _bucket_counts(said, name) for name in sorted(metrics)}
        short_of = next((count.reason for count in counts.values() if isinstance(count, Missing)), "")
        if short_of:
            return unknown(question.name, short_of, at=now, source=self.history.source)
        # Prompts and what was asked for are counted apart, so each may have half of what is allowed.
        allowed = _share(question) / 2
        bounds = [_bound(count, allowed) for count in counts.values() if not isinstance(count, Missing)]
        if any(bound is None for bound in bounds):
            reason = "some requests are longer than the largest bucket"
            return unknown(question.name, reason, at=now, source=self.history.source)
        longest = sum(bound for bound, _, _ in filter(None, bounds))
        above = sum(share for _, share, _ in filter(None, bounds))
        requests = max(count for _, _, count in filter(None, bounds))
        parts: dict[str, Part | None] = {"longest": longest, "above": above, "requests": requests}
        detail = (
            f"of {requests:.0f} requests in a day, prompt and the answer asked for stayed within {longest:.0f} tokens"
        )
        return answer(question, parts, detail=detail, source=self.history.source)


def _share(question: Question) -> float:
    """The share of requests that may be longer: a number, or the setting that holds it."""
    share = question.spec.parameters.get("share", 0.0)
    if isinstance(share, str):
        share = question.context.settings.get(share.removeprefix("settings."), 0.0)
    return float(share)


def _bucket_counts(said: Said, name: str) -> dict[str, float] | Missing:
    """How many observations of the window each bucket got, all replicas together."""
    total: dict[str, float] = {}
    for replica, scrapes in said.scrapes.items():
        covered = scrapes[-1].at - scrapes[0].at
        if covered < NEEDED_OF_DAY * said.window.seconds:
            return Missing(f"only {short(covered)} of {short(said.window.seconds)} of history of {replica}")
        for rank, histograms in scrapes[-1].histograms.items():
            for bound in histograms[name].buckets if name in histograms else ():
                risen = rise(scrapes, rank, said.window, _bucket_reader(name, bound))
                if isinstance(risen, Missing):
                    return risen
                total[bound] = total.get(bound, 0.0) + risen[0]
    return total or Missing(f"no {name} on any page")


def _bucket_reader(name: str, bound: str) -> Callable[[Scrape, str], float | None]:
    def read(scrape: Scrape, rank: str) -> float | None:
        found = scrape.histograms.get(rank, {}).get(name)
        return None if found is None else found.buckets.get(bound)

    return read


def _bound(counts: Mapping[str, float], allowed: float) -> tuple[float, float, float] | None:
    """The smallest finite bound with at most this share above it, that share, and all observations."""
    total = max(counts.values(), default=0.0)
    for bound, count in sorted((float(bound), count) for bound, count in counts.items()):
        above = (total - count) / total if total > 0 else 1.0
        if above <= allowed and math.isfinite(bound):
            return bound, above, total
    return None


# --- early signs ------------------------------------------------------------------------------------------------------


class PressureSymptoms(_Asking):
    """How many early signs there are at once. A sign that cannot be read is not counted, and named.

    Parameters: `over` is what counts as now, and `past` how long ago the time before it began.
    """

    OVER, PAST = "30m", "24h"

    async def __call__(self, question: Question) -> Reading:
        now, asked, settings = self.now(), question.spec.parameters, question.context.settings
        try:
            span = span_of(str(asked.get("over", self.OVER)), settings)
            past = span_of(str(asked.get("past", self.PAST)), settings)
        except ValueError as error:
            return unknown(question.name, str(error), at=now, source=self.history.source)
        recent = await self.read(question, _SIGNS, Window(now - span, now))
        before = await self.read(question, _SIGNS, Window(now - past, now - span))
        signs = {
            "fewer run at once": _collapsed(recent, before),
            "latency doubled": _doubled(recent, before),
            "the queue grows": _grows(recent),
            "restarts": await self._restarted(question),
        }
        known = {name: sign for name, sign in signs.items() if sign is not None}
        if not known:
            return unknown(question.name, "no sign can be read", at=now, source=self.history.source)
        shown = ", ".join(name for name, sign in known.items() if sign) or "none"
        blind = ", ".join(signs.keys() - known.keys())
        detail = shown + (f"; not readable: {blind}" if blind else "")
        parts: dict[str, Part | None] = {"count": float(sum(known.values())), "signs": shown}
        return answer(question, parts, detail=detail, source=self.history.source)

    async def _restarted(self, question: Question) -> bool | None:
        world = await question.world()
        if "pods" in world.unreadable:
            return None
        ends = [
            seconds_of(dig(status, "lastState", "terminated", "finishedAt") or "")
            for pod in pods_asked_for(question, world)
            for status in dig(pod, "status", "containerStatuses") or []
        ]
        return any(end is not None and question.at - end <= RESTARTED_SECONDS for end in ends)


_SIGNS: dict[str, SampledSpec] = {
    "running": MetricSignal(metric="num_requests_running", take="p50", across="sum"),
    "waiting": MetricSignal(metric="num_requests_waiting", take="p90", across="sum"),
    "rising": MetricSignal(metric="num_requests_waiting", take="slope", across="sum"),
    "arrivals": MetricSignal(metric="arrivals", take="steady", across="sum"),
    "latency": QuantileSignal(histogram="e2e_request_latency_seconds", quantile=0.95),
}
QUEUE_FLOOR = 2.0


def _number(readings: Mapping[str, Reading], name: str) -> float | None:
    value = readings[name].value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _collapsed(recent: Mapping[str, Reading], before: Mapping[str, Reading]) -> bool | None:
    """Half as many run at once, with as many arrivals."""
    ran, runs = _number(before, "running"), _number(recent, "running")
    came, come = _number(before, "arrivals"), _number(recent, "arrivals")
    if ran is None or runs is None or came is None or come is None:
        return None
    return abs(come - came) <= EQUAL_ARRIVALS * came and runs <= ran / 2 and ran > 0


def _doubled(recent: Mapping[str, Reading], before: Mapping[str, Reading]) -> bool | None:
    was, now = _number(before, "latency"), _number(recent, "latency")
    return None if was is None or now is None else now >= 2 * was > 0


def _grows(recent: Mapping[str, Reading]) -> bool | None:
    slope, waiting = _number(recent, "rising"), _number(recent, "waiting")
    return None if slope is None or waiting is None else slope > 0 and waiting > QUEUE_FLOOR


# --- no progress ------------------------------------------------------------------------------------------------------


class NoProgress(_Asking):
    """Of the last ten polls, half a minute apart, how many found requests on a replica and none of them finished."""

    async def __call__(self, question: Question) -> Reading:
        now = self.now()
        window = Window(now - POLL_SECONDS * POLLS, now)
        metrics = frozenset({"num_requests_running", "num_requests_waiting", "request_success", "generation_tokens"})
        said = gather(await self.scrapes(question, metrics, window), of=question.spec.of, picked={}, window=window)
        bad = {replica: _bad_polls(scrapes, window) for replica, scrapes in said.scrapes.items()}
        known = {replica: count for replica, count in bad.items() if count is not None}
        if not known:
            reason = next(iter(said.unreadable.values()), "fewer than half of the polls are there")
            return unknown(question.name, reason, at=now, source=self.history.source)
        worst = min(known, key=lambda replica: (-known[replica], replica))
        parts: dict[str, Part | None] = {"bad": known[worst], "worst": worst}
        detail = f"{worst}: {known[worst]:.0f} of {POLLS} polls without progress"
        reading = answer(question, parts, detail=detail, source=self.history.source)
        return reading.model_copy(update={"by_replica": known})


def _bad_polls(scrapes: Sequence[Scrape], window: Window) -> float | None:
    """None when fewer than half of the polls fell on samples."""
    bad, judged = 0, 0
    for poll in range(POLLS):
        part = Window(window.start + poll * POLL_SECONDS, window.start + (poll + 1) * POLL_SECONDS)
        own = [scrape for scrape in scrapes if part.start <= scrape.at <= part.end]
        if len(own) < 2:
            continue
        judged += 1
        bad += _stands_still(own)
    return float(bad) if judged * 2 >= POLLS else None


def _stands_still(scrapes: Sequence[Scrape]) -> bool:
    """Something is there all the time, nothing finishes, and no token comes: a long answer still makes tokens."""
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
