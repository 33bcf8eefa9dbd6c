"""What people read for a signal whose author gave it no label: the metric in words, and what is special about it."""

from __future__ import annotations

from typing import NamedTuple

from bot.domain.signals.signal import DURATION, Better
from bot.domain.signals.specs import (
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
)


class Shown(NamedTuple):
    label: str = ""
    better: Better = ""


METRICS = {
    "arrivals": Shown("Requests arriving"),
    "e2e_request_latency_seconds": Shown("Whole request", "lower"),
    "free_blocks": Shown("Free KV blocks", "higher"),
    "generation_tokens": Shown("Tokens generated", "higher"),
    "inter_token_latency_seconds": Shown("Time per token", "lower"),
    "kv_cache_usage_perc": Shown("KV cache in use", "lower"),
    "num_preemptions": Shown("Preemptions", "lower"),
    "num_requests_running": Shown("Requests running"),
    "num_requests_waiting": Shown("Requests waiting", "lower"),
    "request_decode_time_seconds": Shown("Decode time", "lower"),
    "request_generation_tokens": Shown("Answer length"),
    "request_prefill_time_seconds": Shown("Prefill time", "lower"),
    "request_prompt_tokens": Shown("Prompt length"),
    "request_queue_time_seconds": Shown("Time in the queue", "lower"),
    "request_success": Shown("Requests finished", "higher"),
    "time_to_first_token_seconds": Shown("First token", "lower"),
    "tokens": Shown("Tokens", "higher"),
    "usable_tokens": Shown("Tokens that fit into the KV cache", "higher"),
}
"""By the names that playbooks use; vLLM's own, without prefix and `_total`."""
RATIOS = {
    ("num_preemptions", "request_success"): Shown("Preemptions", "lower"),
    ("prefix_cache_hits", "prefix_cache_queries"): Shown("Prefix cache hits", "higher"),
}
PROBES = {
    "alert_again": "The alert again",
    "bad_replicas": "Bad replicas",
    "canary_edits": "Canary and its flags",
    "capacity": "Room for replicas",
    "colocated_pods": "Other pods beside it",
    "compression_method": "Compression method",
    "compression_since": "Compression since",
    "crash_scene": "Crashed replicas",
    "drain_mode": "How replicas drain",
    "engine_flags": "Engine flags",
    "flag_hygiene": "Risky flags",
    "gpu_fault": "GPU faults",
    "gpu_health": "Health of the nodes",
    "gpu_load": "GPU memory",
    "handed_out": "Patch that was handed out",
    "job_template": "Load test",
    "kv_budget": "KV pool",
    "kv_room": "Room in the KV pool",
    "last_good": "Last good revision",
    "last_words": "Last lines of the log",
    "limits": "Engine limits",
    "memory_trend": "GPU memory over time",
    "no_progress": "Replicas without progress",
    "other_actors": "Changes by others",
    "own_changes": "Changes in place",
    "owner": "Owner of the workload",
    "pressure_symptoms": "Early signs",
    "recent_rollout": "Last rollout",
    "recurrence": "Same trouble before",
    "replaced_before": "Replacements before",
    "request_lengths": "Lengths of requests",
    "restarts": "Restarts",
    "rollout_progress": "Rollout under way",
    "rotation": "Replicas in rotation",
    "served_config": "Configuration in force",
    "slow_part": "Slow part of a replica",
    "startup_log": "Start-up log",
    "thermal_scope": "GPU temperatures",
    "traffic": "Traffic against yesterday",
    "upstream": "Pending replicas and autoscaler",
    "warm_previous": "Replicas of before",
}
"""By the names of the probes."""
PART_UNITS = {
    **dict.fromkeys(("steady_for", "lived", "gateway_p99"), DURATION),
    **dict.fromkeys(("least_free", "least_free_day", "total", "host_room", "offloading", "swap"), "GiB"),
    "margin": "°C",
}
"""Units of the numbers in a probe's answer, by their names."""
CANARY, BEFORE, AVERAGE = " (canary)", " (before)", " (average replica)"


def words_for(spec: SignalSpec) -> Shown:
    """Returns its own label and direction, else those of its metric; empty for one that has none."""
    usual = _usual(spec)
    return Shown(spec.label or usual.label, spec.better or usual.better)


def _usual(spec: SignalSpec) -> Shown:
    match spec:
        case MetricSignal():
            found, words = METRICS.get(spec.metric, Shown()), ""
        case RatioSignal():
            found, words = RATIOS.get(spec.ratio, Shown()), ""
        case MeanSignal():
            found, words = METRICS.get(spec.mean, Shown()), ""
        case QuantileSignal():
            found, words = METRICS.get(spec.histogram, Shown()), f" p{spec.quantile * 100:g}"
        case ShareSignal():
            # A share above its target is worse, whatever is measured.
            found, words = METRICS.get(spec.histogram, Shown())._replace(better="lower"), " slower than its target"
        case ComparedSignal():
            found, words = _usual(spec.compared), " against before"
        case ProbeSignal():
            label = PROBES.get(spec.probe, "")
            return Shown(label + CANARY * bool(label and spec.of == "canary"))
        case _:
            return Shown()
    if not found.label:
        return Shown()
    of = CANARY if spec.of == "canary" else AVERAGE if getattr(spec, "across", "") == "avg" else ""
    return Shown(found.label + words + of + BEFORE * bool(spec.ending), found.better)
