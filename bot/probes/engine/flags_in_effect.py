"""The engine flags in effect on a pod: as written in its spec, else as in its start log, else the version's default.

A flag that none of the three contains is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.cluster.objects import dig, labels_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.flag_table import FlagValueError, newest_table, parse_value, tag_of
from bot.domain.flags.flags_in_spec import FlagsInSpec, engine_container, flags_of_template
from bot.probes.engine.log_lines import StartLines

GPU_LABEL, GPU_RESOURCE = "nvidia.com/gpu.product", "nvidia.com/gpu"
_MANY_SEQS = re.compile(r"H100|H200|H20\b|H800|A800.*80GB|B100|B200|B300|RTX-PRO-6000")
_FEWER_SEQS = re.compile(
    r"A100|A800.*40GB|A30\b|A40\b|A10G?\b|A16|A2\b|L40S?|L4\b|T4\b|V100|RTX(?!-PRO|-6000D)|Quadro|A\d000"
)
_LARGEST = re.compile(r"B200|B300")
_IMAGE_VERSION = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)(?:[-.+][\w.+-]*)?$")


@dataclass(frozen=True)
class FlagsInEffect:
    """Each part with its source; None with the reason if it is unknown."""

    max_num_seqs: float | None
    version: str | None
    kv_cache_dtype: str | None
    shutdown_timeout: float | None
    max_num_batched_tokens: float | None
    sources: dict[str, str]


def flags_in_effect(pod: Obj, node: Obj | None, log: StartLines, config_maps: Mapping[str, Obj]) -> FlagsInEffect:
    spec = flags_of_template(pod, config_maps=config_maps)
    version = log.version or version_of_tag(spec.image)
    found = _Found(_written(spec, of_file=False), _written(spec, of_file=True), spec.unparsable, log.arguments, {})
    defaults = _defaults(version, _gpu_of(pod, node, log))
    dtype = found.value("--kv-cache-dtype", defaults)
    timeout, seqs = found.value("--shutdown-timeout", defaults), found.value("--max-num-seqs", defaults)
    tokens = found.value("--max-num-batched-tokens", defaults)
    return FlagsInEffect(
        max_num_seqs=_number("--max-num-seqs", seqs),
        version=version,
        kv_cache_dtype=None if dtype is None else str(dtype),
        shutdown_timeout=_number("--shutdown-timeout", timeout),
        max_num_batched_tokens=_number("--max-num-batched-tokens", tokens),
        sources=found.sources | ({} if version else {"version": "neither its log nor its image's tag says it"}),
    )


def _written(spec: FlagsInSpec, *, of_file: bool) -> dict[str, str | bool]:
    """Skips values that refer to something outside the pod spec."""
    flags = [flag for flag in spec.written if (flag.entry is not None) is of_file]
    return {flag.name: flag.value for flag in flags if not str(flag.value).startswith("$")}


@dataclass(frozen=True)
class _Found:
    """The sources of a flag's value, and which of them gave each."""

    written: dict[str, str | bool]
    filed: dict[str, str | bool]
    """From a ConfigMap, which may have changed since the pod started: the pod's log takes precedence."""
    unparsable: str
    logged: dict[str, object] | None
    sources: dict[str, str]

    def value(self, flag: str, defaults: dict[str, object]) -> object | None:
        name = flag.removeprefix("--").replace("-", "_")
        if flag in self.written:
            self.sources[name] = "its arguments"
            return self.written[flag]
        if self.logged is not None and name in self.logged:
            self.sources[name] = "its start log"
            return self.logged[name]
        if flag in self.filed:
            self.sources[name] = "its config file"
            return self.filed[flag]
        if self.unparsable and self.logged is None:
            self.sources[name] = f"{self.unparsable}, and its start log does not say"
            return None
        value = defaults.get(flag)
        self.sources[name] = "the default" if value is not None else "not set, and the default is not known"
        return value


def _gpu_of(pod: Obj, node: Obj | None, log: StartLines) -> str | None:
    """The model of the engine's whole GPU, empty if the node does not name it; None if it has no whole GPU.

    An engine on the CPU of a GPU node, or on a slice of a GPU, has other defaults.
    """
    found = engine_container(pod)
    has_gpu = found is not None and GPU_RESOURCE in (dig(found[1], "resources", "limits") or {})
    model = labels_of(node or {}).get(GPU_LABEL, "")
    if not has_gpu or "-MIG-" in model or log.device not in (None, "cuda"):
        return None
    return model


def _defaults(version: str | None, gpu: str | None) -> dict[str, object]:
    """The meaning of an absent flag; for a flag that the version lacks, what the engine does instead."""
    known: dict[str, object] = {"--kv-cache-dtype": "auto"}
    if version:
        # Before 0.18 there is no such flag and the engine aborts on SIGTERM, as with 0.
        known["--shutdown-timeout"] = 0
    if seqs := default_max_num_seqs(version, gpu):
        known["--max-num-seqs"] = seqs
    if tokens := default_max_num_batched_tokens(version, gpu):
        known["--max-num-batched-tokens"] = tokens
    return known


def default_max_num_seqs(version: str | None, gpu: str | None) -> int | None:
    """256 on all GPUs until 0.8; from 0.9 on 1024 on GPUs of 70 GiB and more other than the A100. None: not known."""
    if not version or gpu is None:
        return None
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < (0, 9) or _FEWER_SEQS.search(gpu):
        return 256
    return 1024 if _MANY_SEQS.search(gpu) else None


def default_max_num_batched_tokens(version: str | None, gpu: str | None) -> int | None:
    """Of a server from 0.9 on: 2048, on GPUs of 70 GiB and more other than the A100 8192, of 160 GiB and more 16384."""
    if not version or gpu is None or tuple(int(part) for part in version.split(".")[:2]) < (0, 9):
        return None
    if _FEWER_SEQS.search(gpu):
        return 2048
    return 16384 if _LARGEST.search(gpu) else 8192 if _MANY_SEQS.search(gpu) else None


def version_of_tag(image: str) -> str | None:
    found = _IMAGE_VERSION.search(tag_of(image))
    return found[1] if found else None


def _number(flag: str, value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(parse_value(newest_table().spec(flag), value))
    except (FlagValueError, ValueError):
        return None
