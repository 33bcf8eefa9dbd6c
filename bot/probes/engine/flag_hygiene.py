"""Flags and variables of the live engines that are removed, ignored, without effect or risky.

The bot changes none of them; a command line that cannot be read whole is not called clean.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.domain.cluster.capacity import accelerators_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.flags.command_words import variables_of
from bot.domain.flags.flag_history import fault_of_flag, fault_of_variable, history, is_v0, life_of_flag, release_of
from bot.domain.flags.flag_rules import (
    ALLOCATOR,
    Engine,
    EnvEdit,
    broken_allocator,
    changes_nothing,
    faults_of_engine,
)
from bot.domain.flags.flags_in_spec import FlagEdit, FlagsInSpec, engine_container, flags_of_template
from bot.domain.signals.signal import Reading
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import agreed, answer, no_answer
from bot.probes.declaration import Probe
from bot.probes.engine.flags_in_effect import version_of_tag
from bot.probes.engine.log_lines import start_lines
from bot.probes.engine.pod_logs import MAX_LOGS, SOURCE, PodsProbe, logs_of, one_of_each_template

RISKY_FLAGS = {
    "--trust-remote-code": "runs code that comes with the model",
    "--enforce-eager": "no CUDA graphs, so decoding is slower",
    "--disable-log-stats": "no metrics, so nothing can be verified",
    "--num-gpu-blocks-override": "sets the pool by hand, past the profile run",
    "--enable-sleep-mode": "an endpoint can put the engine to sleep",
}
RISKY_VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "opens endpoints that reset, pause and run code",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "anybody who reaches the port can load adapters",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "runs what it unpickles",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "takes requests longer than the model was trained for",
}
_OFF = frozenset({"", "0", "false", "no", "off"})
FINDINGS = ("removed", "ignored", "no_op", "risky")


@dataclass(frozen=True)
class FlagHygiene:
    removed: str
    ignored: str
    no_op: str
    risky: str
    count: float
    expandable: bool | None
    expandable_fits: bool
    expandable_settings: str | None
    """The allocator's settings as they would be with expandable segments; the others stay."""
    gpus_per_replica: float | None


class ReadFlagHygiene(PodsProbe):
    """The `flag_hygiene` probe: the findings of every template together."""

    async def read(self, request: ProbeRequest, snapshot: ClusterSnapshot, pods: Sequence[Obj]) -> Reading:
        pods = one_of_each_template(pods)[:MAX_LOGS]
        logs = await asyncio.gather(*(logs_of(self._logs, pod, since=math.inf) for pod in pods))
        found = [
            hygiene_of(pod, start_lines(log[0]).version if log else None, snapshot.config_maps)
            for pod, log in zip(pods, logs, strict=True)
        ]
        if unread := next((one for one in found if isinstance(one, str)), ""):
            return no_answer(request, f"its flags cannot be read: {unread}", source=SOURCE)
        read = [one for one in found if not isinstance(one, str)]
        findings = {kind: list(dict.fromkeys(text for one in read for text in one[kind])) for kind in FINDINGS}
        texts = {kind: "; ".join(each) for kind, each in findings.items()}
        parts = FlagHygiene(
            **texts,
            count=float(sum(map(len, findings.values()))),
            expandable=agreed(_is_expandable(pod, snapshot.config_maps) for pod in pods),
            expandable_fits=all(_expandable_fits(flags_of_template(p, config_maps=snapshot.config_maps)) for p in pods),
            expandable_settings=agreed(_with_expandable(pod, snapshot.config_maps) for pod in pods),
            gpus_per_replica=agreed(float(sum(accelerators_of(pod).values())) for pod in pods),
        )
        detail = "; ".join(f"{kind}: {text}" for kind, text in texts.items() if text)
        return answer(request, parts, detail=detail[:2000] or "nothing to say against its flags", source=SOURCE)


def hygiene_of(pod: Obj, version: str | None, config_maps: Mapping[str, Obj]) -> dict[str, list[str]] | str:
    """Findings by kind, or why the command line cannot be read."""
    flags = flags_of_template(pod, config_maps=config_maps)
    if flags.unparsable:
        return flags.unparsable
    engine = _engine(version or version_of_tag(flags.image), flags)
    return {
        "removed": faults_of_engine(flags, engine),
        "ignored": [*_ignored_flags(flags, engine), *_ignored_variables(pod, config_maps, engine)],
        "no_op": [
            f"{name} is what the engine does anyway" for name in flags.values if _is_default(name, flags, engine)
        ],
        "risky": [*_risky_flags(flags), *_risky_variables(pod, config_maps)],
    }


def _engine(version: str | None, flags: FlagsInSpec) -> Engine:
    """If the version of the engine is unknown, so is every finding that depends on it."""
    if not version:
        return Engine("")
    at = release_of(version)
    return Engine(at, is_v0(at, flags.variables.value("VLLM_USE_V1")))


def _ignored_flags(flags: FlagsInSpec, engine: Engine) -> list[str]:
    lives = {name: life_of_flag(name) for name in flags.values if engine.version}
    found = [
        fault
        for name, life in lives.items()
        if life is not None and not life.is_gone(engine.version) and not life.is_yet_to_come(engine.version)
        if (fault := fault_of_flag(name, engine.version, on_v0=engine.on_v0))
    ]
    if "--gpu-memory-utilization" in flags.values and "--kv-cache-memory-bytes" in flags.values:
        found.append("--gpu-memory-utilization is ignored while --kv-cache-memory-bytes is set")
    return found


def _ignored_variables(pod: Obj, config_maps: Mapping[str, Obj], engine: Engine) -> list[str]:
    names = _variables(pod, config_maps)
    known = (name for name in names if name in history().variables)
    return [fault for name in known if engine.version and (fault := fault_of_variable(name, engine.version))]


def _is_default(name: str, flags: FlagsInSpec, engine: Engine) -> bool:
    """Switches only: a number that equals today's default is a decision that outlives the default."""
    written = flags.values[name]
    if not isinstance(written, bool):
        return False
    without = FlagsInSpec(written=tuple(flag for flag in flags.written if flag.name != name))
    return changes_nothing(FlagEdit(name, written), without, engine)


def _risky_flags(flags: FlagsInSpec) -> list[str]:
    values = flags.values
    found = [f"{name}: {why}" for name, why in RISKY_FLAGS.items() if values.get(name, False) not in (False, "")]
    if values.get("--host") == "0.0.0.0" and "--api-key" not in values:  # noqa: S104 - looked for, not listened on
        found.append("--host 0.0.0.0 without --api-key: anybody who reaches the pod can use it")
    return found


def _risky_variables(pod: Obj, config_maps: Mapping[str, Obj]) -> list[str]:
    variables = _variables(pod, config_maps)
    return [
        f"{name}: {why}" for name, why in RISKY_VARIABLES.items() if (variables.get(name) or "").lower() not in _OFF
    ]


def _variables(pod: Obj, config_maps: Mapping[str, Obj]) -> dict[str, str | None]:
    found = engine_container(pod)
    if found is None:
        return {}
    known = variables_of(found[1], found[0], config_maps).by_name
    return {name: variable.text for name, variable in known.items()}


# --- the allocator ----------------------------------------------------------------------------------------------------


def _is_expandable(pod: Obj, config_maps: Mapping[str, Obj]) -> bool:
    variables = _variables(pod, config_maps)
    return any("expandable_segments:true" in (variables.get(name) or "").lower() for name in ALLOCATOR)


def _with_expandable(pod: Obj, config_maps: Mapping[str, Obj]) -> str:
    variables = _variables(pod, config_maps)
    written = next(filter(None, map(variables.get, ALLOCATOR)), "")
    others = [part for part in written.split(",") if not re.match(r"\s*(expandable_segments\b|$)", part)]
    return ",".join([*others, "expandable_segments:True"])


def _expandable_fits(flags: FlagsInSpec) -> bool:
    wanted = (EnvEdit(ALLOCATOR[0], "expandable_segments:True"),)
    return not broken_allocator(wanted, flags, Engine(""))


PROBE = Probe(
    name="flag_hygiene",
    label="Risky flags",
    help="Flags that this engine ignores, has removed, or that are risky together.",
    answer=FlagHygiene,
    read=lambda sources: ReadFlagHygiene(sources.logs),
)
