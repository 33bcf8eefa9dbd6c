"""Generates fleets whose KV pools may thrash: lengths, prefixes, rates, replicas and GPUs over a wide range, seeded."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.bench.paged_engine import Engine, Hardware, Measured, Request, quantile

UNCAPPED = 1024
"""vLLM's default of --max-num-seqs on large GPUs."""
REQUESTS = 4000
SMALLEST_SHARE = 0.5
"""Of the mean load, for the replica that routing favours least; the busiest gets the rest."""


@dataclass(frozen=True)
class Shape:
    """Lengths in tokens: `spread` is the standard deviation ÷ mean; of `longer`, a share is `times` as long."""

    prompt: float
    prompt_spread: float
    output: float
    output_spread: float
    longer: float = 0.0
    times: float = 1.0


@dataclass(frozen=True)
class Prefixes:
    """A `share` of the mean prompt is a prefix of one of `groups`; 0 groups: each request's own history, held alone."""

    share: float
    groups: int


@dataclass(frozen=True)
class Fleet:
    seed: int
    hardware: Hardware
    shape: Shape
    prefixes: Prefixes
    replicas: int
    load: float
    """Requested ÷ possible rate of the fleet; above 1 a queue grows."""
    requests: tuple[Request, ...]

    @property
    def fits(self) -> float:
        """About how many sequences the pool holds, were all lengths the mean."""
        shape, shared = self.shape, self.prefixes.share if self.prefixes.groups else 0.0
        room = self.hardware.pool - shape.prompt * shared * self.prefixes.groups
        return room / (shape.prompt * (1 - shared) + shape.output / 2)

    def loads(self) -> tuple[float, ...]:
        """Of the busiest and of the calmest replica."""
        if self.replicas == 1:
            return (self.load,)
        uneven = random.Random(self.seed).uniform(0, 1 - SMALLEST_SHARE)
        return (self.load * (1 + uneven), self.load * (1 - uneven))


@dataclass(frozen=True)
class Readings:
    """What the bot reads of the worst replica while the fleet thrashes."""

    pool: int
    usage: float
    running: float
    waiting: float
    thrash: float
    prompt_mean: float
    prompt_p95: float
    output_mean: float
    output_p90: float
    output_p95: float
    hit_share: float


def fleet(seed: int) -> Fleet:
    rng = random.Random(seed)
    while True:
        load, replicas = _log_uniform(rng, 0.6, 4), rng.choice((1, 2, 4, 8, 20))
        drawn = Fleet(seed, _hardware(rng), _shape(rng), _prefixes(rng), replicas, load, ())
        one = drawn.shape.prompt + drawn.shape.output
        if 3 <= drawn.fits <= 400 and one < drawn.hardware.pool / 2.5:
            return replace(drawn, requests=tuple(_requests(rng, drawn.hardware, drawn.shape, drawn.prefixes)))


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _hardware(rng: random.Random) -> Hardware:
    pool = int(_log_uniform(rng, 4_000, 1_000_000))
    step = _log_uniform(rng, 0.008, 0.04)
    return Hardware(
        pool=pool,
        block=rng.choice((16, 32)),
        chunk=rng.choice((2048, 8192)),
        step=step,
        per_sequence=step * _log_uniform(rng, 0.0005, 0.01),
        # Reading the whole pool takes a fifth of the weights' time to twice that time.
        per_held_token=step * _log_uniform(rng, 0.2, 2) / pool,
        per_prefilled_token=1 / _log_uniform(rng, 3_000, 60_000),
    )


def _shape(rng: random.Random) -> Shape:
    bimodal = rng.random() < 0.25
    return Shape(
        prompt=_log_uniform(rng, 50, 20_000),
        prompt_spread=rng.uniform(0, 1.5),
        output=_log_uniform(rng, 20, 4_000),
        output_spread=0.0 if rng.random() < 0.15 else rng.uniform(0.05, 1.5),
        longer=rng.uniform(0.02, 0.2) if bimodal else 0.0,
        times=rng.uniform(4, 10) if bimodal else 1.0,
    )


def _prefixes(rng: random.Random) -> Prefixes:
    return Prefixes(rng.uniform(0, 0.9), rng.choice((0, 1, 1, 2, 5))) if rng.random() < 0.7 else Prefixes(0.0, 0)


def _requests(rng: random.Random, hardware: Hardware, shape: Shape, prefixes: Prefixes) -> list[Request]:
    longest = int(hardware.pool * 0.8)  # of prompt and output together, as by --max-model-len
    prefix = int(shape.prompt * prefixes.share)
    requests = []
    for _ in range(REQUESTS):
        times = shape.times if rng.random() < shape.longer else 1.0
        prompt = prefix + max(1, round(_length(rng, shape.prompt - prefix, shape.prompt_spread) * times))
        output = max(1, round(_length(rng, shape.output, shape.output_spread)))
        prompt = min(prompt, max(prefix + 1, longest * 3 // 4))
        group = rng.randint(1, prefixes.groups) if prefixes.groups else 0
        requests.append(Request(prompt, min(output, longest - prompt), prefix, group))
    return requests


def _length(rng: random.Random, mean: float, spread: float) -> float:
    sigma = math.sqrt(math.log1p(spread**2))
    return mean * math.exp(rng.gauss(-(sigma**2) / 2, sigma))


def run(each: Fleet, cap: int, load: float, possible: float) -> Measured:
    """Runs one replica that gets a burst and then `load` × `possible` requests a second."""
    finished, warm_up = int(max(150, min(1200, 5 * each.fits))), int(2 * min(cap, each.fits) + 10)
    rng, now = random.Random(each.seed + 1), 0.0
    arrivals = [0.0] * int(each.fits * (2 if load > 1 else 1))
    for _ in range(4 * (finished + warm_up)):
        now += rng.expovariate(load * possible)
        arrivals.append(now)
    return Engine(each.hardware, cap, each.requests, arrivals).run(warm_up, finished)


def possible_rate(each: Fleet) -> float:
    """Requests a second of one replica that never waits for work and does not thrash much."""
    measured = run(each, max(1, round(each.fits * 0.7)), 1e6, 1.0)
    return len(measured.finished) / measured.seconds


def readings(each: Fleet, measured: Measured) -> Readings:
    prompts, outputs = [r.prompt for r in measured.finished], [r.output for r in measured.finished]
    return Readings(
        pool=each.hardware.pool,
        usage=quantile(measured.usage, 0.9),
        running=quantile(measured.running, 0.9),
        waiting=quantile(measured.waiting, 0.9),
        thrash=measured.thrash,
        prompt_mean=sum(prompts) / len(prompts),
        prompt_p95=bucketed_quantile(prompts, 0.95),
        output_mean=sum(outputs) / len(outputs),
        output_p90=bucketed_quantile(outputs, 0.9),
        output_p95=bucketed_quantile(outputs, 0.95),
        hit_share=measured.hit_share,
    )


def bucketed_quantile(lengths: Sequence[int], share: float) -> float:
    """As the bot reads it from vLLM's buckets of 1, 2, 5, 10, …: coarse, by interpolation."""
    low, wanted, passed = 0.0, share * len(lengths), 0
    for bound in (float(f"{step}e{power}") for power in range(8) for step in (1, 2, 5)):
        inside = sum(low < length <= bound for length in lengths)
        if inside and passed + inside >= wanted:
            return low + (bound - low) * (wanted - passed) / inside
        low, passed = bound, passed + inside
    return low
