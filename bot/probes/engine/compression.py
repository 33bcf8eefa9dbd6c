"""Which KV cache compression a server uses, from evidence that needs no shell.

Each class frees memory differently or not at all, and vLLM's usage gauge does not distinguish them. If evidence is
missing, the answer is not `none`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.flags_in_spec import flags_of_template

Kind = Literal[
    "none",
    "quantised_kv",
    "eviction_with_compaction",
    "eviction_without_compaction",
    "page_selection",
]
"""quantised_kv: each token takes fewer bytes, so the pool holds more. eviction_with_compaction: blocks come back after
a pass. eviction_without_compaction, page_selection: less is read, but no block ever comes back."""

FULL_SIZE = frozenset({"auto", "bfloat16", "float16", "half", "float32", "float"})
_UPSTREAM = re.compile(r"(?:^|/)(?:vllm-openai(?:-\w+)*|vllm(?:-\w+)*)(?::|@|$)")
_UPSTREAM_BUILD = re.compile(r"\+(?:cpu|cu\d+|rocm[\d.]*|g[0-9a-f]{6,}(?:\.d\d+)?|xpu|tpu|precompiled)?$")
_OFF = frozenset({"0", "false", "no", "off", ""})
_COMPACTS = re.compile(r"\[TriAttention\] Runtime \(V\d+\) plugin activated|TriAttention compression applied")
_FREED = re.compile(r"TriAttention scheduler FREE_BLOCKS:.* freed=(\d+)")
_EVICTS = re.compile(r"\b(?:h2o|snapkv|r-?kv|pyramidkv|streaming-?llm)\b", re.IGNORECASE)
_SELECTS = re.compile(
    r"Using (\w*(?:MLA_SPARSE|HISPARSE|QUEST)\w*) (?:attention )?backend|\b(quest)(?:-attention)?\b", re.I
)
_PLUGIN = re.compile(r"^.*Loaded plugin.*$|^.*Loading plugin.*$", re.MULTILINE)
_DATA_TYPE = re.compile(r"Using (\w+) data type to store kv cache")
_STARTED = re.compile(r"Initializing a V[01] LLM engine \(v([\w.+]+)\)")


@dataclass(frozen=True)
class Evidence:
    """The evidence about one server; `flags` is None if they cannot be read, `log` if it has no start lines left."""

    flags: Mapping[str, str | bool] | None
    env: Mapping[str, str]
    image: str
    cache_dtype: str = ""
    """As in `cache_config_info`."""
    log: str = ""


def evidence_of(template: Obj, config_maps: Mapping[str, Obj], *, cache_dtype: str = "", log: str = "") -> Evidence:
    """Returns what a pod template, or a pod, shows of itself; without a log there are fewer signs."""
    spec = flags_of_template(template, config_maps=config_maps)
    env = {name: spec.variables.value(name) or "" for name in spec.variables.by_name}
    return Evidence(None if spec.unparsable else spec.values, env, spec.image, cache_dtype, log)


@dataclass(frozen=True)
class Compression:
    """`kind` is None if it is unknown; `seen` is the evidence, `missing` the evidence that would have decided."""

    kind: Kind | None
    offloads: bool | None
    seen: tuple[str, ...] = field(default=())
    missing: str = ""


def compression_of(evidence: Evidence) -> Compression:
    offloads, moved = _offloads(evidence)
    signs: dict[Kind, tuple[str, ...]] = {
        "eviction_with_compaction": _compaction(evidence),
        "eviction_without_compaction": _eviction(evidence),
        "page_selection": _selection(evidence),
        "quantised_kv": _quantised(evidence),
    }
    # A plugin may run on a quantised cache: signs that blocks themselves change come first, and all signs are reported.
    if kind := next((kind for kind, seen in signs.items() if seen), None):
        return Compression(kind, offloads, (*(sign for seen in signs.values() for sign in seen), *moved))
    missing = _undecided(evidence)
    return Compression(None if missing else "none", offloads, moved, missing)


def _compaction(evidence: Evidence) -> tuple[str, ...]:
    switch = evidence.env.get("ENABLE_TRIATTENTION")
    if found := _COMPACTS.search(evidence.log):
        freed = [int(count) for count in _FREED.findall(evidence.log)]
        # A logged pass that frees nothing compacts in name only, and readers must see that.
        sums = (f"its passes freed {sum(freed)} blocks",) if freed else ()
        return (f"its log: {found[0]}", *sums)
    if switch is not None and switch.lower() not in _OFF:
        return (f"env ENABLE_TRIATTENTION={switch}",)
    return ()


def _eviction(evidence: Evidence) -> tuple[str, ...]:
    places = {"its image": evidence.image, **{f"its log, {line.strip()[:120]}": line for line in _plugins(evidence)}}
    return tuple(f"{found[0]} in {place}" for place, text in places.items() if (found := _EVICTS.search(text)))


def _selection(evidence: Evidence) -> tuple[str, ...]:
    backends = (line for line in evidence.log.splitlines() if "Using" in line and "backend" in line)
    found = (_SELECTS.search(text) for text in (*backends, evidence.image, *_plugins(evidence)))
    return tuple(f"{one[1] or one[2]} selects pages" for one in found if one)[:1]


def _quantised(evidence: Evidence) -> tuple[str, ...]:
    written = (evidence.flags or {}).get("--kv-cache-dtype")
    logged = _DATA_TYPE.search(evidence.log)
    places = {
        "--kv-cache-dtype": str(written or ""),
        "cache_config_info": evidence.cache_dtype,
        "its log": logged[1] if logged else "",
    }
    return tuple(f"{dtype} in {place}" for place, dtype in places.items() if dtype and dtype not in FULL_SIZE)


def _offloads(evidence: Evidence) -> tuple[bool | None, tuple[str, ...]]:
    """Moving blocks to host memory is not compression: it makes reuse cheaper and the pool no larger."""
    flags = evidence.flags or {}
    found = [name for name in ("--kv-offloading-size", "--kv-transfer-config") if flags.get(name)]
    found += sorted(name for name in evidence.env if name.startswith("LMCACHE_"))
    if found:
        return True, (f"offloads: {', '.join(found)}",)
    return (None if evidence.flags is None else False), ()


def _plugins(evidence: Evidence) -> tuple[str, ...]:
    return tuple(_PLUGIN.findall(evidence.log))


def _undecided(evidence: Evidence) -> str:
    """Why the absence of signs does not prove the absence of compression."""
    started = _STARTED.search(evidence.log)
    if evidence.flags is None:
        return "its flags cannot be read"
    if not _UPSTREAM.search(evidence.image):
        return f"{evidence.image or 'its image'} is not upstream's image, and neither flags nor log name a method"
    if started and not _UPSTREAM_BUILD.search(started[1]) and "+" in started[1]:
        return f"v{started[1]} is not upstream's build"
    dtype = str(evidence.flags.get("--kv-cache-dtype") or evidence.cache_dtype or "auto")
    if dtype == "auto" and not started:
        return "--kv-cache-dtype is auto, which is fp8 for some checkpoints, and its start is not in the log any more"
    return ""
