"""A Job that the bot started: its pods, and the result at the end of its log. A log without one is unknown, not zero.

The result is the last line with a JSON object that has a `score`, a `baseline` or an `eval`. A shell or a library may
write lines after it, and a logger may put a timestamp or a name before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from bot.domain.cluster.objects import is_owned_by
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.redaction import redacted
from bot.domain.signals.signal import Kind, Reading, unknown

RESULT = "run_job"
PARTS: Mapping[str, Kind] = {"score": "number", "baseline": "number", "eval": "text", "line": "text"}
SOURCE = "the Job's log"
LOG_LINES = 50
MAX_LINE_LENGTH = 300
MAX_STARTS = 20
"""Braces of a line that are tried as the start of an object."""
_DECODER = json.JSONDecoder()


def pods_of_job(snapshot: ClusterSnapshot, job: Obj) -> tuple[Obj, ...]:
    """Returns the pods, oldest first, ended ones included."""
    own = [pod for pod in snapshot.all_pods if is_owned_by(pod, job)]
    return tuple(sorted(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")))


def job_reading(log: str | None, *, at: float) -> Reading:
    """Returns the end of the log as the result of `run_job`; `log` is None if there is none."""
    lines = [line.strip() for line in (log or "").splitlines() if line.strip()]
    if not lines:
        return unknown(RESULT, "the Job's pod left no log", at=at, source=SOURCE)
    found = next(filter(None, map(_result, reversed(lines))), {})
    fields: dict[str, float | bool | str] = {"line": redacted(lines[-1])[:MAX_LINE_LENGTH]}
    missing: dict[str, str] = {}
    for part, kind in PARTS.items():
        value = found.get(part)
        if part == "line":
            continue
        if kind == "text" and isinstance(value, str):
            fields[part] = redacted(value)[:MAX_LINE_LENGTH]
        elif kind == "number" and isinstance(value, int | float) and _is_number(value):
            fields[part] = float(value)
        else:
            missing[part] = _reason(part, kind, value, is_there=bool(found))
    return Reading(name=RESULT, fields=fields, unknown_parts=missing, at=at, source=SOURCE, detail=str(fields["line"]))


def _result(line: str) -> Mapping[str, object] | None:
    start = -1
    for _ in range(MAX_STARTS):
        start = line.find("{", start + 1)
        if start < 0:
            return None
        try:
            said, _ = _DECODER.raw_decode(line, start)
        except (ValueError, RecursionError):
            continue
        if said.keys() & {"score", "baseline", "eval"}:
            return dict(said)
    return None


def _is_number(value: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value)


def _reason(part: str, kind: str, value: object, *, is_there: bool) -> str:
    if not is_there:
        return f"no JSON line with a score in the last {LOG_LINES} lines of the Job's log"
    if value is None:
        return f"the Job's JSON line has no '{part}'"
    return f"'{part}' in the Job's JSON line is not a {kind}"
