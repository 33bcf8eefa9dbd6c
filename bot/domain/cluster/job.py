"""A Job that the bot started: its template, its pods, and the result at the end of its log.

The result is the last line with a JSON object that has a `score`, a `baseline` or an `eval`, or the keys of
`vllm bench serve`; or it is what that prints. A shell or a library may write lines after it, and a logger may put a
timestamp or a name before it. A log without a result is unknown, not zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from bot.domain.cluster import benchmark
from bot.domain.cluster.objects import is_owned_by, name_of, namespace_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.redaction import redacted
from bot.domain.signals.signal import Kind, Reading, Value, in_words, unknown

RESULT = "run_job"
EVAL: Mapping[str, Kind] = {"score": "number", "baseline": "number", "eval": "text"}
PARTS: Mapping[str, Kind] = {**EVAL, **benchmark.PARTS, "line": "text", "tail": "text"}
SOURCE = "the Job's log"
LOG_LINES = 100
MAX_LINE_LENGTH = 300
TAIL_LINES = 4
"""How many of the last lines people read, where a Job failed or its result cannot be read."""
MAX_STARTS = 20
"""Braces of a line that are tried as the start of an object."""
_DECODER = json.JSONDecoder()


def job_template(snapshot: ClusterSnapshot, name: str) -> Obj | str:
    """Returns the CronJob from which a Job is made, or why there is none."""
    found = next((one for one in snapshot.cron_jobs if name_of(one) == name), None)
    if found is not None:
        return found
    namespace = namespace_of(snapshot.workload or {}) or "the namespace"
    there = ", ".join(sorted(map(name_of, snapshot.cron_jobs))) or "none"
    return f"there is no CronJob {name} in {namespace} (there: {there})"


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
    tail = "\n".join(redacted(line)[:MAX_LINE_LENGTH] for line in lines[-TAIL_LINES:])
    fields: dict[str, float | bool | str] = {"line": redacted(lines[-1])[:MAX_LINE_LENGTH], "tail": tail}
    missing: dict[str, str] = {}
    for part, kind in EVAL.items():
        value = found.get(part)
        if kind == "text" and isinstance(value, str):
            fields[part] = redacted(value)[:MAX_LINE_LENGTH]
        elif kind == "number" and isinstance(value, int | float) and _is_number(value):
            fields[part] = float(value)
        else:
            missing[part] = _reason(part, kind, value, is_there=bool(found))
    measured = benchmark.benchmark_in(lines, found)
    fields |= measured.fields
    missing |= measured.missing
    detail = _in_words(fields, missing)
    return Reading(name=RESULT, fields=fields, unknown_parts=missing, at=at, source=SOURCE, detail=detail)


def _in_words(fields: Mapping[str, Value], missing: Mapping[str, str]) -> str:
    """The kind of result that the log has, with the reasons for what it lacks."""
    kind = next((kind for kind in (EVAL, benchmark.PARTS) if kind.keys() & fields.keys()), None)
    if kind is None:
        return f"no result; the log ends with: {fields['line']}"
    called = {part: benchmark.IN_WORDS.get(part, f"{part} {{}}") for part in kind}
    known = [called[part].format(in_words(fields[part])) for part in kind if part in fields]
    unknown = dict.fromkeys(why for part, why in missing.items() if part in kind)
    return ", ".join(known) + (f"; not known: {', '.join(unknown)}" if unknown else "")


def _result(line: str) -> Mapping[str, object] | None:
    start = -1
    for _ in range(MAX_STARTS):
        start = line.find("{", start + 1)
        if start < 0:
            return None
        try:
            result, _ = _DECODER.raw_decode(line, start)
        except (ValueError, RecursionError):
            continue
        if result.keys() & (EVAL.keys() | benchmark.KEYS):
            return dict(result)
    return None


def _is_number(value: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value)


def _reason(part: str, kind: str, value: object, *, is_there: bool) -> str:
    if not is_there:
        return f"no JSON line with a score in the last {LOG_LINES} lines of the Job's log"
    if value is None:
        return f"the Job's JSON line has no '{part}'"
    return f"'{part}' in the Job's JSON line is not a {kind}"
