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
        raise ValueError("nobody has a share of nothing: the sum over all replicas is 0")
    return value_of(values, replica) / total


def median(values: ByReplica) -> float:
    return float(statistics.median(_some(values).values()))


def cap_from_pool(factor: float, usable_tokens: float, mean_final_length: float) -> float:
    """Returns how many sequences of the mean final length fit into this share of one replica's KV pool."""
    if mean_final_length <= 0:
        raise ValueError("no request finished, so the mean final length is not known")
    cap = math.floor(factor * usable_tokens / mean_final_length)
    if cap < 1:
        raise ValueError(f"not even one request of {mean_final_length:.0f} tokens fits {usable_tokens:.0f} tokens")
    return float(cap)


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
    Function("has_flag", ("text", "text"), "flag", has_flag, "whether this engine version takes a flag and heeds it"),
    Function(
        "version_at_least", ("text", "text"), "flag", version_at_least, "whether it is that engine release or newer"
    ),
)
FUNCTION_NAMES = frozenset(function.name for function in FUNCTIONS)
METHODS = frozenset({"startsWith", "endsWith", "contains", "matches"})
"""Methods of texts, as CEL has them."""
