"""The functions of the expression language. Each returns a value or raises `ValueError` with the reason.

A reason becomes an unknown: no function ever returns 0 or an empty text for an unknown value.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.flags.flag_history import has_flag, version_at_least
from bot.domain.signals.signal import Kind

ByReplica = Mapping[str, float]

Z_OF_P95 = 1.645
MARGIN = 0.5
"""Of what one sequence holds, for each square root of their number. This and the two below are fitted to
`tests.bench.caps`."""
MAX_VARIANCE = 2.0
"""(Standard deviation ÷ mean)² of the outputs; vLLM's buckets of 1, 2, 5, 10, … make p95 too coarse to believe more."""
DRIFTS_APART = 0.25
"""The same variance, from which on sequences that start together do not peak together."""


@dataclass(frozen=True)
class Function:
    """One signature of a function; a name may have several."""

    name: str
    takes: tuple[Kind, ...]
    gives: Kind
    call: Callable[..., Any]
    says: str


def worst(values: ByReplica) -> str:
    """Returns the replica with the highest number; among equals the first by name, so that it is the same next time."""
    return min(_some(values), key=lambda name: (-values[name], name))


def best(values: ByReplica) -> str:
    return min(_some(values), key=lambda name: (values[name], name))


def value_of(values: ByReplica, replica: str) -> float:
    if replica not in values:
        raise ValueError(f"nothing is known of replica {replica}")
    return values[replica]


def share(values: ByReplica, replica: str) -> float:
    total = sum(_some(values).values())
    if total == 0:
        raise ValueError("there is no share: the sum over all replicas is 0")
    return value_of(values, replica) / total


def median(values: ByReplica) -> float:
    return float(statistics.median(_some(values).values()))


def count_above(values: ByReplica, limit: float) -> float:
    return float(sum(value > limit for value in _some(values).values()))


def cap_from_pool(factor: float, usable_tokens: float, mean_final_length: float) -> float:
    """Returns how many sequences of the mean final length fit into this share of one replica's KV pool."""
    if mean_final_length <= 0:
        raise ValueError("no request finished, so the mean final length is not known")
    cap = math.floor(factor * usable_tokens / mean_final_length)
    if cap < 1:
        raise ValueError(f"not even one request of {mean_final_length:.0f} tokens fits {usable_tokens:.0f} tokens")
    return float(cap)


def cap_from_lengths(
    kv_target: float, pool_tokens: float, prompt_mean: float, output_mean: float, spread: float, hit_share: float
) -> float:
    """Returns how many sequences may run so that each can finish while the pool is about `kv_target` full at p90.

    Takes finished requests only: in a thrash, sequences are preempted while they are young, so usage ÷ running is too
    low. `spread` is p95 ÷ mean of the outputs. `hit_share` is prefix cache hits ÷ queries, in tokens; vLLM counts a
    preempted request only once. What hits is held once. `python -m tests.bench.caps` shows where this holds.
    """
    if prompt_mean <= 0 or output_mean <= 0 or spread <= 0:
        raise ValueError("no request finished, so the lengths are not known")
    if not 0 < kv_target <= 1:
        raise ValueError(f"a target of {kv_target:g} is not a share of the pool")
    if not 0 <= hit_share <= 1:
        raise ValueError(f"a hit share of {hit_share:g} is not a share of the prompt tokens")
    if prompt_mean + output_mean > pool_tokens:
        length = prompt_mean + output_mean
        raise ValueError(f"not even one request of {length:.0f} tokens fits {pool_tokens:.0f} tokens")
    shared, variance = prompt_mean * hit_share, _variance(spread)
    # Outputs of equal length that started together, as after a restart, are at their longest together.
    in_step = max(0.0, 1 - variance / DRIFTS_APART)
    # A running sequence has made half of its output on average, and more if lengths vary: long outputs run longer.
    held = prompt_mean - shared + output_mean * (1 + variance + in_step) / 2
    room = max(0.0, kv_target * pool_tokens - shared) / held
    # Solves n + margin × sqrt(n) = room: n sequences that are not in step vary by sqrt(n) times as much as one.
    margin = MARGIN * (1 - in_step)
    root = (math.sqrt(margin**2 + 4 * room) - margin) / 2
    return float(max(1, math.floor(root**2)))


def _variance(spread: float) -> float:
    """Returns (standard deviation ÷ mean)² of log-normal lengths whose p95 is `spread` × their mean."""
    log_spread = min(math.log(max(1.0, spread)), Z_OF_P95**2 / 2)
    sigma = Z_OF_P95 - math.sqrt(Z_OF_P95**2 - 2 * log_spread)
    return min(MAX_VARIANCE, math.expm1(sigma**2))


def nearest(number: float) -> float:
    """Rounds halves up, as people do; Python alone would round 2.5 to 2."""
    return float(math.floor(number + 0.5))


def nonzero(divisor: float) -> float:
    if divisor == 0:
        raise ValueError("division by zero")
    return divisor


def _some(values: ByReplica) -> ByReplica:
    if not values:
        raise ValueError("no replica could be read")
    return values


FUNCTIONS: tuple[Function, ...] = (
    Function("worst", ("by_replica",), "text", worst, "the replica with the highest number"),
    Function("best", ("by_replica",), "text", best, "the replica with the lowest number"),
    Function("value_of", ("by_replica", "text"), "number", value_of, "the number of one replica"),
    Function("share", ("by_replica", "text"), "number", share, "one replica's part of the sum, 0 to 1"),
    Function("median", ("by_replica",), "number", median, "the median over replicas"),
    Function("count_above", ("by_replica", "number"), "number", count_above, "how many replicas have a higher number"),
    Function("size", ("by_replica",), "number", lambda values: float(len(values)), "how many replicas were read"),
    Function("max", ("by_replica",), "number", lambda values: max(_some(values).values()), "the highest number"),
    Function("min", ("by_replica",), "number", lambda values: min(_some(values).values()), "the lowest number"),
    Function("max", ("number", "number"), "number", max, "the higher of two"),
    Function("min", ("number", "number"), "number", min, "the lower of two"),
    Function("abs", ("number",), "number", abs, "without its sign"),
    Function("floor", ("number",), "number", lambda x: float(math.floor(x)), "the next whole number below"),
    Function("ceil", ("number",), "number", lambda x: float(math.ceil(x)), "the next whole number above"),
    Function("round", ("number",), "number", nearest, "the nearest whole number"),
    Function(
        "cap_from_pool",
        ("number", "number", "number"),
        "number",
        cap_from_pool,
        "floor(factor × usable tokens / mean final length)",
    ),
    Function(
        "cap_from_lengths",
        ("number", "number", "number", "number", "number", "number"),
        "number",
        cap_from_lengths,
        "how many may run: KV target, pool tokens, mean prompt, mean output, p95 ÷ mean output, prefix hit share",
    ),
    Function("has_flag", ("text", "text"), "flag", has_flag, "whether this engine version takes a flag and heeds it"),
    Function(
        "version_at_least", ("text", "text"), "flag", version_at_least, "whether it is that engine release or newer"
    ),
)
FUNCTION_NAMES = frozenset(function.name for function in FUNCTIONS)
METHODS = frozenset({"startsWith", "endsWith", "contains", "matches"})
"""Methods of texts, as CEL has them."""
