"""The `engine_flags` probe."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.cluster.objects import dig, name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.signal import DURATION, Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import agreed, answer
from bot.probes.declaration import Probe
from bot.probes.engine.flags_in_effect import FlagsInEffect, flags_in_effect
from bot.probes.engine.log_lines import StartLines, start_lines
from bot.probes.engine.pod_logs import MAX_LOGS, SOURCE, PodsProbe, logs_of, one_of_each_template

Part = float | bool | str


@dataclass(frozen=True)
class EngineFlags:
    max_num_seqs: float | None
    version: str | None
    kv_cache_dtype: str | None
    shutdown_timeout: float | None
    max_num_batched_tokens: float | None


class ReadEngineFlags(PodsProbe):
    """The most important flags, as they are in effect now. A part is unknown if the replicas differ."""

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MAX_LOGS]
        nodes = {name_of(node): node for node in snapshot.nodes}
        logs = await asyncio.gather(*(logs_of(self._logs, pod, since=math.inf) for pod in pods))
        found = [
            flags_in_effect(
                pod,
                nodes.get(dig(pod, "spec", "nodeName")),
                start_lines(log[0]) if log else StartLines(),
                snapshot.config_maps,
            )
            for pod, log in zip(pods, logs, strict=True)
        ]
        known: dict[str, Any] = {name: agreed(getattr(flags, name) for flags in found) for name in PROBE.kinds}
        missing = {name: _why_not(found, name) for name, value in known.items() if value is None}
        detail = ", ".join(
            f"{name.replace('_', ' ')} {_shown(v)} ({_from(found[0], name)})"
            for name, v in known.items()
            if v is not None
        )
        return answer(request, EngineFlags(**known), missing=missing, detail=detail, source=SOURCE)


def _why_not(found: Sequence[FlagsInEffect], part: str) -> str:
    values = {getattr(flags, part) for flags in found}
    if len(values) > 1:
        return f"the replicas differ: {', '.join(sorted(map(str, values)))}"
    return found[0].sources.get(part, "not known")


def _from(flags: FlagsInEffect, part: str) -> str:
    return flags.sources.get(part, "its log or image")


def _shown(value: Part) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


PROBE = Probe(
    name="engine_flags",
    label="Engine flags",
    units={"shutdown_timeout": DURATION},
    help="The flags that decide most, as they are in effect now.",
    answer=EngineFlags,
    read=lambda sources: ReadEngineFlags(sources.logs),
)
