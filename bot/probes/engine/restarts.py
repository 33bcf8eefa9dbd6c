"""The `restarts` probe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.cluster.objects import name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, no_answer, seconds_asked_for, staying
from bot.probes.declaration import Probe
from bot.probes.engine.log_lines import CUDA_OOM, LastWords
from bot.probes.engine.pod_logs import (
    BEFORE_SECONDS,
    GONE,
    MAX_LOGS,
    SOURCE,
    Ended,
    PodsProbe,
    ends_of,
    is_crash,
    latest_crash_first,
    words_of,
)


@dataclass(frozen=True)
class Restarts:
    count: float
    oom: bool | None
    crashed: bool
    last_reason: str


class ReadRestarts(PodsProbe):
    """How often engines ended since the incident opened, and whether memory was the cause.

    `over` counts only recent ends: an incident that opened with a crash must be able to detect that it is over. `since:
    state` counts only ends after the run entered its state, such as after a change; `since: answers.probe` only those
    after people answered that question, in whatever playbook of the incident.
    """

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        # A pod that crashed and was replaced is still there for its grace period, and says nothing of what runs now.
        pods = staying(pods)
        since = request.context.opened_at - BEFORE_SECONDS
        if request.spec.parameters.get("over"):
            if isinstance(span := seconds_asked_for(request, "over"), str):
                return no_answer(request, span, source=SOURCE)
            since = max(since, request.at - span)
        since = max(since, self._since(request))
        ended = latest_crash_first(end for pod in pods for end in ends_of(pod, since, snapshot.kills))
        crashed = [end for end in ended if is_crash(end)]
        words = await asyncio.gather(*(self._last_words(end) for end in crashed[:MAX_LOGS]))
        parts = Restarts(
            count=sum(end.count for end in ended),
            oom=_was_oom(crashed, words),
            crashed=bool(crashed),
            last_reason=_last_reason(ended[0], next(iter(words), None)) if ended else "",
        )
        unread = [word for word in words if isinstance(word, str)]
        missing = {"oom": ": ".join(["the log of the container that ended cannot be read", *unread[:1]])}
        evidence = [line for word in words if isinstance(word, LastWords) for line in word.evidence[-5:]]
        return answer(request, parts, missing=missing, detail="\n".join(evidence)[:2000], source=SOURCE)

    @staticmethod
    def _since(request: ProbeRequest) -> float:
        moment = str(request.spec.parameters.get("since", ""))
        return request.context.entered_at if moment == "state" else request.context.moments.get(moment, 0.0)

    async def _last_words(self, end: Ended) -> LastWords | str:
        """A string says why its log cannot be read."""
        try:
            return await words_of(self._logs, end.pod, end) or GONE
        except ClusterError as error:
            # The reading reports that this log is unreadable; the other pods' logs may still decide it.
            return str(error)


def _was_oom(crashed: Sequence[Ended], words: Sequence[LastWords | str]) -> bool | None:
    if any(end.reason == "OOMKilled" for end in crashed):
        return True
    if any(isinstance(word, LastWords) and word.why in CUDA_OOM for word in words):
        return True
    return None if any(isinstance(word, str) for word in words) or len(words) < len(crashed) else False


def _last_reason(end: Ended, word: LastWords | str | None) -> str:
    """`word`: its own last words, or why its log cannot be read; None if it is not a crash."""
    plain = f"{end.reason} (exit {end.exit_code}) of {name_of(end.pod)}"
    if not isinstance(word, LastWords) or word.why == "none":
        return plain
    if word.line:
        return f"{plain}: {word.why}: {word.line}"[:600]
    return f"{plain}: killed from outside; no event of the pod says why"


PROBE = Probe(
    name="restarts",
    label="Restarts",
    help="How often engines ended since the incident opened, and whether memory was the reason.",
    answer=Restarts,
    parameters={
        "over": Parameter("Count only what ended within this time.", "duration"),
        "since": Parameter(
            "Count only what ended since then; `state`: since the state was entered; or `answers.<question>`."
        ),
    },
    read=lambda sources: ReadRestarts(sources.logs),
)
