"""Compares the blocks that one long generation took on an idle replica with what it needs without compression.

Blocks taken are the peak during the generation minus those in use before. Other requests in that time make it unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Kind, Reading

RESULT = "probe_request"
PARTS: Mapping[str, Kind] = {
    "tokens": "number",
    "expected_blocks": "number",
    "used_blocks": "number",
    "reclaim": "number",
    "finished": "flag",
    "error": "text",
}
SOURCE = "the probe and the replica's /metrics"


@dataclass(frozen=True)
class Generation:
    """How the request ended. `tokens` are those of the prompt and the answer, None if not reported."""

    tokens: int | None
    is_finished: bool
    error: str = ""


@dataclass(frozen=True)
class Blocks:
    """One sample of the pool, over all engine ranks; None means unknown."""

    used: float | None
    size: float | None
    requests: float | None


def blocks_in(scrape: Scrape) -> Blocks:
    ranks = list(scrape.ranks.values())
    if scrape.error or not ranks:
        return Blocks(None, None, None)

    def total(*names: str) -> float | None:
        values = [rank.get(name) for rank in ranks for name in names]
        return None if None in values else sum(value for value in values if value is not None)

    # Block 0 is the null block, which no request can use.
    pools = [(rank.get("kv_cache_usage_perc"), rank.get("num_gpu_blocks")) for rank in ranks]
    known = [usage * (blocks - 1) for usage, blocks in pools if usage is not None and blocks is not None]
    used = float(round(sum(known))) if len(known) == len(pools) else None
    return Blocks(used, ranks[0].get("block_size"), total("num_requests_running", "num_requests_waiting"))


def generation_reading(done: Generation, before: Blocks, during: Sequence[Blocks], *, at: float) -> Reading:
    fields: dict[str, float | bool | str] = {"finished": done.is_finished, "error": done.error}
    missing: dict[str, str] = {}
    if done.tokens is None:
        missing["tokens"] = f"the replica did not say how many tokens it made{': ' + done.error if done.error else ''}"
    else:
        fields["tokens"] = float(done.tokens)
    if before.size and done.tokens is not None:
        fields["expected_blocks"] = float(ceil(done.tokens / before.size))
    else:
        missing["expected_blocks"] = missing.get("tokens", "the size of a block is not known")
    used = _used(before, during)
    if isinstance(used, str):
        missing["used_blocks"] = used
    else:
        fields["used_blocks"] = used
    whys = [missing[part] for part in ("expected_blocks", "used_blocks") if part in missing]
    if not whys and not done.is_finished:
        whys.append("the request did not finish")
    if whys:
        missing["reclaim"] = "; ".join(whys)
    else:
        fields["reclaim"] = 1 - float(fields["used_blocks"]) / float(fields["expected_blocks"])
    return Reading(
        name=RESULT, fields=fields, unknown_parts=missing, at=at, source=SOURCE, detail=_in_words(fields, missing)
    )


def _used(before: Blocks, during: Sequence[Blocks]) -> float | str:
    seen = [sample.used for sample in during if sample.used is not None]
    if before.used is None or not seen:
        return "the replica's blocks could not be read " + ("before it" if before.used is None else "while it ran")
    if any(sample.requests is not None and sample.requests > 1 for sample in during):
        return "other requests ran on the replica meanwhile"
    return max(0.0, max(seen) - before.used)


def _in_words(fields: dict[str, float | bool | str], missing: dict[str, str]) -> str:
    known = [f"{fields['tokens']:.0f} tokens"] if "tokens" in fields else []
    if "used_blocks" in fields and "expected_blocks" in fields:
        known.append(f"{fields['used_blocks']:.0f} blocks of {fields['expected_blocks']:.0f} expected")
    if "reclaim" in fields:
        known.append(f"{fields['reclaim']:.0%} reclaimed")
    if fields["error"]:
        return ", ".join([*known, str(fields["error"])])
    unknown = [missing[part] for part in ("tokens", "used_blocks") if part in missing]
    return ", ".join(known) + (f"; not known: {', '.join(unknown)}" if unknown else "")
