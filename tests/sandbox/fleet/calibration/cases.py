"""What is compared: loads with their figures, and ends with their exit codes and log lines. Speeds are not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from prometheus_client.parser import text_string_to_metric_families

from bot.probes.engine.log_lines import last_words
from bot.sandbox.fleet.pod_spec import PodSpec
from bot.sandbox.fleet.workload import Load

FLAGS = ("--served-model-name=tiny-llama", "--max-model-len=2048", "--block-size=32")
POOL = "--num-gpu-blocks-override=128"
SEQS = "--max-num-seqs=64"
POOL_TOKENS = 127 * 32
"""Without the null block."""


@dataclass(frozen=True)
class LoadCase:
    name: str
    workers: int
    flags: tuple[str, ...] = (POOL, SEQS)
    pause_seconds: float = Load().pause_seconds
    """Zero where few clients compete: how many of them pause depends on the speed, which is not compared."""

    @property
    def load(self) -> Load:
        return Load(workers=self.workers, pause_seconds=self.pause_seconds)


@dataclass(frozen=True)
class EndCase:
    name: str
    flags: tuple[str, ...] = (POOL, SEQS, "--shutdown-timeout=20")
    streams: int = 0
    """In flight when it happens."""
    by: str = "start"
    """`start`: it does not start. `term`: SIGTERM. Else the cause of its death."""


LOADS = (
    LoadCase("healthy", 4),
    LoadCase("thrash", 48),
    LoadCase("capped at 6", 48, (POOL, "--max-num-seqs=6")),
    LoadCase("capped at 6 active", 48, (POOL, SEQS, "--max-num-active-seqs=6")),
    LoadCase("watermark of a fifth", 48, (POOL, SEQS, "--watermark=0.2")),
    # The pool of the one bad replica in the demo, at its share of the clients.
    LoadCase("small pool", 6, ("--num-gpu-blocks-override=32", "--max-model-len=992", SEQS), pause_seconds=0.0),
    LoadCase("queue of 8", 48, (POOL, SEQS, "--max-num-queued-reqs=8")),
)
ENDS = (
    EndCase("unknown flag", (POOL, "--swap-space=4")),
    EndCase("rejected configuration", (POOL, SEQS, "--max-num-batched-tokens=32")),
    EndCase("pool too small", ("--num-gpu-blocks-override=60",)),
    EndCase("engine killed", streams=20, by="engine_killed"),
    EndCase("worker killed", streams=20, by="worker_killed"),
    EndCase("drained", streams=20, by="term"),
)


def spec_of(name: str, flags: Sequence[str], port: int = 8000) -> PodSpec:
    """The container of the demo's Deployment, with these flags."""
    return PodSpec(
        namespace="serving",
        name=name.replace(" ", "-"),
        uid="0",
        node="gpu-node-1",
        container="vllm",
        image="vllm/vllm-openai:v0.32.0",
        argv=("vllm", "serve", "tiny-llama", *FLAGS, *flags),
        port=port,
        pre_stop_seconds=0.0,
        grace_seconds=60.0,
        gpus=1,
        all_containers=(("vllm", "vllm/vllm-openai:v0.32.0"),),
    )


@dataclass(frozen=True)
class Figures:
    """Of one replica over a while: means of scrapes, and quotients of what counters rose by."""

    usage_mean: float
    usage_p90: float
    running_mean: float
    waiting_mean: float
    tokens_per_running: float
    """Tokens of KV that one running request holds."""
    preemptions_per_finished: float
    prompt_tokens_mean: float
    output_tokens_mean: float
    computed_prompt_tokens_mean: float
    """Tokens of a finished request's prompt that did not come from the prefix cache."""
    prefix_hit_ratio: float
    rejected_per_finished: float
    finished: float

    def as_json(self) -> dict[str, float]:
        return {field.name: round(getattr(self, field.name), 4) for field in fields(self)}


Page = Mapping[str, float]
"""Sums over labels by the sample's name; buckets and `_created` left out."""


def page_of(text: str) -> Page:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def figures_of(pages: Sequence[Page], blocks: int) -> Figures:
    """`blocks`: of the pool, with the null block."""
    first, last = pages[0], pages[-1]
    usage = sorted(page["vllm:kv_cache_usage_perc"] for page in pages)
    running = _mean([page["vllm:num_requests_running"] for page in pages])
    finished = _rise(first, last, "vllm:request_success_total")

    def mean_of(histogram: str) -> float:
        return _rise(first, last, f"{histogram}_sum") / max(1.0, _rise(first, last, f"{histogram}_count"))

    return Figures(
        usage_mean=_mean(usage),
        usage_p90=usage[int(0.9 * (len(usage) - 1))],
        running_mean=running,
        waiting_mean=_mean([page["vllm:num_requests_waiting"] for page in pages]),
        tokens_per_running=_mean(usage) * (blocks - 1) * 32 / max(running, 1e-9),
        preemptions_per_finished=_rise(first, last, "vllm:num_preemptions_total") / max(1.0, finished),
        prompt_tokens_mean=mean_of("vllm:request_prompt_tokens"),
        output_tokens_mean=mean_of("vllm:request_generation_tokens"),
        computed_prompt_tokens_mean=mean_of("vllm:request_prefill_kv_computed_tokens"),
        prefix_hit_ratio=_rise(first, last, "vllm:prefix_cache_hits_total")
        / max(1.0, _rise(first, last, "vllm:prefix_cache_queries_total")),
        rejected_per_finished=_rise(first, last, "vllm:admission_rejections_total") / max(1.0, finished),
        finished=finished,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rise(first: Page, last: Page, name: str) -> float:
    return last.get(name, 0.0) - first.get(name, 0.0)


def blocks_of(case: LoadCase) -> int:
    return int(next(flag for flag in case.flags if flag.startswith("--num-gpu-blocks")).partition("=")[2])


@dataclass(frozen=True)
class End:
    """How a container ended."""

    exit_code: int
    why: str
    """The bot's class of the whole log."""
    lines: int
    """How many lines followed the event."""
    messages: tuple[str, ...]
    """The distinct messages, without processes, times, places and numbers, and without tracebacks."""
    length: int = 0
    cut: int = 0
    """How many streams got all their tokens, and how many did not."""


_HEAD = re.compile(r"^(?:\((?:\w|-|=| )+\) )?(?:(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[^]]+\] ?)?")
_ACCESS = re.compile(r'^INFO: +\S+:\d+ - "')


_MACHINE = re.compile(r"nanobind|leaked|site-packages|LD_PRELOAD|NUMA|ulimit|Triton|triton|OMP|OpenMP|^\t")
"""Of this machine, and not of vLLM."""
MAX_LETTERS = 160


def messages_of(log: str) -> tuple[str, ...]:
    found = {_HEAD.sub("", line).rstrip() for line in log.splitlines() if not _ACCESS.match(line)}
    plain = {re.sub(r"\d[\d,.]*", "N", message) for message in found}
    kept = {one[:MAX_LETTERS] for one in plain if not one.startswith(" ") and not _MACHINE.search(one)}
    return tuple(sorted(kept - {""}))


def end_of(exit_code: int, log: str, before: int = 0, reasons: Sequence[str | None] = ()) -> End:
    """`before`: the lines of the log before the event."""
    after = log.splitlines()[before:]
    return End(
        exit_code=exit_code,
        why=last_words(log).why,
        lines=len(after),
        messages=messages_of("\n".join(after)),
        length=sum(reason == "length" for reason in reasons),
        cut=sum(reason != "length" for reason in reasons),
    )
