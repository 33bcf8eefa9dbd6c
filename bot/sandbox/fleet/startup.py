"""The start of a vLLM container: the engine it would run, or the lines and the exit code of its failure.

Lines, checks and exit codes follow captures of vLLM 0.32 (argparse 2, configuration and KV size 1). The GPU is
simulated as an 80 GB one, so the lines about it are taken from the source and not from a capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil

from bot.sandbox.fleet.compaction import compaction_of, is_active
from bot.sandbox.fleet.engine import EngineLimits
from bot.sandbox.fleet.serve_flags import ServeFlags, UsageError, parse_serve

MODEL_MAX_LEN = 2048
GPU_GIB = 79.1
WEIGHTS_AND_ACTIVATIONS_GIB = 2.4
KV_BYTES_PER_TOKEN = 2048
"""The captured tiny-llama in bf16."""

BANNER = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
    "  █▄█▀ █     █     █     █  model   {model}",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)
ROUTES = (
    "/load, Methods: GET",
    "/version, Methods: GET",
    "/health, Methods: GET",
    "/metrics, Methods: GET",
    "/v1/models, Methods: GET",
    "/v1/completions, Methods: POST",
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; the time is added when it is written."""

    text: str
    process: str = ""
    level: str = "INFO"
    where: str = ""

    def written(self, now: float) -> str:
        if not self.process:
            return self.text
        at = datetime.fromtimestamp(now, UTC).strftime("%m-%d %H:%M:%S")
        return f"({self.process}) {self.level} {at} [{self.where}] {self.text}"


def api(where: str, text: str, level: str = "INFO") -> LogLine:
    return LogLine(text, "APIServer pid=1", level, where)


def core(where: str, text: str, level: str = "INFO") -> LogLine:
    return LogLine(text, "EngineCore pid=118", level, where)


@dataclass(frozen=True, slots=True)
class Started:
    """A server that starts: `early` is logged at once, `late` when it listens."""

    served_name: str
    model: str
    version: str
    limits: EngineLimits
    shutdown_timeout: float
    cache_config: Mapping[str, str]
    early: tuple[LogLine, ...]
    late: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A server that fails to start; it exits after `share` of the usual start-up time."""

    exit_code: int
    share: float
    lines: tuple[LogLine, ...]


class ConfigError(Exception):
    """pydantic would reject this configuration: class name and the lines of its report, exit code 1."""

    def __init__(self, config: str, *faults: str) -> None:
        super().__init__(config)
        count = len(faults)
        head = f"{count} validation error{'s' if count > 1 else ''} for {config}"
        self.lines = (
            "Traceback (most recent call last):",
            '  File "/usr/local/bin/vllm", line 8, in <module>',
            "    sys.exit(main())",
            f"pydantic_core._pydantic_core.ValidationError: {head}",
            *(line for fault in faults for line in fault.split("\n")),
        )


@dataclass(frozen=True, slots=True)
class Installed:
    """What the command line does not contain: the image, which may bring a plugin, and the variables."""

    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def plan_start(
    argv: list[str], version: str, port: int = 8000, *, installed: Installed = Installed()
) -> Started | Failed:
    """Decides how this command line would start, without starting anything."""
    try:
        flags = parse_serve(argv)
    except UsageError as error:
        return Failed(2, 0.35, tuple(LogLine(line) for line in error.lines))
    greeting = _greeting(flags, version)
    try:
        limits = _limits(flags, installed)
    except ConfigError as error:
        return Failed(1, 0.4, (*greeting, *(LogLine(line) for line in error.lines)))
    impossible = _unsupported_block_size(limits) or _too_small(limits)
    if impossible:
        begun = (*greeting, *_engine_lines(flags, version), *_pool_lines(flags, limits))
        return Failed(1, 1.0, (*begun, *_engine_failure(impossible)))
    listening = api("entry.py:140", f"Starting vLLM server on http://0.0.0.0:{port}")
    return Started(
        served_name=_served_name(flags),
        model=flags.get("model", "Qwen/Qwen3-0.6B"),
        version=version,
        limits=limits,
        shutdown_timeout=float(flags.get("shutdown_timeout", 0)),
        cache_config=cache_config(flags, limits),
        early=(*greeting, *_plugin_lines(installed), *_engine_lines(flags, version)),
        late=(*_kv_lines(flags, limits), *_serving_lines(listening)),
    )


# The engine that the flags describe


def _limits(flags: ServeFlags, installed: Installed) -> EngineLimits:
    max_model_len = flags.get("max_model_len", MODEL_MAX_LEN)
    max_model_len = MODEL_MAX_LEN if max_model_len == -1 else max_model_len
    _check_model_len(max_model_len)
    block_size = flags.get("block_size", 16)
    _check_cache(flags.get("gpu_memory_utilization", 0.92), block_size)
    seqs = flags.get("max_num_seqs", 1024)
    batched = flags.get("max_num_batched_tokens", max(8192, seqs))
    active = flags.get("max_num_active_seqs")
    watermark = flags.get("watermark", 0.0)
    prefix_caching = flags.get("enable_prefix_caching", True)
    _check_scheduler(seqs, batched, active, watermark)
    return EngineLimits(
        blocks=flags.get("num_gpu_blocks_override") or _blocks_from_memory(flags, block_size),
        block_size=block_size,
        max_num_seqs=seqs,
        max_num_active_seqs=active,
        max_num_batched_tokens=batched,
        max_num_queued_reqs=flags.get("max_num_queued_reqs"),
        watermark=watermark,
        prefix_caching=prefix_caching,
        max_model_len=max_model_len,
        offloads=bool(flags.get("kv_offloading_size")),
        compaction=compaction_of(installed.image, installed.env, prefix_caching=prefix_caching),
    )


def kv_bytes(flags: ServeFlags) -> int:
    given = flags.get("kv_cache_memory_bytes")
    if given is not None:
        return int(given)
    gib = GPU_GIB * flags.get("gpu_memory_utilization", 0.92) - WEIGHTS_AND_ACTIVATIONS_GIB
    return int(gib * 1024**3)


def _blocks_from_memory(flags: ServeFlags, block_size: int) -> int:
    quantised = "8" in flags.get("kv_cache_dtype", "auto")
    per_token = KV_BYTES_PER_TOKEN // 2 if quantised else KV_BYTES_PER_TOKEN
    return max(0, kv_bytes(flags) // (per_token * block_size))


def _check_model_len(max_model_len: int) -> None:
    if max_model_len > MODEL_MAX_LEN:
        raise ConfigError(
            "ModelConfig",
            f"  Value error, User-specified max_model_len ({max_model_len}) is greater than the derived "
            f"max_model_len (max_position_embeddings={MODEL_MAX_LEN}.0 or model_max_length=None in model's "
            "config.json). To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        )
    if max_model_len < 1:
        raise ConfigError("ModelConfig", _out_of_range("max_model_len", "greater than or equal to 1", max_model_len))


def _check_cache(utilization: float, block_size: int) -> None:
    faults: list[str] = []
    if utilization > 1:
        faults.append(_out_of_range("gpu_memory_utilization", "less than or equal to 1", utilization))
    if utilization <= 0:
        faults.append(_out_of_range("gpu_memory_utilization", "greater than 0", utilization))
    if block_size <= 0:
        faults.append(_out_of_range("block_size", "greater than 0", block_size))
    if faults:
        raise ConfigError("CacheConfig", *faults)


def _check_scheduler(seqs: int, batched: int, active: int | None, watermark: float) -> None:
    faults: list[str] = []
    if seqs < 1:
        faults.append(_out_of_range("max_num_seqs", "greater than or equal to 1", seqs))
    if batched < 1:
        faults.append(_out_of_range("max_num_batched_tokens", "greater than or equal to 1", batched))
    if active is not None and active < 1:
        faults.append(_out_of_range("max_num_active_seqs", "greater than or equal to 1", active))
    if watermark >= 1 or watermark < 0:
        bound = "less than 1" if watermark >= 1 else "greater than or equal to 0"
        faults.append(_out_of_range("watermark", bound, watermark))
    if not faults and batched < seqs:
        faults.append(
            _rule(f"max_num_batched_tokens ({batched}) must be greater than or equal to max_num_seqs ({seqs}).")
        )
    if not faults and active is not None and active > seqs:
        faults.append(_rule(f"max_num_active_seqs ({active}) cannot be greater than max_num_seqs ({seqs})."))
    if faults:
        raise ConfigError("SchedulerConfig", *faults)


def _out_of_range(field: str, bound: str, value: float) -> str:
    words = bound.rsplit(" ", 1)[0].replace(" or ", " ").replace(" to", "")
    kind = words.replace(" than", "_than").replace(" ", "_")
    return f"{field}\n  Input should be {bound} [type={kind}, input_value={value}, input_type={type(value).__name__}]"


def _rule(text: str) -> str:
    return f"  Value error, {text} [type=value_error, input_value=ArgsKwargs((), {{...}}), input_type=ArgsKwargs]"


def _unsupported_block_size(limits: EngineLimits) -> str | None:
    """FlashAttention requires multiples of 16. The wording is a guess: no capture shows a GPU refusing one."""
    if limits.block_size % 16 == 0:
        return None
    return "No valid attention backend found for cuda. Reasons: {FLASH_ATTN: [block_size not supported]}."


def _too_small(limits: EngineLimits) -> str | None:
    """One request of the longest length must fit into the usable blocks, or vLLM does not start."""
    if limits.blocks <= 1:
        return (
            "No available memory for the cache blocks. "
            "Try increasing `gpu_memory_utilization` when initializing the engine (this flag also controls CPU memory "
            "reservation on the CPU backend, despite its name). "
            "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        )
    if limits.usable_blocks >= ceil(limits.max_model_len / limits.block_size):
        return None
    gib = KV_BYTES_PER_TOKEN / 1024**3
    needed = round(limits.max_model_len * gib, 2)
    available = round(limits.usable_blocks * limits.block_size * gib, 2)
    return (
        f"To serve at least one request with the model's max seq len ({limits.max_model_len}), "
        f"({needed} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({available} GiB). Based on the available memory, the estimated maximum model length is "
        f"{limits.usable_blocks * limits.block_size}. Try increasing `gpu_memory_utilization` (which also controls CPU "
        "memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    )


# What it logs


def _served_name(flags: ServeFlags) -> str:
    names = flags.get("served_model_name")
    return str(names[0]) if names else str(flags.get("model", "Qwen/Qwen3-0.6B"))


def _greeting(flags: ServeFlags, version: str) -> tuple[LogLine, ...]:
    model = flags.get("model", "Qwen/Qwen3-0.6B")
    banner = (line.format(version=version, model=model) for line in BANNER)
    chunked, batched = "Chunked prefill is enabled with max_num_batched_tokens", flags.get("max_num_batched_tokens")
    return (
        *(api("api_utils.py:347", line) for line in banner),
        api("api_utils.py:286", f"non-default args: {dict(flags.non_default)}"),
        api("model.py:733", "Resolved architecture: LlamaForCausalLM"),
        api("model.py:2152", f"Using max model len {flags.get('max_model_len', MODEL_MAX_LEN)}"),
        *((api("scheduler.py:307", f"{chunked}={batched}."),) if batched else ()),
    )


def _engine_lines(flags: ServeFlags, version: str) -> tuple[LogLine, ...]:
    cache_dtype = flags.get("kv_cache_dtype", "auto")
    caching = flags.get("enable_prefix_caching", True)
    backend = flags.get("attention_backend")
    chosen = (
        f"Using {backend} backend."
        if backend
        else "Using FLASH_ATTN attention backend out of potential backends: "
        "['FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION']."
    )
    quantised = api(
        "cache.py:361",
        f"Using {cache_dtype} data type to store kv cache. It reduces the GPU memory footprint and boosts the "
        "performance. Meanwhile, it may cause accuracy drop without a proper scaling factor",
    )
    return (
        *((quantised,) if cache_dtype != "auto" else ()),
        core(
            "core.py:133",
            f"Initializing a V1 LLM engine (v{version}) with config: model={flags.get('model')!r}, "
            f"speculative_config=None, dtype=torch.bfloat16, max_seq_len={flags.get('max_model_len', MODEL_MAX_LEN)}, "
            f"tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, "
            f"kv_cache_dtype={cache_dtype}, device_config=cuda, seed=0, served_model_name={_served_name(flags)}, "
            f"enable_prefix_caching={caching}, enable_chunked_prefill=True",
        ),
        core("parallel_state.py:1906", "world_size=1 rank=0 local_rank=0 backend=nccl"),
        core("cuda.py:417", chosen),
    )


def _plugin_lines(installed: Installed) -> tuple[LogLine, ...]:
    if not is_active(installed.image, installed.env):
        return ()
    activated = "[TriAttention] Runtime (V2) plugin activated: patch_scheduler=True patch_worker=True"
    return (core("plugin.py:96", activated),)


def _pool_lines(flags: ServeFlags, limits: EngineLimits) -> tuple[LogLine, ...]:
    """The memory for the pool, and what replaces it; logged before the engine checks whether it is enough."""
    override = flags.get("num_gpu_blocks_override")
    profiled = _blocks_from_memory(flags, limits.block_size)
    overriding = core(
        "kv_cache_utils.py:2619",
        f"Overriding num_gpu_blocks={profiled} with num_gpu_blocks_override={override}",
    )
    available = core("gpu_worker.py:498", f"Available KV cache memory: {kv_bytes(flags) / 1024**3:.2f} GiB")
    return (available, overriding) if override else (available,)


def _kv_lines(flags: ServeFlags, limits: EngineLimits) -> tuple[LogLine, ...]:
    tokens = limits.blocks * limits.block_size
    return (
        *_pool_lines(flags, limits),
        core(
            "kv_cache_utils.py:2327",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {limits.max_model_len:,} tokens "
            f"per request: {tokens / limits.max_model_len:.2f}x",
        ),
        core("core.py:402", "init engine (profile, create kv cache, warmup model) took 1.93 s"),
    )


def _serving_lines(listening: LogLine) -> tuple[LogLine, ...]:
    return (
        api("entry.py:136", "Supported tasks: ['generate']"),
        listening,
        api("launcher.py:186", "Available routes are:"),
        *(api("launcher.py:195", f"Route: {route}") for route in ROUTES),
        LogLine("INFO:     Started server process [1]"),
        LogLine("INFO:     Waiting for application startup."),
        LogLine("INFO:     Application startup complete."),
    )


def _engine_failure(reason: str) -> tuple[LogLine, ...]:
    where = "core.py:1510"
    return (
        core(where, "EngineCore failed to start.", "ERROR"),
        core(where, "Traceback (most recent call last):", "ERROR"),
        core(where, "    kv_cache_config = self._initialize_kv_caches(vllm_config)", "ERROR"),
        core(where, f"ValueError: {reason}", "ERROR"),
        LogLine("Traceback (most recent call last):"),
        LogLine('  File "/usr/local/bin/vllm", line 8, in <module>'),
        LogLine("    sys.exit(main())"),
        LogLine(
            "RuntimeError: Engine core initialization failed. See root cause above. "
            "Failed core proc(s): {'EngineCore': 1}"
        ),
    )


def cache_config(flags: ServeFlags, limits: EngineLimits) -> dict[str, str]:
    """The labels of vllm:cache_config_info without `engine`; every field is text, unset ones are `None`."""
    tokens = limits.blocks * limits.block_size
    given_bytes = flags.get("kv_cache_memory_bytes")
    return {
        "_block_size_resolved": "True",
        "block_size": str(limits.block_size),
        "cache_dtype": str(flags.get("kv_cache_dtype", "auto")),
        "cache_hit_alignment_tokens": "None",
        "effective_attention_block_size": str(limits.block_size),
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": str(limits.prefix_caching),
        "gpu_memory_utilization": str(flags.get("gpu_memory_utilization", 0.92)),
        "hash_block_size": "None",
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_layout": "None",
        "kv_cache_max_concurrency": str(tokens / limits.max_model_len),
        "kv_cache_memory_bytes": str(given_bytes),
        "kv_cache_size_tokens": str(tokens),
        "kv_offloading_backend": str(flags.get("kv_offloading_backend", "native")),
        "kv_offloading_size": str(flags.get("kv_offloading_size")),
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(limits.blocks),
        "num_gpu_blocks_override": str(flags.get("num_gpu_blocks_override")),
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": str(flags.get("prefix_caching_hash_algo", "sha256")),
        "prefix_match_unit": "None",
        "replayssm_buffer_len": "16",
        "skip_page_size_padded": "None",
        "sliding_window": "None",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": str("block_size" in flags.given),
    }
