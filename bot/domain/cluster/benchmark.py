"""The result of a load test at the end of a Job's log, as `vllm bench serve` prints it or writes it as JSON.

Other tools, such as guidellm, print the same keys as one line of JSON. What the output lacks is unknown, with the
reason; of a test in which no request succeeded, nothing but the counts is known: vLLM prints zeros for the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.domain.signals.signal import Kind


@dataclass(frozen=True)
class _Part:
    label: str
    """How the line begins in which `vllm bench serve` prints it."""
    key: str
    """What it is called in its JSON."""
    divided_by: float = 1.0


_PARTS: Mapping[str, _Part] = {
    "completed": _Part("Successful requests", "completed"),
    "failed": _Part("Failed requests", "failed"),
    "requests_per_second": _Part("Request throughput (req/s)", "request_throughput"),
    "tokens_per_second": _Part("Output token throughput (tok/s)", "output_throughput"),
    "ttft_p99": _Part("P99 TTFT (ms)", "p99_ttft_ms", divided_by=1000.0),
}
PARTS: Mapping[str, Kind] = dict.fromkeys(_PARTS, "number")
IN_WORDS: Mapping[str, str] = {
    "completed": "{} requests succeeded",
    "failed": "{} failed",
    "requests_per_second": "{} requests/s",
    "tokens_per_second": "{} tokens/s",
    "ttft_p99": "first token p99 {} s",
}
COUNTS = ("completed", "failed")
KEYS = frozenset(part.key for part in _PARTS.values())
TITLE = "Serving Benchmark Result"
_LINE = re.compile(r"(?P<label>[^:]+):\s+(?P<value>\S+)\s*")


@dataclass(frozen=True)
class Benchmark:
    """The parts that are known, and for each of the others the reason why it is not."""

    fields: Mapping[str, float]
    missing: Mapping[str, str]


def benchmark_in(lines: Sequence[str], result: Mapping[str, object]) -> Benchmark:
    """`result`: the last line of JSON with a result, if there is one. Of several printed results the last counts."""
    if result.keys() & KEYS:
        found = {name: result.get(part.key) for name, part in _PARTS.items()}
        absent = {name: f"the Job's JSON line has no '{part.key}'" for name, part in _PARTS.items()}
    elif printed := _printed(lines):
        found = {name: printed.get(part.label) for name, part in _PARTS.items()}
        absent = {name: f"the benchmark printed no line '{part.label}'" for name, part in _PARTS.items()}
    else:
        return Benchmark({}, dict.fromkeys(_PARTS, "no result of a benchmark at the end of the Job's log"))
    known = {name: number / _PARTS[name].divided_by for name, value in found.items() if (number := _number(value)) >= 0}
    missing = {name: reason for name, reason in absent.items() if name not in known}
    for name in missing.keys() & {name for name, value in found.items() if value is not None}:
        missing[name] = f"'{_PARTS[name].label}' is not a number: {found[name]}"[:80]
    if known.get("completed") == 0:
        measured = [name for name in _PARTS if name not in COUNTS]
        missing |= dict.fromkeys(measured, "no request of the benchmark succeeded")
        known = {name: value for name, value in known.items() if name in COUNTS}
    return Benchmark(known, missing)


def _printed(lines: Sequence[str]) -> dict[str, str]:
    """The labelled lines below the last title."""
    titles = [number for number, line in enumerate(lines) if TITLE in line]
    below = lines[titles[-1] + 1 :] if titles else ()
    return {line["label"].strip(): line["value"] for line in map(_LINE.fullmatch, below) if line}


def _number(value: object) -> float:
    """NaN for anything but a finite number."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
