"""The limits of the live engines, and which of the limits that prevent a recurrence are missing.

A flag is taken as absent only if the whole command line, or the engine's own start line, was read.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bot.domain.cluster.objects import dig
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.flag_history import is_v0, release
from bot.domain.flags.flag_rules import engines_of_server
from bot.domain.flags.flag_table import newest_table, parse_value
from bot.domain.flags.flags_in_spec import FlagsInSpec, engine_container, flags_of_template
from bot.domain.kernel.quantity import parse_quantity
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import PodLogs, ProbeRequest
from bot.probes.answers import agreed, answer, no_answer, pods_asked_for, unreadable
from bot.probes.declaration import Probe
from bot.probes.engine.flags_in_effect import version_of_tag
from bot.probes.engine.log_lines import StartLines, start_lines
from bot.probes.engine.pod_logs import MAX_LOGS, SOURCE, logs_of, one_of_each_template

T = TypeVar("T")
GIB = float(1 << 30)
V0_SWAP = 4.0
NEW_UTILIZATION, OLD_UTILIZATION = 0.92, 0.9
LAST_OLD_UTILIZATION = (0, 18)
FIRST_NEW_UTILIZATION = (0, 20)


@dataclass(frozen=True)
class Limits:
    utilization: float | None
    sizes_by_utilization: bool | None
    max_model_len: float | None
    prefix_caching: bool | None
    chunked_prefill: bool | None
    output_cap: float | None
    generation_config: bool | None
    offloading: float | None
    swap: float | None
    """GiB of swap space a GPU; 0 where the engine ignores it."""
    ranks: float | None
    active_cap: float | None
    """0 if nothing caps the running requests below --max-num-seqs."""
    v0: bool | None
    host_room: float | None
    bytes_per_token: float | None
    missing: str | None


@dataclass(frozen=True)
class Live:
    """The start arguments of one engine. `flag` returns None for absent, and raises `LookupError` if it is unknown."""

    spec: FlagsInSpec
    log: StartLines

    @property
    def version(self) -> tuple[int, int] | None:
        version = self.log.version or version_of_tag(self.spec.image)
        return None if version is None else release(version)

    def flag(self, name: str) -> str | None:
        written = self.spec.last(f"--{name}")
        if written is not None and not str(written.value).startswith("$"):
            return str(written.value)
        logged = (self.log.arguments or {}).get(name.replace("-", "_"))
        if logged is not None:
            return str(logged)
        if written is not None or (self.spec.unparsable and self.log.arguments is None):
            raise LookupError(self.spec.unparsable or f"--{name} is set from elsewhere")
        return None

    def number(self, name: str) -> float | None:
        value = self.flag(name)
        if value is None or value == "None":
            return None
        # `8k` and `16Gi` are numbers to the engine too; a value that it would reject is a FlagValueError, a ValueError.
        return float(parse_value(newest_table().spec(f"--{name}"), value))

    @property
    def is_v0(self) -> bool | None:
        if self.log.generation is not None:
            return self.log.generation == "V0"
        if self.version is None:
            return None
        # If V1 is requested, 0.8 to 0.10 fall back to V0 for what V1 does not support; then only their log shows it.
        major, minor = self.version
        return is_v0(f"{major}.{minor}", self.spec.variables.value("VLLM_USE_V1"))


class ReadLimits:
    """The `limits` probe. A part is unknown if the replicas differ."""

    def __init__(self, logs: PodLogs) -> None:
        self._logs = logs

    async def __call__(self, request: ProbeRequest) -> Reading:
        snapshot = await request.snapshot()
        if failed := unreadable(request, snapshot, "pods"):
            return failed
        pods = one_of_each_template(pods_asked_for(request, snapshot))[:MAX_LOGS]
        if not pods:
            return no_answer(request, "there is no such pod", source=SOURCE)
        logs = await asyncio.gather(*(logs_of(self._logs, pod, since=math.inf) for pod in pods))
        found = [
            limits_of(
                Live(
                    flags_of_template(pod, config_maps=snapshot.config_maps),
                    start_lines(log[0]) if log else StartLines(),
                ),
                pod,
            )
            for pod, log in zip(pods, logs, strict=True)
        ]
        parts = Limits(**{name: agreed(getattr(one, name) for one in found) for name in PROBE.kinds})
        reason = "neither flags nor start log say it, or the replicas differ"
        missing = dict.fromkeys(PROBE.kinds, reason)
        detail = f"no limit of {parts.missing}" if parts.missing else ""
        return answer(request, parts, missing=missing, detail=detail, source=SOURCE)


def _swap(live: Live) -> float | None:
    """The V0 engine's default is 4 GiB; the V1 engine ignores the flag."""
    if live.is_v0 is None:
        return None
    written = live.number("swap-space") if live.is_v0 else 0.0
    return V0_SWAP if written is None else written


def limits_of(live: Live, pod: Obj) -> Limits:
    """Every part of the probe, None if it is unknown."""
    return Limits(
        utilization=_known(_utilization, live),
        sizes_by_utilization=_known(_sizes_by_utilization, live),
        max_model_len=_known(lambda one: one.number("max-model-len"), live),
        prefix_caching=_known(_prefix_caching, live),
        chunked_prefill=_known(lambda one: _switch(one, "enable-chunked-prefill"), live),
        output_cap=_known(lambda one: _generation(one).get("max_new_tokens", 0.0), live),
        generation_config=_known(lambda one: bool(_generation(one)), live),
        offloading=_known(lambda one: one.number("kv-offloading-size") or 0.0, live),
        swap=_known(_swap, live),
        ranks=_known(_ranks, live),
        active_cap=_known(lambda one: one.number("max-num-active-seqs") or 0.0, live),
        v0=live.is_v0,
        host_room=_host_room(pod),
        bytes_per_token=_known(_bytes_per_token, live),
        missing=_known(lambda one: ", ".join(missing_limits(one)), live),
    )


def _known(read: Callable[[Live], T | None], live: Live) -> T | None:
    """The result of `read` for the engine; None if it is unknown or malformed."""
    try:
        return read(live)
    except (LookupError, ValueError):
        return None


def _utilization(live: Live) -> float | None:
    written = live.number("gpu-memory-utilization")
    # An engine on the CPU sizes its pool by its own variable.
    if written is not None or live.version is None or live.log.device not in (None, "cuda"):
        return written
    if live.version <= LAST_OLD_UTILIZATION:
        return OLD_UTILIZATION
    return NEW_UTILIZATION if live.version >= FIRST_NEW_UTILIZATION else None


def _sizes_by_utilization(live: Live) -> bool:
    if live.log.device not in (None, "cuda"):
        return False
    return live.flag("kv-cache-memory-bytes") is None and live.flag("num-gpu-blocks-override") is None


def _switch(live: Live, name: str) -> bool | None:
    written = live.flag(name)
    if written is not None:
        return written.lower() == "true"
    # In V1 both are on for every model that can; in V0 both were off.
    return None if live.is_v0 is None else not live.is_v0


def _ranks(live: Live) -> float:
    """Of one API server."""
    flags = live.spec.values.keys() | {f"--{name.replace('_', '-')}" for name in live.log.arguments or {}}
    local = live.number("data-parallel-size-local") if "--data-parallel-hybrid-lb" in flags else None
    return engines_of_server(flags, live.number("data-parallel-size") or 1.0, local)


def _prefix_caching(live: Live) -> bool | None:
    return _switch(live, "enable-prefix-caching") if live.log.prefix_caching is None else live.log.prefix_caching


def _generation(live: Live) -> dict[str, float]:
    """The overridden generation defaults; a text that is not JSON is unknown."""
    written = live.flag("override-generation-config")
    if written is None:
        return {}
    found = json.loads(written.replace("'", '"'))
    return {str(key): float(value) for key, value in found.items() if isinstance(value, int | float)}


def missing_limits(live: Live) -> list[str]:
    """The limits that this engine does not enforce under load."""
    lacks = {
        "request length (--max-model-len)": live.flag("max-model-len") is None,
        "answer length (--override-generation-config)": "max_new_tokens" not in _generation(live),
        "concurrency (--max-num-seqs)": live.flag("max-num-seqs") is None and live.flag("max-num-active-seqs") is None,
        "queue (--max-num-queued-reqs)": live.flag("max-num-queued-reqs") is None,
        "memory headroom (--gpu-memory-utilization)": live.flag("gpu-memory-utilization") is None
        and live.flag("kv-cache-memory-bytes") is None,
        "chunked prefill": _switch(live, "enable-chunked-prefill") is False,
        "visible batches (--disable-log-stats is set)": live.flag("disable-log-stats") == "True",
    }
    return [name for name, is_missing in lacks.items() if is_missing]


def _host_room(pod: Obj) -> float | None:
    """GiB that the pod may use beyond what it reserves; without both numbers there is no bound."""
    container = engine_container(pod)
    resources = dig(container[1], "resources") if container else None
    limit, request = (_bytes(dig(resources, kind, "memory")) for kind in ("limits", "requests"))
    return None if limit is None or request is None else max(0.0, limit - request) / GIB


def _bytes(text: object) -> float | None:
    if text is None:
        return None
    try:
        return float(parse_quantity(str(text)))
    except ValueError:
        return None


def _bytes_per_token(live: Live) -> float | None:
    """On one GPU: with tensor parallelism each holds its share."""
    log = live.log
    # If the number of blocks is set, the pool is smaller than the available memory.
    if log.kv_gib is None or not log.kv_tokens or live.flag("num-gpu-blocks-override") is not None:
        return None
    return log.kv_gib * GIB / log.kv_tokens


PROBE = Probe(
    name="limits",
    label="Engine limits",
    units=dict.fromkeys(("host_room", "offloading", "swap"), "GiB"),
    help="The engine's limits, and which mitigations are set already.",
    answer=Limits,
    read=lambda sources: ReadLimits(sources.logs),
)
