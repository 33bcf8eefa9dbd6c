"""Computes readings from scrapes: each replica and engine rank over the window first, then across replicas.

Missing data never counts as zero: a window without enough history, a replica without an answer and a ratio of 0/0 are
unknown, with the reason in plain words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.durations import lasting, seconds
from bot.domain.kernel.references import setting_in
from bot.domain.signals.history import (
    History,
    Missing,
    Reader,
    gather,
    histogram_reader,
    lives_of,
    measured,
    nobody,
    ranks_with,
    reader_of,
    rise,
    series,
    short_history,
)
from bot.domain.signals.metric import METRICS, TAKES, metric_fault, value_of
from bot.domain.signals.scrape import ANSWER, OF_REQUESTS, WHOLE, ReplicaLoad, Scrape
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.specs import (
    Across,
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
    StallSignal,
)
from bot.domain.signals.window import (
    REACH_SECONDS,
    Point,
    Window,
    began_inside,
    counted,
    counted_seconds,
    histogram_quantile,
    increase,
    quantile,
    sampled_seconds,
    share_above,
    slope,
    steady_rate,
)

SampledSpec = MetricSignal | RatioSignal | MeanSignal | QuantileSignal | ShareSignal | StallSignal

_Rise = tuple[float, float]
"""How much one counter rose, and how much the other."""

MADE = ("request_success", "generation_tokens")
"""What an engine gets done. A long answer finishes late, but makes tokens all the time."""
MOVED = (*MADE, "kv_cache_usage_perc")
"""One of them changes while an engine works; the last while it reads a long prompt, which is counted at its end."""
INTERVAL = "inter_token_latency_seconds"
MAX_NAMED = 3
"""How many replicas a reason names."""
MIN_SAMPLES = 3
"""Of a gauge for a quantile over time: a bot that had no time to sample must not take a moment for a window."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MUCH_LONGER = 1.2
"""From here on people read that a replica's requests are longer."""
STALL_FALL, STALL_RISE = 0.7, 1.3
"""Running falls by 30 %, waiting rises by 30 %: a real stall went from 27 to 7 and from 13 to 32 within 14 s."""


def span_of(over: str, settings: Mapping[str, float | str | bool]) -> float:
    """Returns a window's length in seconds: a duration (`5m`), or the setting that holds one (`settings.window`).

    Raise `ValueError` if it is neither.
    """
    value: float | str | bool | None = over
    if (name := setting_in(over)) is not None:
        value = settings.get(name)
    if value is None or isinstance(value, bool):
        raise ValueError(f"{over} is not a duration")
    return seconds(value) if isinstance(value, str) else float(value)


def with_target(spec: SampledSpec, settings: Mapping[str, float | str | bool]) -> SampledSpec:
    """Returns the spec with its target as a number. Raise `ValueError` if it has none."""
    if not isinstance(spec, ShareSignal) or not isinstance(spec.share_above, str):
        return spec
    try:
        target = float(spec.share_above)
    except ValueError:
        target = span_of(spec.share_above, settings)
    return spec.model_copy(update={"share_above": target})


def end_of(ending: str, moments: Mapping[str, float]) -> float | None:
    """Returns the past time at which a window ends, None for now. Raise `ValueError` while it is unknown."""
    if not ending:
        return None
    if ending not in moments:
        raise ValueError(f"the window ends at {ending}, which was not read yet")
    return moments[ending]


def spec_fault(spec: SignalSpec) -> str:
    """Returns why this spec can never yield a reading, whatever the replicas report; empty if it can."""
    match spec:
        case MetricSignal():
            fault = metric_fault(spec.metric, "gauge", "counter")
            if fault or spec.take in TAKES[shape := METRICS[spec.metric].shape]:
                return fault
            if shape == "counter":
                return f"'{spec.metric}' is a counter: take rate or increase, not {spec.take}"
            return f"'{spec.metric}' is a gauge: it has no {spec.take}"
        case RatioSignal():
            return next(filter(None, (metric_fault(name, "counter") for name in spec.ratio)), "")
        case MeanSignal():
            if spec.at_equal_lengths and (spec.mean, spec.across) != (WHOLE, "each"):
                return f"at_equal_lengths is only for {WHOLE}, taken across each"
            return metric_fault(spec.mean, "histogram")
        case QuantileSignal():
            return metric_fault(spec.histogram, "histogram") or (
                "" if 0 < spec.quantile < 1 else "a quantile lies between 0 and 1"
            )
        case ShareSignal():
            return metric_fault(spec.histogram, "histogram") or (
                f"{spec.share_above} is not a target yet" if isinstance(spec.share_above, str) else ""
            )
        case StallSignal() | ProbeSignal() | ComparedSignal():
            return ""


def unit_of(spec: SampledSpec) -> str:
    """Returns the unit of this spec's reading: as written, else of its metrics; a boolean has none."""
    match spec:
        case StallSignal():
            return ""
        case _ if spec.unit:
            return spec.unit
        case MetricSignal():
            return METRICS[spec.metric].unit + ("/s" if spec.take in ("rate", "steady", "slope") else "")
        case RatioSignal():
            above, below = (METRICS[metric].unit for metric in spec.ratio)
            return "ratio" if above == below else f"{above} per {below.removesuffix('s')}"
        case MeanSignal():
            return METRICS[spec.mean].unit
        case QuantileSignal():
            return METRICS[spec.histogram].unit
        case ShareSignal():
            return "ratio"


def metrics_of(spec: SampledSpec) -> frozenset[str]:
    """Returns the metrics that this spec reads. A mean needs no buckets, which are most of a histogram."""
    match spec:
        case MetricSignal():
            return frozenset({spec.metric})
        case RatioSignal():
            return frozenset({*spec.ratio, "num_requests_running"})
        case MeanSignal():
            means = OF_REQUESTS if spec.at_equal_lengths else (spec.mean,)
            return frozenset(f"{mean}_{part}" for mean in means for part in ("sum", "count"))
        case QuantileSignal() | ShareSignal():
            lengths = {f"{ANSWER}_sum", f"{ANSWER}_count"} if spec.histogram == INTERVAL else set[str]()
            return frozenset({spec.histogram, *lengths})
        case StallSignal():
            return METRICS["arrivals"].inputs


def reach_of(spec: SampledSpec) -> float:
    """Returns how long before its window its samples may lie: where one a minute is taken, the sign needs the last."""
    return REACH_SECONDS if isinstance(spec, StallSignal) else 0.0


def read_window(
    name: str, spec: SampledSpec, scrapes: Sequence[Scrape], *, window: Window, picked: Mapping[str, str]
) -> Reading:
    """Returns the reading of one signal over one window; ignores `scrapes` outside of it.

    Known or not, it names the query, the time and the unit.
    """
    fault = spec_fault(spec)
    if fault:
        return unknown(name, fault, at=window.end)
    reading = _read(name, spec, scrapes, window=window, picked=picked)
    asked = {"window_seconds": max(window.seconds, 0.0), "query": words_of(spec, window), "unit": unit_of(spec)}
    return copy_with(reading, **asked)


def _read(
    name: str, spec: SampledSpec, scrapes: Sequence[Scrape], *, window: Window, picked: Mapping[str, str]
) -> Reading:
    if window.seconds <= 0:
        return unknown(name, "a window must be longer than 0 s", at=window.end)
    reached = replace(window, start=window.start - reach_of(spec))
    history = gather(scrapes, of=spec.of, picked=picked, window=reached)
    if not history.scrapes and not history.unreadable:
        return unknown(name, nobody(spec.of, is_past=bool(spec.ending)), at=window.end)
    match spec:
        case MetricSignal():
            reading = _metric(name, spec, history)
        case RatioSignal():
            reading = _ratio(name, spec, history)
        case MeanSignal():
            reading = _mean(name, spec, history)
        case QuantileSignal():
            reading = _quantile(name, spec, history)
        case ShareSignal():
            reading = _share_above(name, spec, history)
        case StallSignal():
            reading = _stall(name, history, window)
    return copy_with(reading, at=history.newest)


# --- metric -----------------------------------------------------------------------------------------------------------


def _metric(name: str, spec: MetricSignal, history: History) -> Reading:
    read = reader_of(spec.metric)
    found, missing = measured(
        history, spec.metric, read, lambda scrapes, rank: _take(spec, scrapes, rank, history.window)
    )
    by_replica = {replica: _join_ranks(values, spec) for replica, values in found.items()}
    unit = unit_of(spec)
    if spec.across == "each":
        return _answer(name, by_replica, by_replica, missing, unit)
    if spec.across == "sum" and found and (unread := {r: why for r, why in missing.items() if r in history.due}):
        # Most replicas show the fleet's shares and maxima; their sum is only a part of its sum, for people.
        reason = f"{len(unread)} of {len(found.keys() | unread)} replicas could not be read: {_reasons(unread)}"
        part = across_all([value for values in found.values() for value in values], "sum")
        others = f"the other {len(found)} together" if len(found) > 1 else "the other one"
        return unknown(name, f"{reason}; {others}: {round(part, 2):g} {unit}", at=history.newest)
    value = across_all([value for values in found.values() for value in values], spec.across) if found else None
    return _answer(name, value, by_replica, missing, unit)


def _take(spec: MetricSignal, scrapes: Sequence[Scrape], rank: str, window: Window) -> float | Missing:
    read = reader_of(spec.metric)
    may_fall = METRICS[spec.metric].may_fall
    if spec.take in ("rate", "steady", "increase"):
        risen = rise(scrapes, rank, window, read, may_fall=may_fall)
        if isinstance(risen, Missing):
            return risen
        if spec.take == "steady":
            return steady_rate(series(scrapes, rank, read), window, may_fall=may_fall)
        return risen[0] if spec.take == "increase" else risen[0] / risen[1]
    found = series(scrapes, rank, read)
    if spec.take == "last":
        return found[-1].value
    if spec.take == "slope":
        return _slope(found, window)
    if few := short_history(sampled_seconds(found, window), window):
        return few
    if spec.take in QUANTILES and len(found) < MIN_SAMPLES:
        return Missing(f"only {len(found)} samples in {lasting(window.seconds)}; a {spec.take} needs {MIN_SAMPLES}")
    return _over_time([point.value for point in found], spec.take)


def _slope(found: Sequence[Point], window: Window) -> float | Missing:
    """Uses the newest process alone: the step to another process's first value is not a trend."""
    own = [point for point in found if point.life == found[-1].life]
    return short_history(sampled_seconds(own, window), window) or slope(own)


def _over_time(values: Sequence[float], take: str) -> float:
    if take in QUANTILES:
        return quantile(values, QUANTILES[take])
    if take == "avg":
        return sum(values) / len(values)
    return max(values) if take == "max" else min(values)


def across_all(values: Sequence[float], across: Across) -> float:
    match across:
        case "max" | "each":
            return max(values)
        case "min":
            return min(values)
        case "avg":
            return sum(values) / len(values)
        case "sum":
            return sum(values)


def _join_ranks(values: Sequence[float], spec: MetricSignal) -> float:
    """Returns one number for a replica with several engine ranks: shares are compared, amounts are added."""
    if spec.across in ("each", "sum"):
        return max(values) if METRICS[spec.metric].is_share else sum(values)
    return across_all(values, spec.across)


# --- ratio, mean ------------------------------------------------------------------------------------------------------


def _ratio(name: str, spec: RatioSignal, history: History) -> Reading:
    above, below = spec.ratio
    rises, missing = _rises(history, (above, reader_of(above)), (below, reader_of(below)))
    pairs = {replica: _compared_parts(rises[replica], spec.across) for replica in rises}
    each = {replica: share for replica, parts in pairs.items() if (share := _share_of(parts, spec.across)) is not None}
    whole = _share(*_added([_added(ranks) for ranks in rises.values()]))
    if pairs and (whole is None or not each):
        return unknown(name, _nothing(below, history), at=history.newest)
    reading = _answer(name, _joined(each, whole, spec.across), each, missing, unit_of(spec), readable=len(pairs))
    if not reading.is_known:
        return reading
    silent = sorted(replica for replica, parts in pairs.items() if any(risen > 0 and per == 0 for risen, per in parts))
    idle = sorted(pairs.keys() - each.keys())
    notes = [
        reading.detail,
        f"no {below} on {', '.join(silent)}: counted as one" if silent else "",
        f"nothing to compare on {', '.join(idle)}" if idle else "",
    ]
    return reading.model_copy(update={"detail": "; ".join(filter(None, notes))})


def _compared_parts(ranks: Sequence[_Rise], across: Across) -> Sequence[_Rise]:
    """The replica's ranks, where the worst of something is asked for: a pod may have eight of them, and one is bad."""
    return [_added(ranks)] if across == "sum" else ranks


def _share_of(parts: Sequence[_Rise], across: Across) -> float | None:
    shares = [share for part in parts if (share := _share(*part)) is not None]
    return across_all(shares, across) if shares else None


def _added(parts: Sequence[_Rise]) -> _Rise:
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def _share(risen: float, per: float) -> float | None:
    """Something per nothing counts as per one: a bad sign, not an error. Nothing per nothing is None."""
    if per > 0:
        return risen / per
    return risen if risen > 0 else None


def _joined(each: dict[str, float], whole: float | None, across: Across) -> float | dict[str, float] | None:
    if across == "sum":
        return whole
    if across == "each":
        return each
    return across_all(list(each.values()), across) if each else None


def _nothing(counted: str, history: History) -> str:
    """Explains 0/0 with the load: the engine may be idle or stuck."""
    running = [
        value_of(scrapes[-1], rank, "num_requests_running")
        for scrapes in history.scrapes.values()
        for rank in scrapes[-1].ranks
    ]
    at_work = sum(each for each in running if each is not None)
    span = lasting(history.window.seconds)
    if at_work == 0 and None in running:
        return f"{counted} did not rise in {span}, and how many requests run is not known"
    if at_work > 0:
        return f"{counted} did not rise in {span} although {at_work:g} requests run"
    return f"no load: {counted} did not rise in {span} and nothing runs"


def _mean(name: str, spec: MeanSignal, history: History) -> Reading:
    pairs, missing = _mean_pairs(history, spec.mean)
    each = _means(pairs)
    if pairs and not each:
        return unknown(name, f"no {spec.mean} observed in {lasting(history.window.seconds)}", at=history.newest)
    if spec.at_equal_lengths:
        return _at_equal_lengths(name, each, missing, history)
    observed = sum(pair[1] for pair in pairs.values())
    whole = sum(pair[0] for pair in pairs.values()) / observed if observed > 0 else None
    return _answer(name, _joined(each, whole, spec.across), each, missing, unit_of(spec), readable=len(pairs))


def _at_equal_lengths(name: str, each: dict[str, float], missing: dict[str, str], history: History) -> Reading:
    """Each replica's time, as long as it would be if none of its requests were longer than the median replica's."""
    whole, first, prompt, answer = means = [each, *(_means(_mean_pairs(history, one)[0]) for one in OF_REQUESTS[1:])]
    known = set[str].intersection(*map(set, means))
    missing |= dict.fromkeys(each.keys() - known, "the lengths of its requests are not on its page")
    if not known:
        return unknown(name, _reasons(missing), at=history.newest)
    requests = {one: MeanRequest(whole[one], first[one], prompt[one], answer[one]) for one in sorted(known)}
    usual = median_request(requests.values())
    times: dict[str, float] = {}
    longer: list[str] = []
    for replica, own in requests.items():
        needs = own.needs(usual)
        times[replica] = own.whole / needs
        if needs >= MUCH_LONGER:
            longer.append(f"{replica} needs {needs:.1f} times as long for the lengths of its requests")
    reading = _answer(name, times, times, missing, METRICS[WHOLE].unit)
    return reading.model_copy(update={"detail": "; ".join(filter(None, (reading.detail, *longer[:MAX_NAMED])))})


class MeanRequest(NamedTuple):
    """The means of many requests: seconds in all and until the first token, tokens of the prompt and of the answer."""

    whole: float
    first: float
    prompt: float
    answer: float

    def needs(self, usual: MeanRequest) -> float:
        """Returns how many times as long as the usual request its lengths make it; 1 if they are not longer."""
        until_first = usual.first
        rest = max(0.0, usual.whole - until_first)
        of_prompt = max(1.0, self.prompt / max(1.0, usual.prompt))
        of_answer = max(1.0, self.answer / max(1.0, usual.answer))
        return (until_first * of_prompt + rest * of_answer) / (until_first + rest) if until_first + rest > 0 else 1.0


def median_request(several: Iterable[MeanRequest]) -> MeanRequest:
    return MeanRequest(*map(median, zip(*several, strict=True)))


def _means(pairs: Mapping[str, _Rise]) -> dict[str, float]:
    return {replica: risen / observed for replica, (risen, observed) in pairs.items() if observed > 0}


def _mean_pairs(history: History, metric: str) -> tuple[dict[str, _Rise], dict[str, str]]:
    total, count = histogram_reader(metric, "sum"), histogram_reader(metric, "count")
    return _pairs(history, (metric, total), (metric, count))


def _pairs(
    history: History, above: tuple[str, Reader], below: tuple[str, Reader]
) -> tuple[dict[str, _Rise], dict[str, str]]:
    """Returns for each replica how much the two rose, all its ranks together."""
    rises, missing = _rises(history, above, below)
    return {replica: _added(ranks) for replica, ranks in rises.items()}, missing


def _rises(
    history: History, above: tuple[str, Reader], below: tuple[str, Reader]
) -> tuple[dict[str, Sequence[_Rise]], dict[str, str]]:
    """Returns for each replica how much the two rose on each rank, or on all together if not each rank has both."""

    def of_ranks(what: str, read: Reader) -> tuple[dict[str, list[tuple[float, float]]], dict[str, str]]:
        may_fall = METRICS[what].may_fall
        return measured(
            history, what, read, lambda scrapes, rank: rise(scrapes, rank, history.window, read, may_fall=may_fall)
        )

    (tops, no_top), (bottoms, no_bottom) = of_ranks(*above), of_ranks(*below)
    rises: dict[str, Sequence[_Rise]] = {}
    for replica in sorted(tops.keys() & bottoms.keys()):
        risen, per = [part[0] for part in tops[replica]], [part[0] for part in bottoms[replica]]
        has_both = len(risen) == len(per)
        rises[replica] = list(zip(risen, per, strict=True)) if has_both else [(sum(risen), sum(per))]
    return rises, no_bottom | no_top


# --- quantile, stall --------------------------------------------------------------------------------------------------


def _quantile(name: str, spec: QuantileSignal, history: History) -> Reading:
    buckets, missing = _buckets(history, spec.histogram)
    each = {r: own for r, counts in buckets.items() if (own := histogram_quantile(counts, spec.quantile)) is not None}
    together = _add_buckets(list(buckets.values()))
    value = histogram_quantile(together, spec.quantile)
    if buckets and value is None:
        if _has_no_intervals(spec.histogram, together, history):
            return _no_token_is_late(name, missing, unit_of(spec), readable=len(buckets))
        nothing = f"no {spec.histogram} observed in {lasting(history.window.seconds)}"
        no_bound = f"the replicas' {spec.histogram} have no bound in common"
        reason = no_bound if any(count > 0 for count in together.values()) else nothing
        return unknown(name, reason, at=history.newest)
    return _answer(name, value, each, missing, unit_of(spec), readable=len(buckets))


def _share_above(name: str, spec: ShareSignal, history: History) -> Reading:
    buckets, missing = _buckets(history, spec.histogram)
    target = float(spec.share_above)
    each = {r: own for r, counts in buckets.items() if (own := share_above(counts, target)) is not None}
    together = _add_buckets(list(buckets.values()))
    value = share_above(together, target)
    if buckets and value is None:
        if _has_no_intervals(spec.histogram, together, history):
            return _no_token_is_late(name, missing, unit_of(spec), readable=len(buckets))
        observed = together.get("+Inf", 0.0) > 0
        nothing = f"no {spec.histogram} observed in {lasting(history.window.seconds)}"
        beyond = f"{target:g} lies beyond the highest bound of {spec.histogram}"
        return unknown(name, beyond if observed else nothing, at=history.newest)
    return _answer(name, value, each, missing, unit_of(spec), readable=len(buckets))


def _has_no_intervals(histogram: str, counts: Mapping[str, float], history: History) -> bool:
    """Whether its observations are missing because all finished answers had one token or none.

    Those of prefill replicas have one, those of embedding, ranking and other pooling models none.
    """
    if histogram != INTERVAL or any(count > 0 for count in counts.values()):
        return False
    tokens, finished = _added(list(_mean_pairs(history, ANSWER)[0].values()))
    return finished > 0 and tokens <= finished


def _no_token_is_late(name: str, missing: Mapping[str, str], unit: str, *, readable: int) -> Reading:
    reading = _answer(name, 0.0, {}, missing, unit, readable=readable)
    detail = "; ".join(filter(None, ("no answer had a second token", reading.detail)))
    return reading.model_copy(update={"detail": detail}) if reading.is_known else reading


def _buckets(history: History, histogram: str) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Returns for each replica how much its cumulative counts rose in the window, all its ranks together."""
    count = histogram_reader(histogram, "count")
    risen, missing = measured(
        history, histogram, count, lambda scrapes, rank: bucket_rises(scrapes, rank, histogram, history.window)
    )
    return {replica: _add_buckets(ranks) for replica, ranks in risen.items()}, missing


def bucket_rises(scrapes: Sequence[Scrape], rank: str, histogram: str, window: Window) -> dict[str, float] | Missing:
    """Returns how much each cumulative count of one rank rose in the window."""
    count = histogram_reader(histogram, "count")
    lives = lives_of(scrapes, rank)
    risen = rise(scrapes, rank, window, count, lives=lives)
    if isinstance(risen, Missing):
        return risen
    ends = _ends_of_lives([(scrape, life) for scrape, life in zip(scrapes, lives, strict=True)], rank, count)
    counts = [(scrape.histograms[rank][histogram].buckets, life) for scrape, life in ends]
    first, rises = Point(ends[0][0].at, 0.0, born=ends[0][0].started_at), dict.fromkeys(counts[-1][0], 0.0)
    earlier = [({}, None) if began_inside(first, window) else counts[0], *counts]
    for (before, of), (after, life) in pairwise(earlier):
        for bound in rises.keys() & after.keys():
            rises[bound] += counted(before.get(bound, after[bound]), after[bound], life != of)
    return rises


def _ends_of_lives(scrapes: Sequence[tuple[Scrape, int]], rank: str, count: Reader) -> Sequence[tuple[Scrape, int]]:
    """The first and the last scrape of each process that have a count, and those around each fall of it.

    What a histogram counts only rises in between, and a day has thousands of scrapes with dozens of buckets each.
    """
    counted = [(scrape, life, value) for scrape, life in scrapes if (value := count(scrape, rank)) is not None]
    last = len(counted) - 1

    def is_end(place: int) -> bool:
        _, life, value = counted[place]
        begins = place == 0 or counted[place - 1][1] != life or value < counted[place - 1][2]
        return begins or place == last or counted[place + 1][1] != life or counted[place + 1][2] < value

    return [(scrape, life) for place, (scrape, life, _) in enumerate(counted) if is_end(place)]


def _add_buckets(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Adds cumulative counts at the bounds that all have; engine versions differ in the others."""
    if not several:
        return {}
    common = set[str].intersection(*(set(buckets) for buckets in several))
    return {bound: sum(buckets[bound] for buckets in several) for bound in common}


def _stall(name: str, history: History, window: Window) -> Reading:
    """The preemption counter is silent in a full stall, so running, waiting and finished requests decide."""
    found, missing = measured(
        history,
        "request_success, num_requests_running or num_requests_waiting",
        reader_of("arrivals"),
        lambda scrapes, rank: _rank_stalls(scrapes, rank, window),
    )
    signs = {replica: float(any(verdicts)) for replica, verdicts in found.items()}
    return _answer(name, any(signs.values()), signs, missing, "")


def _rank_stalls(scrapes: Sequence[Scrape], rank: str, window: Window) -> bool | Missing:
    inside = [scrape for scrape in scrapes if scrape.at >= window.start]
    scrapes = inside if len(inside) >= 2 else scrapes[-2:]
    finished = rise(scrapes, rank, window, reader_of("request_success"))
    if isinstance(finished, Missing):
        return finished
    running = [point.value for point in series(scrapes, rank, reader_of("num_requests_running"))]
    waiting = [point.value for point in series(scrapes, rank, reader_of("num_requests_waiting"))]
    falls = max(running) > 0 and running[-1] <= STALL_FALL * max(running)
    rises = waiting[-1] > 0 and waiting[-1] >= STALL_RISE * min(waiting)
    return finished[0] == 0 and falls and rises


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(
    name: str,
    value: float | bool | dict[str, float] | None,
    by_replica: dict[str, float],
    missing: Mapping[str, str],
    unit: str,
    *,
    readable: int | None = None,
) -> Reading:
    """Known if at least half of the live replicas could be read; the others are named either way.

    The worst replica is often the one that no longer answers, so a minority does not represent the fleet.
    """
    answered = len(by_replica) if readable is None else readable
    if answered == 0 or answered < len(missing) or value is None:
        return unknown(name, _reasons(missing), at=0.0)
    detail = f"not counted: {_reasons(missing)}" if missing else ""
    return Reading(name=name, value=value, by_replica=by_replica, unit=unit, detail=detail)


def _reasons(missing: Mapping[str, str]) -> str:
    """Groups replicas by reason, so that four replicas with the same problem make one phrase."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for replica, reason in sorted(missing.items()):
        grouped[reason].append(replica)
    if len(grouped) == 1:
        reason, replicas = next(iter(grouped.items()))
        return f"{reason} ({_few(replicas)})"
    return "; ".join(f"{_few(replicas)}: {reason}" for reason, replicas in grouped.items())


def _few(replicas: Sequence[str]) -> str:
    """Names all of three, else two and the number of the others: a fleet's names would hide the reason."""
    if len(replicas) <= MAX_NAMED:
        return ", ".join(replicas)
    return f"{', '.join(replicas[: MAX_NAMED - 1])} and {len(replicas) - MAX_NAMED + 1} more"


def words_of(spec: SampledSpec, window: Window) -> str:
    """Describes the query in one line that a person can check against a dashboard."""
    span = lasting(window.seconds) + (f" ending at {spec.ending}" if spec.ending else "")
    of = "" if spec.of == "target" else f" of {spec.of}"
    match spec:
        case MetricSignal():
            return f"{spec.take} of {spec.metric} over {span}, {spec.across} across replicas{of}"
        case RatioSignal():
            return f"increase of {spec.ratio[0]} per {spec.ratio[1]} over {span}, {spec.across} across replicas{of}"
        case MeanSignal():
            lengths = " at equal lengths" if spec.at_equal_lengths else ""
            return f"mean of {spec.mean}{lengths} over {span}, {spec.across} across replicas{of}"
        case QuantileSignal():
            return f"{spec.quantile:g} quantile of {spec.histogram} over {span}, all replicas{of}"
        case ShareSignal():
            return f"share of {spec.histogram} above {float(spec.share_above):g} over {span}, all replicas{of}"
        case StallSignal():
            return f"running falls, waiting rises, nothing finishes over {span}{of}"


# --- load -------------------------------------------------------------------------------------------------------------


def loads_in(scrapes: Sequence[Scrape], window: Window) -> dict[str, ReplicaLoad]:
    """Returns the load of each replica from its newest page, whatever its role; absent if its newest page failed."""
    loads: dict[str, ReplicaLoad] = {}
    newest = {scrape.replica: scrape for scrape in sorted(scrapes, key=lambda scrape: scrape.at)}
    for role in ("target", "canary"):
        for replica, found in gather(scrapes, of=role, picked={}, window=window).scrapes.items():
            if newest[replica].error:
                continue
            arrived, counted = _arrived(found, window)
            loads[replica] = ReplicaLoad(
                running=_now(found, "num_requests_running"),
                waiting=_now(found, "num_requests_waiting"),
                arrivals_in_window=arrived,
                window_seconds=counted,
                has_moved=_has_moved(found),
            )
    return loads


def _has_moved(scrapes: Sequence[Scrape]) -> bool | None:
    ranks = ranks_with(scrapes, reader_of("num_requests_running"))
    if any(len(set(lives_of(scrapes, rank))) > 1 for rank in ranks):
        return True
    seen = [[value_of(scrape, rank, name) for scrape in scrapes] for rank in ranks for name in MOVED]
    if any(len({value for value in values if value is not None}) > 1 for values in seen):
        return True
    is_known = len(scrapes) > 1 and bool(seen) and not any(None in values for values in seen)
    return False if is_known else None


def _now(scrapes: Sequence[Scrape], metric: str) -> float | None:
    read = reader_of(metric)
    ranks = ranks_with(scrapes, read)
    return sum(read(scrapes[-1], rank) or 0.0 for rank in ranks) if ranks else None


def _arrived(scrapes: Sequence[Scrape], window: Window) -> tuple[float | None, float]:
    """Returns how many requests arrived, and in how many seconds; the caller judges whether those are enough."""
    read = reader_of("arrivals")
    found = [series(scrapes, rank, read) for rank in ranks_with(scrapes, read)]
    counted = min((counted_seconds(points, window) for points in found), default=0.0)
    if counted <= 0:
        return None, 0.0
    return sum(increase(points, window, may_fall=True) for points in found), counted
