"""The cap on running sequences: by hand, beside the captures, and beside a model of the engine over many fleets."""

from __future__ import annotations

import random

import pytest

from bot.domain.playbooks.expressions.functions import cap_from_lengths
from tests.bench.caps import THRASH, Verdict, from_lengths, verdicts
from tests.bench.fleets import bucketed_quantile, fleet
from tests.bench.paged_engine import Engine, Hardware, Measured, Request, quantile

pytestmark = pytest.mark.fast

POOL = 4064
"""Of the captures: 127 blocks of 32 tokens."""
SMALL_CPU = Hardware(POOL, 32, 2048, 0.001, 0.0001, 1e-8, 1e-5)
FLEETS = range(400, 420)


def cap(
    target: float = 0.9,
    pool: float = 100_000,
    prompt: float = 1000,
    output: float = 500,
    spread: float = 2.5,
    hit: float = 0,
) -> float:
    return cap_from_lengths(target, pool, prompt, output, spread, hit)


def captured(running: int) -> Measured:
    """The load of capture A_thrash_then_lower_max_num_seqs: 32 shared and about 64 other tokens, and about 512 back."""
    rng = random.Random(1)
    requests = [Request(96, rng.randint(470, 560), 32, 1) for _ in range(600)]
    arrivals = [0.0] * 48 + [0.02 * number for number in range(4000)]
    return Engine(SMALL_CPU, running, requests, arrivals).run(2 * min(running, 20), 300)


@pytest.mark.parametrize(
    ("tighter", "wider"),
    [
        pytest.param(cap(prompt=4000), cap(prompt=1000), id="longer-prompts"),
        pytest.param(cap(output=2000), cap(output=500), id="longer-outputs"),
        pytest.param(cap(spread=3.5), cap(spread=2.2), id="outputs-that-vary-more"),
        pytest.param(cap(spread=1.0), cap(spread=1.8), id="outputs-of-one-length-which-run-in-step"),
        pytest.param(cap(target=0.7), cap(target=0.9), id="a-lower-target"),
        pytest.param(cap(pool=50_000), cap(pool=100_000), id="a-smaller-pool"),
        pytest.param(cap(hit=0.0), cap(hit=0.8), id="no-shared-prefix"),
    ],
)
def test_fewer_sequences_may_run_with(tighter: float, wider: float) -> None:
    assert tighter < wider


def test_a_shared_prefix_is_held_once() -> None:
    assert cap(prompt=8000, output=400, hit=0.9) > 5 * 0.9 * 100_000 / 8400


@pytest.mark.parametrize("spread", [0.98, 1, 1.6, 3.87, 3.9, 1000])
def test_any_p95_of_the_buckets_gives_a_cap(spread: float) -> None:
    assert 40 <= cap(spread=spread) <= 80


def test_a_request_that_only_fits_alone_may_run_alone() -> None:
    assert cap(pool=1500) == 1


@pytest.mark.parametrize(
    ("target", "pool", "prompt", "output", "spread", "hit", "reason"),
    [
        pytest.param(0.9, 4064, 0, 500, 2, 0, "no request finished", id="no-prompt"),
        pytest.param(0.9, 4064, 96, 0, 2, 0, "no request finished", id="no-output"),
        pytest.param(0.9, 4064, 96, 500, 0, 0, "no request finished", id="no-p95"),
        pytest.param(0.9, 500, 96, 500, 2, 0, "not even one request of 596 tokens fits 500 tokens", id="too-long"),
        pytest.param(0.9, 0, 96, 500, 2, 0, "not even one request", id="no-pool"),
        pytest.param(1.1, 4064, 96, 500, 2, 0, "a target of 1.1 is not a share", id="target-above-one"),
        pytest.param(0, 4064, 96, 500, 2, 0, "a target of 0 is not a share", id="no-target"),
        pytest.param(0.9, 4064, 96, 500, 2, 1.2, "a hit share of 1.2 is not a share", id="more-hits-than-queries"),
    ],
)
def test_a_cap_that_cannot_be_computed_says_why(
    target: float, pool: float, prompt: float, output: float, spread: float, hit: float, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        cap_from_lengths(target, pool, prompt, output, spread, hit)


@pytest.mark.parametrize(
    ("prompt", "output", "spread", "hit"),
    [
        pytest.param(96, 513, 911 / 513, 0.33, id="as-scraped"),
        pytest.param(108, 500, 475 / 500, 0.0, id="as-outputs-of-one-length"),
        pytest.param(108, 500, 900 / 500, 0.0, id="without-a-prefix-cache"),
    ],
)
def test_the_cap_agrees_with_the_captures(prompt: float, output: float, spread: float, hit: float) -> None:
    assert 5 <= cap_from_lengths(0.9, POOL, prompt, output, spread, hit) <= 9


def test_the_model_agrees_with_the_captures() -> None:
    uncapped, capped = captured(64), captured(6)
    assert uncapped.thrash == pytest.approx(2.8, rel=0.25)
    assert quantile(uncapped.usage, 0.9) == pytest.approx(0.99, abs=0.02)
    assert uncapped.hit_share == pytest.approx(0.33, abs=0.02)
    assert capped.thrash == 0
    assert quantile(capped.usage, 0.9) == pytest.approx(0.61, abs=0.05)


def test_a_cap_of_17_does_not_end_the_thrash_of_the_captures() -> None:
    assert captured(17).thrash > THRASH


def test_the_cap_of_the_captures_is_calm_in_the_model() -> None:
    cap = int(cap_from_lengths(0.9, POOL, 96, 513, 911 / 513, 0.33))
    assert captured(cap).thrash < THRASH


def test_quantiles_are_as_coarse_as_the_buckets_of_the_engine() -> None:
    assert bucketed_quantile([512] * 100, 0.95) == 975


@pytest.fixture(scope="module")
def judged() -> list[Verdict]:
    return [each for seed in FLEETS for each in verdicts(fleet(seed), [from_lengths])]


def test_the_cap_ends_the_thrash_of_most_fleets_and_makes_it_mild_elsewhere(judged: list[Verdict]) -> None:
    assert len(judged) >= 10
    assert sum(each.is_calm for each in judged) >= 0.8 * len(judged)
    assert max(each.outcome.thrash for each in judged) < 0.1 * max(each.readings.thrash for each in judged)


def test_the_cap_keeps_the_throughput_of_most_fleets(judged: list[Verdict]) -> None:
    kept = sorted(each.kept for each in judged)
    assert kept[len(kept) // 2] >= 0.9
    assert kept[len(kept) // 10] >= 0.7
    assert kept[0] > 0.5


def test_two_corrections_under_load_end_the_thrash_and_keep_the_throughput() -> None:
    """`python -m tests.bench.caps` over 300 fleets: all without thrash, 95.1 % within a tenth of the best cap."""
    after = [each for seed in range(400, 413) for each in verdicts(fleet(seed), [from_lengths], corrects=True)]
    assert len(after) >= 6
    assert all(each.is_calm for each in after)
    assert sum(each.is_good for each in after) >= 0.9 * len(after)
