"""The scene of a crash: how many replicas, of which revision, how long each had lived, and whether they stay up now.

A container's own times decide; a pod without them proves nothing, and no value is assumed for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, is_ready, name_of, seconds_of
from bot.domain.cluster.rollout import new_and_old_pods
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.flags_in_spec import ENGINE_WORDS, engine_container, engine_statuses
from bot.domain.signals.signal import DURATION, Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, staying
from bot.probes.declaration import Probe
from bot.probes.engine.pod_logs import BEFORE_SECONDS, SOURCE, Ended, PodsProbe, ends_of, is_crash, latest_crash_first

HOUR = 3600.0
NAMED = 3
"""Crashed replicas that are named; the others are counted."""


@dataclass(frozen=True)
class CrashScene:
    crashed: float
    names: str | None
    """Of the crashed replicas, with the exit code and how often."""
    ready: float
    steady_for: float | None
    lived: float | None
    exit_code: float | None
    oldest_hours: float | None
    only_new: bool | None
    serving: bool | None
    oldest: str | None


class ReadCrashScene(PodsProbe):
    """Which replicas crashed since the incident opened or shortly before, and for how long all have been up."""

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        # A pod that crashed and was replaced is still there for its grace period, and says nothing of what runs now.
        pods = staying(pods)
        since = request.context.opened_at - BEFORE_SECONDS
        crashed = [end for pod in pods for end in ends_of(pod, since, snapshot.kills) if is_crash(end)]
        ages = {name_of(pod): _age(pod, request.at) for pod in pods}
        known = {name: age for name, age in ages.items() if age is not None}
        oldest = max(sorted(known), key=lambda name: known[name], default=None)
        parts = CrashScene(
            crashed=float(len({name_of(end.pod) for end in crashed})),
            names=_named(crashed) or None,
            ready=float(sum(is_ready(pod) for pod in pods)),
            only_new=_only_new(snapshot, crashed),
            steady_for=_steady_for(pods, request.at),
            lived=_lived(crashed),
            exit_code=float(latest_crash_first(crashed)[0].exit_code) if crashed else None,
            serving=_serves(pods),
            oldest=oldest,
            oldest_hours=known[oldest] / HOUR if oldest is not None else None,
        )
        missing = dict.fromkeys(PROBE.kinds, "the pods do not say it") | dict.fromkeys(
            ("names", "lived", "exit_code"), "nothing crashed since the incident opened"
        )
        return answer(request, parts, missing=missing, detail=_in_words(crashed), source=SOURCE)


@dataclass(frozen=True)
class _Life:
    began: float | None
    ended: float | None


def _lives(pod: Obj) -> list[_Life]:
    """The last ended container of its engine, with its dates from Kubernetes."""
    found = []
    for status in engine_statuses(pod):
        ended = dig(status, "state", "terminated") or dig(status, "lastState", "terminated") or {}
        if ended:
            found.append(_Life(seconds_of(ended.get("startedAt")), seconds_of(ended.get("finishedAt"))))
    return found


def _lived(crashed: Sequence[Ended]) -> float | None:
    """The shortest life of a crashed container: how long to watch before the next crash would show."""
    lives = [
        life.ended - life.began
        for end in crashed
        for life in _lives(end.pod)
        if life.began is not None and life.ended is not None
    ]
    return min(lives, default=None)


def _age(pod: Obj, now: float) -> float | None:
    """How long its engine has run by now; 0 while it does not run, None if that is unknown."""
    statuses = engine_statuses(pod)
    if not statuses:
        return 0.0 if dig(pod, "status", "phase") == "Pending" else None
    began = [seconds_of(dig(status, "state", "running", "startedAt") or "") for status in statuses]
    if any(dig(status, "state", "running") is None for status in statuses):
        return 0.0
    return None if None in began else max(0.0, now - max(at for at in began if at is not None))


def _steady_for(pods: Sequence[Obj], now: float) -> float | None:
    """How long all replicas have been up; 0 if one is not Ready."""
    ages = [_age(pod, now) if is_ready(pod) else 0.0 for pod in pods]
    return None if None in ages else min((age for age in ages if age is not None), default=math.inf)


def _only_new(snapshot: ClusterSnapshot, crashed: Sequence[Ended]) -> bool | None:
    """Whether all crashed replicas are of the newest revision while an older one still serves: a stuck rollout."""
    if not crashed:
        return False
    parted = new_and_old_pods(snapshot)
    if parted is None:
        return None
    new, old = parted
    newest = {name_of(pod) for pod in new}
    return all(name_of(end.pod) in newest for end in crashed) and any(is_ready(pod) for pod in old)


def _serves(pods: Sequence[Obj]) -> bool | None:
    """Whether these engines serve: a Job's pods do not, and a pod spec that does not name the engine is unknown."""
    owners = {owner.get("kind") for pod in pods for owner in dig(pod, "metadata", "ownerReferences") or []}
    if "Job" in owners:
        return False
    for pod in pods:
        found = engine_container(pod)
        container = found[1] if found else {}
        texts = [container.get("image") or "", *(container.get("command") or []), *(container.get("args") or [])]
        if any(word in text for text in texts for word in ENGINE_WORDS):
            return True
    return None


def _named(crashed: Sequence[Ended]) -> str:
    ends = {name_of(end.pod): f"exit {end.exit_code}, {_times(end.count)}" for end in crashed}
    shown = [f"{name} ({how})" for name, how in sorted(ends.items())[:NAMED]]
    return ", ".join([*shown, *([f"{len(ends) - NAMED} more"] if len(ends) > NAMED else [])])


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:.0f} times"


def _in_words(crashed: Sequence[Ended]) -> str:
    descriptions = [
        f"{name_of(end.pod)}: {end.reason} (exit {end.exit_code}), {_times(end.count)}"
        + (f": {end.failed_probe}" if end.failed_probe else "")
        for end in crashed
    ]
    return "; ".join(dict.fromkeys(descriptions))[:900] or "nothing crashed since the incident opened"


PROBE = Probe(
    name="crash_scene",
    label="Uptime and crashes",
    units={"steady_for": DURATION, "lived": DURATION},
    help="How many replicas crashed, how long each had lived, and for how long all have been up.",
    answer=CrashScene,
    read=lambda sources: ReadCrashScene(sources.logs),
)
