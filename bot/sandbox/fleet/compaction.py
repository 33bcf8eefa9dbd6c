"""The plugin TriAttention in a vLLM image: how its switches change a sequence's KV cache. Pure.

From its source (c3744ee6): on once it is installed; a sequence that has grown `every_tokens` over its budget is cut
back to the budget. Blocks are freed only if compaction and reclaim are on and prefix caching is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PLUGIN = "triattention"
OFF = frozenset({"0", "false", "no", "off", ""})
SWITCHES = ("TRIATTN_RUNTIME_ENABLE_EXPERIMENTAL_KV_COMPACTION", "TRIATTN_RUNTIME_ENABLE_EXPERIMENTAL_BLOCK_RECLAIM")


@dataclass(frozen=True, slots=True)
class Compaction:
    budget_tokens: int = 2048
    every_tokens: int = 128

    @property
    def passes_at(self) -> int:
        return self.budget_tokens + self.every_tokens


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over one sequence, as the plugin logs it."""

    tokens_before: int
    tokens_after: int
    blocks_freed: int
    blocks_kept: int


def is_active(image: str, env: Mapping[str, str]) -> bool:
    return PLUGIN in image and env.get("ENABLE_TRIATTENTION", "true").lower() not in OFF


def compaction_of(image: str, env: Mapping[str, str], *, prefix_caching: bool) -> Compaction | None:
    """None if no block is ever freed, even if the plugin runs and only marks tokens."""
    reclaims = all(env.get(name, "true").lower() not in OFF for name in SWITCHES)
    if not is_active(image, env) or not reclaims or prefix_caching:
        return None
    default = Compaction()
    return Compaction(
        int(env.get("TRIATTN_RUNTIME_KV_BUDGET", default.budget_tokens)),
        int(env.get("TRIATTN_RUNTIME_DIVIDE_LENGTH", default.every_tokens)),
    )
