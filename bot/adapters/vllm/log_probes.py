"""Probes over what engines wrote: the last words of those that ended, and which way of compressing KV is at work.

Both read few logs: of pods that restarted first, then one of each template. What they did not read they do not deny.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from bot.adapters.vllm.compression import Compression, Evidence, compression_of
from bot.adapters.vllm.compression_since import compression_since
from bot.adapters.vllm.crash_scene import CrashScene
from bot.adapters.vllm.flag_hygiene import FlagHygiene
from bot.adapters.vllm.log_lines import CUDA_OOM, LastWords, last_words
from bot.adapters.vllm.probes import (
    BEFORE_SECONDS,
    MOST_LOGS,
    SOURCE,
    TAIL_LINES,
    Ended,
    PodsProbe,
    ends_of,
    is_crash,
    one_of_each_template,
    was_killed,
)
from bot.adapters.vllm.served_config import served_config
from bot.domain.cluster.objects import name_of, namespace_of
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.flags.flags_in_spec import engine_container, flags_of_template
from bot.domain.kernel.errors import BotError, ClusterError
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import STALE_SECONDS
from bot.flow.ports import History, PodLogs, Probe, Question
from bot.flow.probes import Part, answer

MOST_LINES = 50
MOST_LETTERS = 4000


def log_probes(*, logs: PodLogs, history: History, now: Callable[[], float]) -> dict[str, Probe]:
    return {
        "last_words": LastWordsOfEngines(logs),
        "compression_method": CompressionMethod(logs, history, now),
        "compression_since": compression_since,
        "crash_scene": CrashScene(logs),
        "flag_hygiene": FlagHygiene(logs),
        "served_config": served_config,
    }


# --- last words -------------------------------------------------------------------------------------------------------


class LastWordsOfEngines(PodsProbe):
    """What the newest logs say of memory, devices and death; a container that ended is read where it ended."""

    async def read(self, question: Question, world: World, pods: Sequence[Obj]) -> Reading:
        shown = one_of_each_template(pods)[:MOST_LOGS]
        since = question.context.opened_at - BEFORE_SECONDS
        ended = [end for pod in pods for end in ends_of(pod, since)]
        previous = [end for end in ended if end.is_previous]
        asked = [*((end.pod, True) for end in previous[:MOST_LOGS]), *((pod, False) for pod in shown)]
        said = await asyncio.gather(*(self._read(pod, is_previous=is_previous) for pod, is_previous in asked))
        words = [found for found in said if found is not None]
        killed = any(word and was_killed(end, word) for end, word in zip(previous, said, strict=False))
        if not words:
            return unknown(question.name, "no log of any of its pods can be read", at=question.at, source=SOURCE)
        unread = len(said) - len(words) + max(0, len(previous) - MOST_LOGS)
        return _told(question, words, ended, unread, killed=killed)

    async def _read(self, pod: Obj, *, is_previous: bool) -> LastWords | None:
        try:
            log = await self._logs.read(namespace_of(pod), name_of(pod), previous=is_previous, tail_lines=TAIL_LINES)
        except ClusterError:
            # Counted as unread: the other logs may still tell, and none of them may deny for this one.
            return None
        if log is None:
            # A container that has not begun said nothing; one that ended did, and its log is gone.
            return None if is_previous else LastWords("none")
        return last_words(log)


def _told(
    question: Question, words: Sequence[LastWords], ended: Sequence[Ended], unread: int, *, killed: bool
) -> Reading:
    decided = next((word for word in words if word.why != "none"), None)
    lines = [line for word in words for line in word.telling][-MOST_LINES:]
    is_host = any(end.reason == "OOMKilled" for end in ended)
    parts: dict[str, Part | None] = {
        "why": decided.why if decided else None if unread else "killed" if killed else "none",
        "line": decided.line if decided else "",
        "oom": _claim((word.why in CUDA_OOM for word in words), unread),
        "host_oom": is_host,
        "died": True if any(is_crash(end) for end in ended) else _claim((word.why != "none" for word in words), unread),
        "lines": float(len(lines)),
        "collective": _claim((word.collective for word in words), unread),
        "fits_tokens": min((word.fits_tokens for word in words if word.fits_tokens is not None), default=None),
    }
    missing = dict.fromkeys(parts, f"{unread} of the logs cannot be read") | {"fits_tokens": "no log says it"}
    return answer(question, parts, missing=missing, detail=_newest(lines), source=SOURCE)


def _newest(lines: Sequence[str]) -> str:
    """Whole lines from the last one back, as many as the timeline has room for: the end is where it says why."""
    kept: list[str] = []
    room = MOST_LETTERS
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept)) or "".join(lines[-1:])[-MOST_LETTERS:]


def _claim(claims: Iterable[bool], unread: int) -> bool | None:
    """One log is enough to say that it was so; all are needed to say that it was not."""
    if any(claims):
        return True
    return None if unread else False


# --- compression ------------------------------------------------------------------------------------------------------


class CompressionMethod(PodsProbe):
    """The class of KV compression that all replicas share, with its evidence."""

    def __init__(self, logs: PodLogs, history: History, now: Callable[[], float]) -> None:
        super().__init__(logs)
        self._history, self._now = history, now

    async def read(self, question: Question, world: World, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MOST_LOGS]
        dtypes = await self._cache_dtypes(question)
        logs = await asyncio.gather(*(self._start_of(pod) for pod in pods))
        found = [
            compression_of(_evidence(pod, dtypes.get(name_of(pod), ""), log))
            for pod, log in zip(pods, logs, strict=True)
        ]
        return _told_of(question, found)

    async def _start_of(self, pod: Obj) -> str:
        try:
            return await self._logs.read(namespace_of(pod), name_of(pod)) or ""
        except ClusterError:
            # Without the log the flags and the image may still tell; where they do not, the answer is unknown.
            return ""

    async def _cache_dtypes(self, question: Question) -> Mapping[str, str]:
        now = self._now()
        wanted = frozenset({"num_gpu_blocks"})
        try:
            await self._history.sample(question.context)
            scrapes = await self._history.between(question.context, wanted, now - STALE_SECONDS, now)
        except BotError:
            # One of five kinds of evidence: what the others do not tell stays unknown.
            return {}
        return {scrape.replica: scrape.config["cache_dtype"] for scrape in scrapes if "cache_dtype" in scrape.config}


def _evidence(pod: Obj, cache_dtype: str, log: str) -> Evidence:
    spec, engine = flags_of_template(pod), engine_container(pod)
    container = engine[1] if engine else {}
    env = {str(one["name"]): str(one.get("value") or "") for one in container.get("env") or [] if "name" in one}
    flags = None if spec.unparsable else spec.values
    return Evidence(flags, env, str(container.get("image") or ""), cache_dtype, log)


def _told_of(question: Question, found: Sequence[Compression]) -> Reading:
    kinds, offloads = {one.kind for one in found}, {one.offloads for one in found}
    seen = "; ".join(dict.fromkeys(sign for one in found for sign in one.seen))
    why = "; ".join(dict.fromkeys(one.missing for one in found if one.missing))
    parts: dict[str, Part | None] = {
        "kind": kinds.pop() if len(kinds) == 1 else None,
        "offloads": offloads.pop() if len(offloads) == 1 else None,
        "evidence": seen,
    }
    missing = {"kind": why or "the replicas differ", "offloads": why or "the replicas differ"}
    return answer(question, parts, missing=missing, detail=seen or why, source="flags, image, env, page and log")
