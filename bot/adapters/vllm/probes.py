"""Probes that know vLLM: why replicas restarted, how they started, which flags are in effect, how large the KV pool is.

Logs are read of few pods and in parallel; a log that cannot be read makes its parts unknown.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.adapters.vllm.engine_flags import EngineFlags, engine_flags
from bot.adapters.vllm.log_lines import CUDA_OOM, LastWords, StartLines, last_words, start_lines
from bot.domain.cluster.objects import TEMPLATE_HASH_LABEL, dig, labels_of, name_of, namespace_of, seconds_of
from bot.domain.cluster.pod_end import was_told_to_end
from bot.domain.cluster.snapshot import Obj, World
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.history import gather
from bot.domain.signals.metric import value_of
from bot.domain.signals.sampling import span_of
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import STALE_SECONDS, Window
from bot.flow.ports import History, PodLogs, Probe, Question
from bot.flow.probes import Part, answer, pods_asked_for, staying, unreadable

BEFORE_SECONDS = 600.0
"""An alert waits minutes before it fires: a crash so shortly before the opening belongs to the incident."""
SIGKILL_EXIT, SIGTERM_EXIT = 137, 143
MOST_LOGS = 8
TAIL_LINES = 2000
SOURCE = "pods and their logs"


def vllm_probes(*, logs: PodLogs, history: History, now: Callable[[], float]) -> dict[str, Probe]:
    return {
        "restarts": Restarts(logs),
        "startup_log": StartupLog(logs),
        "engine_flags": EngineFlagsInEffect(logs),
        "kv_budget": KvBudget(history, now),
    }


class PodsProbe(ABC):
    """Begins as every probe over pods and their logs does: what cannot be read, or is not there, is unknown."""

    def __init__(self, logs: PodLogs) -> None:
        self._logs = logs

    async def __call__(self, question: Question) -> Reading:
        world = await question.world()
        if failed := unreadable(question, world, "pods"):
            return failed
        pods = pods_asked_for(question, world)
        if not pods:
            return unknown(question.name, "there is no such pod", at=question.at, source=SOURCE)
        return await self.read(question, world, pods)

    @abstractmethod
    async def read(self, question: Question, world: World, pods: Sequence[Obj]) -> Reading:
        """At least one pod is there."""


# --- restarts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """One end of an engine container since the incident opened, or shortly before."""

    pod: Obj
    reason: str
    exit_code: int
    count: float
    is_previous: bool
    """Whether another container has begun since, so that the log is the previous one's."""
    was_told: bool
    """Whether its pod was told to end."""


class Restarts(PodsProbe):
    """How often engines ended since the incident opened, and whether memory was the reason.

    `over` counts only what ended so lately: an incident that opened with a crash must be able to see that it is over.
    """

    async def read(self, question: Question, world: World, pods: Sequence[Obj]) -> Reading:
        since = question.context.opened_at - BEFORE_SECONDS
        if over := question.spec.parameters.get("over"):
            since = max(since, question.at - span_of(str(over), question.context.settings))
        ended = [end for pod in pods for end in ends_of(pod, since)]
        crashed = [end for end in ended if is_crash(end)]
        words = await asyncio.gather(*(self._last_words(end) for end in crashed[:MOST_LOGS]))
        parts: dict[str, Part | None] = {
            "count": sum(end.count for end in ended),
            "crashed": bool(crashed),
            "oom": _was_oom(crashed, words),
            "last_reason": _last_reason(ended, list(zip(crashed, words, strict=False))),
        }
        missing = {"oom": "the log of the container that ended cannot be read"}
        telling = [line for word in words if word is not None for line in word.telling[-5:]]
        return answer(question, parts, missing=missing, detail="\n".join(telling)[:2000], source=SOURCE)

    async def _last_words(self, end: Ended) -> LastWords | None:
        pod = end.pod
        try:
            log = await self._logs.read(
                namespace_of(pod), name_of(pod), previous=end.is_previous, tail_lines=TAIL_LINES
            )
        except ClusterError:
            # The reading says that this log is unreadable; the other pods' logs may still decide it.
            return None
        return None if log is None else last_words(log)


def is_crash(end: Ended) -> bool:
    """Whether it ended without having been told to, whatever its exit code."""
    return not end.was_told or end.reason == "OOMKilled"


def was_killed(end: Ended, words: LastWords) -> bool:
    """Whether a signal ended it and nobody ended its pod: as a rule the kubelet, after its liveness probe failed."""
    by_signal = end.exit_code in (SIGKILL_EXIT, SIGTERM_EXIT) or words.told_to_stop
    return is_crash(end) and by_signal and words.why == "none" and end.reason != "OOMKilled"


def ends_of(pod: Obj, since: float) -> Iterable[Ended]:
    for status in dig(pod, "status", "containerStatuses") or []:
        now, last = dig(status, "state", "terminated"), dig(status, "lastState", "terminated")
        ended, is_previous = (now, False) if now else (last, True)
        if not ended or (seconds_of(ended.get("finishedAt")) or 0.0) < since:
            continue
        yield Ended(
            pod,
            reason=ended.get("reason") or "Error",
            exit_code=int(ended.get("exitCode") or 0),
            count=_count(pod, status, ended, since),
            is_previous=is_previous,
            was_told=was_told_to_end(pod, ended),
        )


def _count(pod: Obj, status: Obj, ended: Obj, since: float) -> float:
    restarts = float(status.get("restartCount") or 0)
    if (seconds_of(dig(pod, "status", "startTime")) or 0.0) >= since:
        return max(restarts, 1.0)
    # Of an older pod only the last end is dated; the ends before it may be from another day. Where the container that
    # ended had begun since, the one before it ended lately too.
    began = seconds_of(ended.get("startedAt"))
    return 2.0 if restarts >= 2 and began is not None and began >= since else 1.0


def _was_oom(crashed: Sequence[Ended], words: Sequence[LastWords | None]) -> bool | None:
    if any(end.reason == "OOMKilled" for end in crashed):
        return True
    if any(word is not None and word.why in CUDA_OOM for word in words):
        return True
    return None if any(word is None for word in words) or len(words) < len(crashed) else False


def _last_reason(ended: Sequence[Ended], said: Sequence[tuple[Ended, LastWords | None]]) -> str:
    if not ended:
        return ""
    end = ended[0]
    plain = f"{end.reason} (exit {end.exit_code}) of {name_of(end.pod)}"
    known = [(crash, word) for crash, word in said if word is not None]
    if why := next((f"{word.why}: {word.line}" for _, word in known if word.why != "none"), ""):
        return f"{plain}: {why}"[:600]
    if any(was_killed(crash, word) for crash, word in known):
        return f"{plain}: killed from outside, mostly after a failed liveness probe"
    return plain


# --- start log --------------------------------------------------------------------------------------------------------


class StartupLog(PodsProbe):
    """What the engines said as they started, and why one did not."""

    async def read(self, question: Question, world: World, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MOST_LOGS]
        since = question.context.opened_at - BEFORE_SECONDS
        of_pods = await asyncio.gather(*(logs_of(self._logs, pod, since) for pod in pods))
        found = [log for logs in of_pods for log in logs]
        if not found:
            return unknown(question.name, "no log of any of its pods can be read", at=question.at, source=SOURCE)
        started = [start_lines(log) for log in found]
        ends = [last_words(log) for log in found]
        worst = next((end for end in ends if end.why != "none"), ends[0])
        tokens = [start.kv_tokens for start in started if start.kv_tokens is not None]
        parts: dict[str, Part | None] = {
            "oom_class": worst.why,
            "kv_tokens": min(tokens, default=None),
            "version": _same(start.version for start in started),
            "backend": _same(start.backend for start in started),
        }
        missing = dict.fromkeys(parts, "its line is not in the log (any more), or the replicas differ")
        return answer(question, parts, missing=missing, detail=worst.line, source=SOURCE)


async def logs_of(logs: PodLogs, pod: Obj, since: float) -> list[str]:
    """The log of the pod's engine, and of the one before it when that one ended after `since`."""
    has_previous = any(end.is_previous for end in ends_of(pod, since))
    found: list[str | None] = []
    for previous in (False, True) if has_previous else (False,):
        try:
            found.append(await logs.read(namespace_of(pod), name_of(pod), previous=previous))
        except ClusterError:
            # One unreadable log of several: the parts that only it had stay unknown.
            continue
    return [log for log in found if log]


def one_of_each_template(pods: Sequence[Obj]) -> list[Obj]:
    """Pods of one template start alike; those that restarted come first, since they have more to say.

    Pods that a rollout is ending are left out: they would make the replicas differ.
    """
    by_restarts = sorted(staying(pods), key=_restarts, reverse=True)
    seen: dict[str, Obj] = {}
    for pod in by_restarts:
        seen.setdefault(labels_of(pod).get(TEMPLATE_HASH_LABEL) or name_of(pod), pod)
    return list(seen.values())


def _restarts(pod: Obj) -> int:
    return sum(int(status.get("restartCount") or 0) for status in dig(pod, "status", "containerStatuses") or [])


def _same(values: Iterable[str | None]) -> str | None:
    found = {value for value in values if value is not None}
    return found.pop() if len(found) == 1 else None


# --- flags ------------------------------------------------------------------------------------------------------------


class EngineFlagsInEffect(PodsProbe):
    """The flags that decide most, as they are in effect now. Replicas that differ make a part unknown."""

    async def read(self, question: Question, world: World, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MOST_LOGS]
        nodes = {name_of(node): node for node in world.nodes}
        logs = await asyncio.gather(*(logs_of(self._logs, pod, since=math.inf) for pod in pods))
        found = [
            engine_flags(
                pod,
                nodes.get(dig(pod, "spec", "nodeName")),
                start_lines(log[0]) if log else StartLines(),
                world.config_maps,
            )
            for pod, log in zip(pods, logs, strict=True)
        ]
        parts = {name: _agreed(found, name) for name in PARTS}
        missing = {name: _why_not(found, name) for name, value in parts.items() if value is None}
        detail = ", ".join(
            f"{name} {_shown(v)} ({_from(found[0], name)})" for name, v in parts.items() if v is not None
        )
        return answer(question, parts, missing=missing, detail=detail, source=SOURCE)


PARTS = ("max_num_seqs", "version", "kv_cache_dtype", "shutdown_timeout", "max_num_batched_tokens")


def _agreed(found: Sequence[EngineFlags], part: str) -> Part | None:
    values = {getattr(flags, part) for flags in found}
    value: Part | None = values.pop() if len(values) == 1 else None
    return value


def _why_not(found: Sequence[EngineFlags], part: str) -> str:
    values = {getattr(flags, part) for flags in found}
    if len(values) > 1:
        return f"the replicas differ: {', '.join(sorted(map(str, values)))}"
    return found[0].sources.get(part, "not known")


def _from(flags: EngineFlags, part: str) -> str:
    return flags.sources.get(part, "its log or image")


def _shown(value: Part) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- KV pool ----------------------------------------------------------------------------------------------------------


class KvBudget:
    """The tokens that the smallest replica's KV pool can hold for requests, by its own page."""

    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self._history, self._now = history, now

    async def __call__(self, question: Question) -> Reading:
        context = question.context
        await self._history.sample(context)
        now = self._now()
        metrics = frozenset({"num_gpu_blocks", "block_size"})
        scrapes = await self._history.between(context, metrics, now - STALE_SECONDS, now)
        window = Window(now - STALE_SECONDS, now)
        history = gather(scrapes, of=question.spec.of, picked=context.picked, window=window)
        pools = [
            (tokens, scrape.ranks[rank]["block_size"], scrape.ranks[rank]["num_gpu_blocks"])
            for scrape in (said[-1] for said in history.scrapes.values())
            for rank in scrape.ranks
            if (tokens := value_of(scrape, rank, "usable_tokens")) is not None
        ]
        if not pools:
            reason = _first(history.unreadable) or "no cache_config_info on any page"
            return unknown(question.name, reason, at=now, source=self._history.source)
        tokens, size, blocks = min(pools)
        parts: dict[str, Part | None] = {"tokens": tokens, "block_size": size, "blocks": blocks}
        detail = "" if len({pool[0] for pool in pools}) == 1 else "the smallest of pools that differ"
        return answer(question, parts, detail=detail, source=self._history.source)


def _first(reasons: Mapping[str, str]) -> str:
    return next((f"{replica}: {reason}" for replica, reason in sorted(reasons.items())), "")
