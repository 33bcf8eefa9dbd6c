"""A signal is a named reading: a value, or `unknown` with its reason. Unknown is never 0 and never false."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal["number", "text", "flag", "by_replica"]
"""What an expression may do with a value: a number, a text, a boolean, or a number for each replica."""

Value = float | bool | str | dict[str, float]
SAME_LOOK_SECONDS = 15.0
"""The newest samples behind the readings of one look are that far apart at most."""


class Reading(BaseModel):
    """One answer to one question, with what a reader needs to check it."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: Value | None = None
    fields: dict[str, float | bool | str] = {}
    """A probe's named parts; a part that could not be read is absent, and `unknown_parts` says why."""
    unknown_parts: dict[str, str] = {}
    unknown: str = ""
    """Why nothing could be read; empty when something was."""
    by_replica: dict[str, float] = {}
    unit: str = ""
    source: str = ""
    query: str = ""
    at: float = 0.0
    """Epoch seconds of the newest sample behind the value."""
    window_seconds: float = 0.0
    detail: str = ""

    @property
    def is_known(self) -> bool:
        return not self.unknown

    @property
    def is_number(self) -> bool:
        """One plain number, and known."""
        return self.is_known and isinstance(self.value, float | int) and not isinstance(self.value, bool)


def unknown(name: str, reason: str, *, at: float, source: str = "") -> Reading:
    return Reading(name=name, unknown=reason, at=at, source=source)


def in_words(value: Value | None, unit: str = "") -> str:
    """A value as people read it; a share of something in percent, the highest of many replicas by name."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        if not value:
            return "none"
        highest = max(value, key=lambda replica: value[replica])
        return f"{in_words(value[highest], unit)} ({highest}, highest of {len(value)})"
    if unit == "ratio":
        return f"{value:.1%}" if value < 0.9995 else f"{value:.0%}"
    return _number(value) + (f" {unit}" if unit else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and 1000 <= abs(value) < 1e15 else f"{value:.3g}"


PROBES: dict[str, dict[str, Kind]] = {
    "restarts": {"count": "number", "oom": "flag", "crashed": "flag", "last_reason": "text"},
    "startup_log": {"oom_class": "text", "kv_tokens": "number", "version": "text", "backend": "text"},
    "recent_rollout": {
        "happened": "flag",
        "matters": "flag",
        "by_bot": "flag",
        "revision": "number",
        "previous_revision": "number",
        "summary": "text",
    },
    "engine_flags": {
        "max_num_seqs": "number",
        "version": "text",
        "kv_cache_dtype": "text",
        "shutdown_timeout": "number",
        "max_num_batched_tokens": "number",
    },
    "kv_budget": {"tokens": "number", "block_size": "number", "blocks": "number"},
    "gpu_health": {"healthy": "flag", "fault": "flag", "thermal": "flag", "detail": "text"},
    "gpu_fault": {
        **dict.fromkeys(("kind", "xids", "node", "gpu", "bus_id", "replica", "actors", "owners", "detail"), "text"),
        **dict.fromkeys(("xid", "here", "others_pods"), "number"),
        **dict.fromkeys(("remap_pending", "remap_failed", "others_act"), "flag"),
    },
    "thermal_scope": {
        **dict.fromkeys(("scope", "node", "zone", "replica", "where", "detail"), "text"),
        **dict.fromkeys(("nodes", "hottest", "margin", "rising", "power_brake", "ours"), "number"),
        "slowed": "flag",
    },
    "outside": {
        **dict.fromkeys(("pending", "router_errors", "gateway_p99", "replicas_before"), "number"),
        **dict.fromkeys(("at_max", "scaled_down"), "flag"),
        "detail": "text",
    },
    "rotation": {"in_rotation": "number", "ready": "number", "wanted": "number"},
    "drain_mode": {"mode": "text", "detail": "text"},
    "last_words": {
        **dict.fromkeys(("why", "line"), "text"),
        **dict.fromkeys(("oom", "host_oom", "died", "collective"), "flag"),
        **dict.fromkeys(("lines", "fits_tokens"), "number"),
    },
    "compression_method": {"kind": "text", "offloads": "flag", "evidence": "text"},
    "owner": {"managed": "flag", "tool": "text", "name": "text", "how": "text", "autoscaler": "text"},
    "last_good": {"found": "flag", "revision": "number", "is_current": "flag", "hours": "number", "summary": "text"},
    "traffic": {"arrivals_ratio": "number", "prompt_ratio": "number", "output_ratio": "number", "arrivals": "number"},
    "capacity": {"free_gpus": "number", "replicas_that_fit": "number"},
    # Hands on the workload.
    "rollout_progress": {"exists": "flag", "running": "flag"},
    "other_actors": {"acted": "flag", "who": "text"},
    "canary_edits": {"canary": "flag", "ready": "flag", "live": "flag"},
    "warm_previous": {"ready": "number"},
    # KV pressure.
    "kv_room": {
        "free_blocks": "number",
        "blocks_per_request": "number",
        "more_requests": "number",
        "concurrency": "number",
        "tail_waste": "number",
    },
    "request_lengths": {"longest": "number", "above": "number", "requests": "number"},
    "pressure_symptoms": {"count": "number", "signs": "text"},
    "no_progress": {"bad": "number", "worst": "text"},
    "gpu_load": {"least_free": "number", "least_free_day": "number", "total": "number", "compute": "number"},
    "limits": {
        "utilization": "number",
        "sizes_by_utilization": "flag",
        "max_model_len": "number",
        "prefix_caching": "flag",
        "chunked_prefill": "flag",
        "output_cap": "number",
        "generation_config": "flag",
        "offloading": "number",
        "ranks": "number",
        "active_cap": "number",
        "v0": "flag",
        "host_room": "number",
        "bytes_per_token": "number",
        "missing": "text",
    },
    # Crashes.
    "crash_scene": {
        **dict.fromkeys(("crashed", "ready", "steady_for", "lived", "exit_code", "oldest_hours"), "number"),
        **dict.fromkeys(("only_new", "serving"), "flag"),
        "oldest": "text",
    },
    "neighbours": {"leaving": "number", "others": "number", "who": "text"},
    "memory_trend": {
        **dict.fromkeys(("free_per_day", "free_fit", "host_per_day", "host_fit", "taken"), "number"),
        "leaks": "flag",
    },
    "flag_hygiene": {
        **dict.fromkeys(("removed", "ignored", "no_op", "risky"), "text"),
        **dict.fromkeys(("count", "gpus_per_replica"), "number"),
        **dict.fromkeys(("expandable", "expandable_fits"), "flag"),
    },
    # A compression, and what it was judged on.
    "compression_since": {
        "by": "text",
        "hours": "number",
        "same_image": "flag",
        "changed": "text",
        "revision": "number",
    },
    "served_config": {"digest": "text", "image": "text", "model": "text"},
    # The bot's own closed incidents.
    "recurrence": {"count": "number", "incidents": "text"},
    "replaced_before": {"count": "number", "node": "text"},
}
"""Every probe with its parts and their kinds: expressions are checked against this table when a playbook is loaded."""


def result_in_words(reading: Reading) -> str:
    """Every part that says something, then what is not known and why."""
    if not reading.is_known:
        return f"unknown: {reading.unknown}"
    known = [f"{name.replace('_', ' ')}: {in_words(value)}" for name, value in reading.fields.items() if value != ""]
    return "; ".join([*known, *(f"{name}: unknown ({why})" for name, why in reading.unknown_parts.items())])
