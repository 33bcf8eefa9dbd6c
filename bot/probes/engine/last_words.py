"""The `last_words` probe. It reads few logs: of pods that restarted first, then one of each template."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from bot.domain.cluster.objects import name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer
from bot.probes.declaration import Probe
from bot.probes.engine.log_lines import CUDA_OOM, LastWords, OomClass
from bot.probes.engine.pod_logs import (
    BEFORE_SECONDS,
    ENDED_BY_ITSELF,
    GONE,
    MAX_LOGS,
    SOURCE,
    Ended,
    PodsProbe,
    ends_of,
    is_crash,
    one_of_each_template,
    words_of,
)

MAX_LINES = 50
MAX_LETTERS = 4000


@dataclass(frozen=True)
class LastWordsOfEngines:
    why: str | None
    line: str
    oom: bool | None
    host_oom: bool
    died: bool | None
    collective: bool | None
    lines: float
    fits_tokens: float | None
    fits_seqs: float | None


class ReadLastWords(PodsProbe):
    """What the newest logs report about memory, devices and death; for an ended container, its end of the log."""

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        shown = one_of_each_template(pods)[:MAX_LOGS]
        since = request.context.opened_at - BEFORE_SECONDS
        ended = [end for pod in pods for end in ends_of(pod, since, snapshot.kills)]
        previous = [end for end in ended if end.is_previous]
        stopped = {name_of(end.pod): end for end in ended if not end.is_previous}
        asked = [*((end.pod, end) for end in previous[:MAX_LOGS]), *((pod, stopped.get(name_of(pod))) for pod in shown)]
        results = await asyncio.gather(*(self._read(pod, end) for pod, end in asked))
        words = [found for found in results if isinstance(found, LastWords)]
        unread = [found for found in results if isinstance(found, str)]
        if not words:
            return no_answer(request, ": ".join(["no log of any of its pods can be read", *unread[:1]]), source=SOURCE)
        unread += [f"only those of {MAX_LOGS} containers that ended are read"] * (len(previous) - MAX_LOGS)
        return _reading(request, words, ended, unread)

    async def _read(self, pod: Obj, end: Ended | None) -> LastWords | str:
        """The words of a container that ended, or of one that runs; a string says why its log cannot be read."""
        is_previous = end is not None and end.is_previous
        try:
            words = await words_of(self._logs, pod, end)
        except ClusterError as error:
            # Counted as unread: the other logs may still prove a cause, but cannot rule one out for this log.
            return str(error)
        if words is None:
            # A container that has not begun has no log; one that ended had a log, which is gone.
            return GONE if is_previous else LastWords("none")
        return words


def _reading(
    request: ProbeRequest, words: Sequence[LastWords], ended: Sequence[Ended], unread: Sequence[str]
) -> Reading:
    """`unread`: why a log cannot be read, for each such log."""
    decided = next((word for word in sorted(words, key=_is_vague) if word.why not in ("none", "killed")), None)
    killed = any(word.why == "killed" for word in words)
    lines = [line for word in words for line in word.evidence][-MAX_LINES:]
    is_host = any(end.reason == "OOMKilled" for end in ended)
    parts = LastWordsOfEngines(
        why=decided.why if decided else None if unread else "killed" if killed else "none",
        line=decided.line if decided else "",
        oom=_claim((word.why in CUDA_OOM for word in words), unread),
        host_oom=is_host,
        died=True if any(is_crash(end) for end in ended) else _claim((word.why != "none" for word in words), unread),
        lines=float(len(lines)),
        collective=_claim((word.collective for word in words), unread),
        fits_tokens=min((word.fits_tokens for word in words if word.fits_tokens is not None), default=None),
        fits_seqs=min((word.fits_seqs for word in words if word.fits_seqs is not None), default=None),
    )
    why_unread = ": ".join([f"{len(unread)} of the logs cannot be read", *unread[:1]])
    missing = dict.fromkeys(PROBE.kinds, why_unread) | dict.fromkeys(("fits_tokens", "fits_seqs"), "no log says it")
    return answer(request, parts, missing=missing, detail=_newest(lines), source=SOURCE)


def _is_vague(word: LastWords) -> bool:
    """The line of another log names a cause; how one container ended only shows what followed."""
    return word.why == "probe" or word.line == ENDED_BY_ITSELF


def _newest(lines: Sequence[str]) -> str:
    """The last whole lines that fit on the timeline: the end gives the cause."""
    kept: list[str] = []
    room = MAX_LETTERS
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept)) or "".join(lines[-1:])[-MAX_LETTERS:]


def _claim(claims: Iterable[bool], unread: Sequence[str]) -> bool | None:
    """One log is enough to prove it; all are needed to rule it out."""
    if any(claims):
        return True
    return None if unread else False


PROBE = Probe(
    name="last_words",
    label="Last lines of the log",
    help=f"What the newest logs say of memory, devices and death. Why: {', '.join(get_args(OomClass))}.",
    answer=LastWordsOfEngines,
    read=lambda sources: ReadLastWords(sources.logs),
)
