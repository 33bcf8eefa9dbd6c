"""Pods, how their engine containers ended, and their logs. A log that cannot be read makes its parts unknown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bot.domain.cluster.objects import TEMPLATE_HASH_LABEL, dig, labels_of, name_of, namespace_of, seconds_of
from bot.domain.cluster.pod_end import failed_probe_of, was_asked_to_end
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.flags_in_spec import engine_statuses
from bot.domain.kernel.errors import ClusterError, CutLogError
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import PodLogs, ProbeRequest
from bot.probes.answers import no_answer, pods_asked_for, staying, unreadable
from bot.probes.engine.log_lines import LastWords, last_words, redacted

BEFORE_SECONDS = 600.0
"""An alert waits minutes before it fires: a crash this shortly before the opening belongs to the incident."""
SIGKILL_EXIT, SIGTERM_EXIT = 137, 143
ENDED_BY_ITSELF = "the container ended with exit code 0, and nobody had ended its pod"
MAX_LOGS = 8
TAIL_LINES = (2000, 400, 200)
"""Fewer if those before are too large to be read: up to vLLM 0.9, an engine logs the prompt of each request."""
CAUSE_WITHIN_SECONDS = 30.0
"""How long before its end an engine logs why it dies: the API server notices within a second, and writes for a few."""
GONE = "it is gone"
"""Why there is no log of a container that ended."""
NAMES_NO_CAUSE = ("engine_died", "start_failed")
"""What follows nearly every cause."""
SOURCE = "pods and their logs"


class PodsProbe(ABC):
    """The common start of every probe over pods and their logs: pods that are missing or unreadable make it unknown."""

    def __init__(self, logs: PodLogs) -> None:
        self._logs = logs

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        pods = pods_asked_for(request, snapshot)
        if not pods:
            return no_answer(request, "there is no such pod", source=SOURCE)
        return await self.read(request, snapshot, pods)

    @abstractmethod
    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        """Called with at least one pod."""


@dataclass(frozen=True)
class Ended:
    """One end of an engine container since the incident opened, or shortly before."""

    pod: Obj
    reason: str
    exit_code: int
    count: float
    is_previous: bool
    """Whether another container has started since, so that this log is the previous one's."""
    stop_requested: bool
    """Whether its pod was asked to end."""
    failed_probe: str = ""
    """The kubelet's event, if it ended the container because a probe failed."""
    at: float | None = None
    """When it ended, in seconds."""


async def words_of(logs: PodLogs, pod: Obj, end: Ended | None) -> LastWords | None:
    """The last words of a container that ended, or of one that runs; None if it has no log.

    When an engine dies, each stream in flight logs a traceback, and each is longer than the one before (vLLM 0.32: 20
    streams 2,100 lines). The cause is above them, so it is looked for from a moment before the end on. Raises
    `ClusterError` if the kubelet does not answer, or if even a few lines are too large.
    """
    where, is_previous = (namespace_of(pod), name_of(pod)), end is not None and end.is_previous
    log, lines = await _last_lines(logs, *where, is_previous)
    if log is None:
        return None
    words = last_words(log)
    if end is None:
        return words
    if end.at is not None and words.why in NAMES_NO_CAUSE and len(log.splitlines()) >= lines:
        try:
            above = last_words(await logs.read(*where, previous=is_previous, since=end.at - CAUSE_WITHIN_SECONDS) or "")
        except CutLogError as cut:
            above = last_words(cut.beginning)
            if above.why == "none":
                # The cause may be in what is missing.
                raise
        words = words if above.why in ("none", "killed") else above
    return why_silent(end, words)


async def _last_lines(logs: PodLogs, namespace: str, pod: str, is_previous: bool) -> tuple[str | None, int]:
    """The last lines, and how many were asked for."""
    *more, fewest = TAIL_LINES
    for lines in more:
        try:
            return await logs.read(namespace, pod, previous=is_previous, tail_lines=lines), lines
        except CutLogError:
            continue
    return await logs.read(namespace, pod, previous=is_previous, tail_lines=fewest), fewest


def why_silent(end: Ended, words: LastWords) -> LastWords:
    """The class of a crash whose log names no cause: a failed probe, a signal, an exception, or an end by itself."""
    if words.why != "none" or not is_crash(end) or end.reason == "OOMKilled":
        return words
    if end.failed_probe:
        return replace(words, why="probe", line=redacted(end.failed_probe))
    if end.exit_code in (SIGKILL_EXIT, SIGTERM_EXIT) or words.stop_requested:
        return replace(words, why="killed")
    if end.exit_code == 0:
        return replace(words, why="engine_died", line=ENDED_BY_ITSELF)
    if words.uncaught:
        return replace(words, why="engine_died", line=words.uncaught)
    return words


def is_crash(end: Ended) -> bool:
    """Whether it ended without being asked to, whatever its exit code."""
    return not end.stop_requested or end.reason == "OOMKilled"


def latest_crash_first(ended: Iterable[Ended]) -> list[Ended]:
    """Sorts crashes before other ends, and each by time, the latest first."""
    return sorted(ended, key=lambda end: (is_crash(end), end.at or 0.0), reverse=True)


def ends_of(pod: Obj, since: float, kills: Sequence[Obj] = ()) -> Iterable[Ended]:
    """`kills`: the snapshot's events about containers that a kubelet ends."""
    for status in engine_statuses(pod):
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
            stop_requested=was_asked_to_end(pod, ended),
            failed_probe=failed_probe_of(pod, str(status["name"]), ended, kills),
            at=seconds_of(ended.get("finishedAt")),
        )


def _count(pod: Obj, status: Obj, ended: Obj, since: float) -> float:
    restarts = float(status.get("restartCount") or 0)
    if (seconds_of(dig(pod, "status", "startTime")) or 0.0) >= since:
        return max(restarts, 1.0)
    # Of an older pod only the last end is dated; earlier ends may be from another day. If the container that ended had
    # started since, the one before it ended lately too.
    began = seconds_of(ended.get("startedAt"))
    return 2.0 if restarts >= 2 and began is not None and began >= since else 1.0


async def logs_of(logs: PodLogs, pod: Obj, since: float) -> list[str]:
    """The log of the pod's engine, and of the one before it if that one ended after `since`; only those with lines."""
    return [log for log in await each_log_of(logs, pod, since) if log]


async def each_log_of(logs: PodLogs, pod: Obj, since: float) -> list[str | None]:
    """As `logs_of`, with None for a log that cannot be read and an empty one for a container that has not begun."""
    has_previous = any(end.is_previous for end in ends_of(pod, since))
    found: list[str | None] = []
    for previous in (False, True) if has_previous else (False,):
        try:
            log = await logs.read(namespace_of(pod), name_of(pod), previous=previous)
        except ClusterError:
            # One unreadable log of several: the parts that only it contains stay unknown.
            found.append(None)
            continue
        # The container before had a log; if there is none, it is gone.
        found.append(log if previous else log or "")
    return found


def one_of_each_template(pods: Sequence[Obj]) -> list[Obj]:
    """Pods of one template start alike; those that restarted come first, since their logs contain more.

    Pods that a rollout is ending are left out: they would make the replicas differ.
    """
    by_restarts = sorted(staying(pods), key=_restarts, reverse=True)
    seen: dict[str, Obj] = {}
    for pod in by_restarts:
        seen.setdefault(labels_of(pod).get(TEMPLATE_HASH_LABEL) or name_of(pod), pod)
    return list(seen.values())


def _restarts(pod: Obj) -> int:
    return sum(int(status.get("restartCount") or 0) for status in engine_statuses(pod))
