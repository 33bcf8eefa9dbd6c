"""The `startup_log` probe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import agreed, answer, no_answer
from bot.probes.declaration import Probe
from bot.probes.engine.log_lines import last_words, start_lines
from bot.probes.engine.pod_logs import BEFORE_SECONDS, MAX_LOGS, SOURCE, PodsProbe, each_log_of, one_of_each_template


@dataclass(frozen=True)
class StartupLog:
    oom_class: str | None
    kv_tokens: float | None
    version: str | None
    backend: str | None


class ReadStartupLog(PodsProbe):
    """What the engines logged as they started, and why one did not start."""

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MAX_LOGS]
        since = request.context.opened_at - BEFORE_SECONDS
        of_pods = await asyncio.gather(*(each_log_of(self._logs, pod, since) for pod in pods))
        every = [log for logs in of_pods for log in logs]
        found, unread = [log for log in every if log], every.count(None)
        if not found:
            return no_answer(request, "no log of any of its pods can be read", source=SOURCE)
        started = [start_lines(log) for log in found]
        failed = next((end for log in found if (end := last_words(log)).why != "none"), None)
        tokens = [start.kv_tokens for start in started if start.kv_tokens is not None]
        parts = StartupLog(
            oom_class=failed.why if failed else None if unread else "none",
            kv_tokens=min(tokens, default=None),
            version=agreed(start.version for start in started if start.version is not None),
            backend=agreed(start.backend for start in started if start.backend is not None),
        )
        missing = dict.fromkeys(PROBE.kinds, "its line is not in the log (any more), or the replicas differ")
        missing["oom_class"] = f"{unread} of the logs cannot be read"
        return answer(request, parts, missing=missing, detail=failed.line if failed else "", source=SOURCE)


PROBE = Probe(
    name="startup_log",
    label="Start-up log",
    help="What the engines said as they started, and the class of memory failure if they did not.",
    answer=StartupLog,
    read=lambda sources: ReadStartupLog(sources.logs),
)
