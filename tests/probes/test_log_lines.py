"""Why an engine ended, by the exact lines of real logs; lines of GPU servers are as their source writes them."""

from pathlib import Path

import pytest

from bot.domain.kernel.redaction import MASK
from bot.probes.engine.log_lines import CUDA_OOM, OomClass, last_words, plain, redacted, start_lines

pytestmark = pytest.mark.fast

ENDS: dict[str, OomClass] = {
    "startup_cases/F_failed_start_max_model_len_4096": "model_len",
    "startup_cases/active_seqs_gt_seqs": "bad_config",
    "startup_cases/batched_tokens_lt_seqs": "bad_config",
    "startup_cases/block_size_8": "model_len",
    "startup_cases/blocks_override_too_small": "model_len",
    "startup_cases/config_yaml_and_env": "none",
    "startup_cases/equals_form": "none",
    "startup_cases/gpu_mem_util_over_1": "bad_config",
    "startup_cases/kv_bytes_negative": "no_kv_room",
    "startup_cases/kv_dtype_auto_16M": "none",
    "startup_cases/kv_dtype_bad": "bad_flag",
    "startup_cases/kv_dtype_fp8_16M": "none",
    "startup_cases/kv_too_small_for_max_model_len": "model_len",
    "startup_cases/max_model_len_over_model": "bad_config",
    "startup_cases/max_num_seqs_zero": "bad_config",
    "startup_cases/removed_flag_disable_log_requests": "bad_flag",
    "startup_cases/removed_flag_swap_space": "bad_flag",
    "startup_cases/underscore_flags": "none",
    "startup_cases/unknown_flag_on_the_fly": "bad_flag",
    "startup_cases/v0.11.0_omp_bind_unsupported": "start_failed",
    "startup_cases/vllm_attention_backend_flag": "none",
    "startup_cases/watermark_1": "bad_config",
    "crash_bad_block_size": "start_failed",
    "E_queue_limit_503": "none",
    "I_dev_mode_endpoints": "none",
}


def log_of(captures: Path, case: str) -> str:
    return (captures / case / "server.log").read_text(errors="replace")


@pytest.mark.parametrize(("case", "why"), ENDS.items(), ids=list(ENDS))
def test_each_captured_start_ends_for_its_own_reason(captures: Path, case: str, why: OomClass) -> None:
    found = last_words(log_of(captures, case))
    assert found.why == why
    assert (found.line == "") == (why == "none")


def test_no_captured_start_is_missing_from_the_table(captures: Path) -> None:
    cases = {f"startup_cases/{path.name}" for path in (captures / "startup_cases").iterdir() if path.is_dir()}
    assert cases <= ENDS.keys()


@pytest.mark.parametrize("case", ["default_timeout_0", "shutdown_timeout_60", "socket_holder"])
def test_an_engine_that_was_asked_to_stop_did_not_die(captures: Path, case: str) -> None:
    assert last_words(log_of(captures, f"H_sigterm/{case}")).why == "none"


STARTS_ON_A_CPU = """\
(APIServer pid=13822) WARNING 11-22 15:57:12 [system_utils.py:255] Found ulimit of 20000 and failed to automatically \
increase with error current limit exceeds maximum limit. This can cause fd limit errors like `OSError: [Errno 24] Too \
many open files`. Consider increasing with ulimit -n
(APIServer pid=13822) WARNING 11-22 15:57:18 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, \
and JIT kernel warmup. This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none
[W1122 15:58:02.026190400 utils.cpp:68] Warning: NUMA binding: Using MEMBIND policy for memory allocation on the NUMA \
nodes (0). Memory allocations will be strictly bound to these NUMA nodes. (function initCPUThreadsEnv)
INFO:     Application startup complete.
"""
KILLED_CORE = f"""\
{STARTS_ON_A_CPU}\
(APIServer pid=13822) WARNING 11-22 15:58:51 [core_client.py:817] [shutdown] MPClient: engine core exited \
unexpectedly; starting cleanup
(APIServer pid=13822) ERROR 11-22 15:58:51 [async_llm.py:906] AsyncLLM output_handler failed.
(APIServer pid=13822) ERROR 11-22 15:58:51 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
INFO:     Shutting down
INFO:     Application shutdown complete.
"""
OOM_IN_A_STEP = """\
INFO:     Application startup complete.
(EngineCore pid=16084) ERROR 11-22 16:00:45 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=16084) ERROR 11-22 16:00:45 [core.py:1512] torch.OutOfMemoryError: CUDA out of memory. Tried to \
allocate 2.19 GiB. GPU 0 has a total capacity of 79.11 GiB
(APIServer pid=15441) ERROR 11-22 16:00:45 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
INFO:     Shutting down
INFO:     Application shutdown complete.
"""


KILLED_WORKER = f"""\
{STARTS_ON_A_CPU}\
(EngineCore pid=13878) ERROR 11-24 15:46:05 [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly \
(exit code: -9), shutting down executor.
(EngineCore pid=13878) ERROR 11-24 15:46:05 [dump_input.py:72] Dumping input data for V1 LLM engine (v0.32.0) with \
config: model='tiny-llama', quantization=None, device_config=cpu, gpu_memory_utilization=0.92
(EngineCore pid=13878) ERROR 11-24 15:46:05 [dump_input.py:79] Dumping scheduler output for model execution: \
SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=cmpl-86065800d4943d06-0-87dce118,prompt_token_ids_len=90)]
(EngineCore pid=13878) ERROR 11-24 15:46:05 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=13878) ERROR 11-24 15:46:05 [core.py:1512] RuntimeError: cancelled
(APIServer pid=13777) ERROR 11-24 15:46:05 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
INFO:     Application shutdown complete.
resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up
"""


@pytest.mark.parametrize(("log", "why"), [(KILLED_CORE, "engine_died"), (OOM_IN_A_STEP, "serving")])
def test_an_api_server_that_ends_in_good_order_does_not_hide_why_its_engine_died(log: str, why: str) -> None:
    """Lines of vLLM 0.32, whose process ended with exit code 0 both times."""
    found = last_words(log)
    assert (found.why, found.stop_requested) == (why, False)


def test_a_killed_engine_left_no_stack_trace_so_the_line_that_noticed_its_end_is_the_evidence() -> None:
    found = last_words(KILLED_CORE)
    assert found.line == "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"
    assert [line.partition("] ")[2][:30] for line in found.evidence] == [
        "[shutdown] MPClient: engine co",
        "vllm.v1.engine.exceptions.Engi",
    ]


def test_what_a_dying_engine_dumps_of_its_requests_is_not_kept() -> None:
    found = last_words(KILLED_WORKER)
    assert (found.why, found.line[:44]) == (
        "engine_died",
        "Worker proc VllmWorker-0 died unexpectedly (",
    )
    assert [line.partition("] ")[2][:20] for line in found.evidence] == [
        "Worker proc VllmWork",
        "EngineCore encounter",
        "RuntimeError: cancel",
        "vllm.v1.engine.excep",
    ]


def test_an_engine_that_starts_on_a_cpu_says_nothing_about_its_death() -> None:
    assert last_words(STARTS_ON_A_CPU).evidence == ()


def test_an_engine_that_got_a_signal_says_so(captures: Path) -> None:
    assert last_words(log_of(captures, "H_sigterm/default_timeout_0")).stop_requested is True


SERVES = "INFO:     Application startup complete."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"


@pytest.mark.parametrize(
    ("log", "why"),
    [
        pytest.param(f"ERROR Failed to load model - not enough GPU memory. Try …\n{OOM}", "weights", id="load"),
        pytest.param(
            f"{OOM}\nRuntimeError: CUDA out of memory occurred when warming up sampler", "warm_up", id="warm-up"
        ),
        pytest.param(f"Capturing CUDA graphs\n{OOM}", "start_up", id="graph-capture"),
        pytest.param(f"INFO:     Application startup complete.\n{OOM}\nEngineDeadError", "serving", id="mid-serve"),
        pytest.param(
            "ValueError: Free memory on device cuda:0 (12.3/79.1 GiB) on startup is less than desired GPU memory"
            " utilization (0.92, 72.8 GiB).",
            "other_tenant",
            id="other-tenant",
        ),
        pytest.param(
            "AssertionError: Error in memory profiling. Initial free memory 58.23 GiB, current free memory 59.34 GiB.",
            "other_tenant",
            id="other-tenant-frees",  # vllm/v1/worker/gpu_worker.py of 0.32; vllm#56830
        ),
        pytest.param(
            "ValueError: Free memory on device cuda:0 (12.3/79.1 GiB) on startup is less than the engine's budget after"
            " excluding external process's weights (0.92, 72.8 GiB).",
            "other_tenant",
            id="other-tenant-external-weights",  # vllm/v1/worker/utils.py of 0.32
        ),
        pytest.param(
            f"{OOM}\nRuntimeError: CUDA out of memory occurred when warming up pooler (task='embed') with 256 dummy"
            " requests.",
            "warm_up",
            id="warm-up-pooler",  # vllm/v1/worker/gpu/pool/pooling_runner.py of 0.32
        ),
        pytest.param(
            "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
            "no_kv_room",
            id="auto-fit",  # vllm/v1/core/kv_cache_utils.py of 0.32
        ),
        pytest.param(
            "RuntimeError: Worker failed with error 'max_num_seqs (1024) exceeds available Mamba cache blocks (600)."
            " Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed.'",
            "too_many_seqs",
            id="mamba",  # vllm/config/compilation.py of 0.32; vllm#49064
        ),
        pytest.param("RuntimeError: CUDA error: out of memory", "start_up", id="graph-capture-error"),  # vllm#19186
        pytest.param(f"{SERVES}\ntorch.AcceleratorError: CUDA error: out of memory", "serving", id="mid-serve-error"),
        pytest.param("Last error:\nCuda failure 2 'out of memory'", "start_up", id="nccl-oom"),
        pytest.param(
            "[0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ewjreo (size"
            " 33030528), error: No space left on device (28)\nEngineCore failed to start",
            "host_memory",
            id="shm-nccl",  # llm-d#352
        ),
        pytest.param(
            "RuntimeError: Insufficient space in /dev/shm for CPU KV offload shared region in /dev/shm: 65536 MiB"
            " required, 64 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host).",
            "host_memory",
            id="shm-offload",  # vllm/distributed/device_communicators/shm_broadcast.py of 0.32
        ),
        pytest.param(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory:"
            " you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
            "host_memory",
            id="host",
        ),
        pytest.param(
            f"{SERVES}\nERROR EngineCore encountered a fatal error.\ntorch.AcceleratorError: CUDA error:"
            " uncorrectable ECC error encountered",
            "device",
            id="ecc",  # vllm#5222
        ),
        pytest.param("RuntimeError: Worker proc VllmWorker-1 died unexpectedly", "engine_died", id="worker"),
        # The next four: vllm/v1/utils.py, vllm/v1/executor/ray_executor_v2.py and vllm/v1/engine/utils.py of 0.32.
        pytest.param(
            "RuntimeError: Engine core process EngineCore_DP1 died unexpectedly.", "engine_died", id="core-of-several"
        ),
        pytest.param(
            "RuntimeError: Process ApiServer_1 (PID: 77) died with exit code -9", "engine_died", id="api-server"
        ),
        pytest.param("RayWorkerProc rank=3 died unexpectedly, shutting down executor.", "engine_died", id="ray-worker"),
        pytest.param(
            "RuntimeError: Frontend process failed during engine core initialization. See root cause above.",
            "start_failed",
            id="frontend",
        ),
        pytest.param(
            "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored"
            " in KV cache (4096).",
            "model_len",
            id="v0-model-len",
        ),
        pytest.param(
            "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB", "start_up", id="hip"
        ),
        pytest.param("INFO all is well", "none", id="well"),
        pytest.param("", "none", id="empty"),
    ],
)
def test_lines_of_gpu_servers_are_distinguished(log: str, why: OomClass) -> None:
    assert last_words(log).why == why


PARAMS = "params: SamplingParams(n=1, max_tokens=99), prompt_token_ids: None, lora_request: None."
V0 = "INFO 08-01 12:00:00 [logger.py:43] "
REQUEST = f"{V0}Received request chatcmpl-1: prompt: "
FATAL = "ERROR 08-01 12:01:00 [core.py:400] EngineCore encountered a fatal error."


@pytest.mark.parametrize(
    "request_lines",
    [
        pytest.param(f"{REQUEST}'Why do I get {OOM}?', {PARAMS}", id="up to 0.9"),
        pytest.param(f"{REQUEST}'What is this?\\n{OOM}\\nThanks', {PARAMS}", id="of several lines, escaped"),
        pytest.param(f"{REQUEST}'What is this?\r\n{V0}{OOM}\r\n{V0}', {PARAMS}", id="each line with a prefix"),
        pytest.param(f"{REQUEST}'What is this?\n{OOM}\nThanks', {PARAMS}", id="of several lines"),
        pytest.param(f"{REQUEST}'What is this?\n{OOM}", id="cut off"),
        pytest.param(
            f"{{'message': \"Received request cmpl-1: prompt: '{OOM}', {PARAMS}\"}}", id="in a format of its own"
        ),
        pytest.param(
            f"(APIServer pid=1) DEBUG 08-01 12:00:00 [logger.py:45] Request c-1 details: prompt: '{OOM}'", id="debug"
        ),
        pytest.param(f"(APIServer pid=1) {V0}Generated response c-1: output: '{OOM}'", id="an answer"),
        pytest.param(f"{REQUEST}'the estimated maximum model length is 42', {PARAMS}", id="what would fit"),
    ],
)
def test_what_a_user_asks_is_not_what_the_engine_says(request_lines: str) -> None:
    """The prompt is repeated nowhere, neither as the cause nor among the lines that are kept."""
    assert last_words(f"{SERVES}\n{request_lines}") == last_words("")
    died = last_words(f"{SERVES}\n{request_lines}\n{FATAL}\nRuntimeError: NCCL error: unhandled system error")
    assert (died.why, died.collective) == ("engine_died", True)
    assert died.evidence == (FATAL, "RuntimeError: NCCL error: unhandled system error")


@pytest.mark.parametrize(
    "above",
    [
        pytest.param(f"{REQUEST}'Hello', {PARAMS}", id="a whole request"),
        pytest.param(f"{V0}Received request chatcmpl-1.", id="without a prompt"),
        pytest.param(f"{REQUEST}'Hello\n{V0}Added request chatcmpl-1.", id="a request whose end is missing"),
    ],
)
def test_what_the_engine_says_below_a_request_is_read(above: str) -> None:
    assert last_words(f"{SERVES}\n{above}\nTraceback (most recent call last):\n{OOM}").why == "serving"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(SERVES, id="the end of its start"),
        pytest.param('INFO:     10.0.0.1:4242 - "POST /v1/chat/completions HTTP/1.1" 200 OK', id="access line"),
        pytest.param("INFO 11-20 23:10:01 [loggers.py:1] Engine 000: Avg …, Running: 3 reqs, Waiting: 0 reqs", id="V1"),
        pytest.param("INFO 08-01 12:00:00 metrics.py:455] Avg …, Running: 3 reqs, Swapped: 0 reqs", id="V0"),
        pytest.param(f"{REQUEST}'Hello', {PARAMS}", id="a request"),
    ],
)
def test_an_engine_that_served_did_not_die_at_its_start(line: str) -> None:
    """The line that ends the start is often far above the end of the log."""
    assert last_words(f"{line}\n{OOM}").why == "serving"


def test_the_routes_that_an_engine_lists_at_its_start_are_no_sign_that_it_served() -> None:
    route = "(APIServer pid=1) INFO 11-20 23:10:01 [launcher.py:46] Route: /v1/chat/completions, Methods: POST"
    assert last_words(f"{route}\n{OOM}").why == "start_up"


def test_an_engine_whose_user_asks_about_a_shutdown_was_not_asked_to_stop() -> None:
    line = f"{REQUEST}'What is [shutdown] API server: shutdown triggered?', {PARAMS}"
    found = last_words(f"{SERVES}\n{line}\n{FATAL}")
    assert (found.why, found.stop_requested) == ("engine_died", False)


@pytest.mark.parametrize(
    "message",
    [
        "argument --kv-transfer-config: 1 validation error for KVTransferConfig",
        "argument --max-num-batched-tokens: Decimals are not allowed with binary suffixes like K. Did you mean 1.5k?",
        "argument --port: Port must be between 1024 and 65535",
        "argument --max-num-seqs: expected one argument",
        "ambiguous option: --max-num could match --max-num-batched-tokens, --max-num-seqs",
        "Invalid JSON format for --lora-modules: {bad",
    ],
)
def test_a_value_that_the_parser_refuses_is_a_bad_flag(message: str) -> None:
    """Lines of vLLM 0.32 for mistyped flags; the process ends with exit code 2."""
    found = last_words(f"usage: vllm serve [model_tag] [options]\nvllm serve: error: {message}")
    assert (found.why, found.line) == ("bad_flag", f"vllm serve: error: {message}")


@pytest.mark.parametrize(("blocks", "fits"), [("(600)", 600.0), ("of an unknown number", None)])
def test_how_many_sequences_fit_is_read_from_the_refusal(blocks: str, fits: float | None) -> None:
    assert last_words(f"max_num_seqs (1024) exceeds available Mamba cache blocks {blocks}.").fits_seqs == fits


AT_START = """\
(Worker_TP0 pid=90) ERROR 11-22 16:00:45 [multiproc_executor.py:953] WorkerProc failed to start.
(Worker_TP0 pid=90) ERROR 11-22 16:00:45 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker_TP0 pid=90) ERROR 11-22 16:00:45 [multiproc_executor.py:953]   File "/vllm/worker.py", line 1, in f
(Worker_TP0 pid=90) ERROR 11-22 16:00:45 [multiproc_executor.py:953] ValueError: Bfloat16 is only supported on GPUs \
with compute capability of at least 8.0.
(EngineCore pid=80) ERROR 11-22 16:00:46 [core.py:1510] EngineCore failed to start.
(EngineCore pid=80) ERROR 11-22 16:00:46 [core.py:1510] Exception: WorkerProc initialization failed due to an \
exception in a background process. See stack trace for root cause.
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
IN_A_STEP = f"""\
{SERVES}
(APIServer pid=1) ERROR 11-22 15:00:00 [serving.py:1173] ValueError: a request with a bad image
(EngineCore pid=80) ERROR 11-22 16:00:46 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=80) ERROR 11-22 16:00:46 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=80) ERROR 11-22 16:00:46 [core.py:1512] TimeoutError
(EngineCore pid=80) ERROR 11-22 16:00:46 [core.py:1512] TimeoutError: RPC call to execute_model timed out.
(APIServer pid=1) ERROR 11-22 16:00:46 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
"""


@pytest.mark.parametrize(
    ("log", "why", "line"),
    [
        pytest.param(
            AT_START,
            "start_failed",
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
            id="of a worker that did not start",
        ),
        pytest.param(IN_A_STEP, "engine_died", "TimeoutError: RPC call to execute_model timed out.", id="of a step"),
    ],
)
def test_the_line_is_the_exception_and_not_the_one_that_refers_to_it(log: str, why: OomClass, line: str) -> None:
    """Lines as vLLM 0.32 writes them: vllm/v1/executor/multiproc_executor.py and vllm/v1/engine/core.py."""
    found = last_words(log)
    assert (found.why, found.line) == (why, line)
    assert any(line in kept for kept in found.evidence)


def test_only_running_out_of_device_memory_counts_as_cuda_oom() -> None:
    assert {"weights", "warm_up", "start_up", "serving"} == CUDA_OOM


def test_the_start_is_read_through_the_colours_of_0_11(captures: Path) -> None:
    log = log_of(captures, "startup_cases/v0.11.0_omp_bind_unsupported")
    assert "\x1b[" in log
    assert "\x1b[" not in plain(log)
    assert start_lines(log).version == "0.11.0"


def test_the_start_log_has_version_pool_and_the_arguments_that_were_given(captures: Path) -> None:
    found = start_lines(log_of(captures, "startup_cases/kv_dtype_fp8_16M"))
    assert (found.version, found.kv_tokens) == ("0.32.0", 16384)
    assert found.arguments is not None
    assert found.arguments["max_num_seqs"] == 16
    assert found.arguments["kv_cache_dtype"] == "fp8"


@pytest.mark.parametrize("built", ["0.1.dev7557+g977180c", "dev"])
def test_a_build_from_a_clone_without_tags_has_no_known_version(built: str) -> None:
    found = start_lines(f"Initializing a V1 LLM engine (v{built}) with config: model='m'")
    assert (found.version, found.generation) == (None, "V1")


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN']", "FLASH_ATTN"),
        ("Using FLASHINFER backend.", "FLASHINFER"),
        ("Using Flash Attention backend on V1 engine.", "Flash Attention"),
        ("Using ROCM_AITER_FA backend (selected via --attention-backend)", "ROCM_AITER_FA"),
        ("Using FLASH_ATTN backend for vit attention", None),
    ],
)
def test_the_attention_backend_is_read_in_each_versions_words(line: str, backend: str | None) -> None:
    assert start_lines(line).backend == backend


def test_the_pool_is_read_from_both_forms_of_the_line() -> None:
    new = "GPU KV cache size: 123,456 tokens, Maximum concurrency for 2,048 tokens per request: 60.28x"
    assert start_lines(new).kv_tokens == 123456
    assert start_lines("INFO GPU KV cache size: 4,096 tokens").kv_tokens == 4096
    assert start_lines("INFO nothing").kv_tokens is None


def test_arguments_beside_one_that_prints_as_an_object_can_still_be_read() -> None:
    found = start_lines("non-default args: {'max_num_seqs': 8, 'config': <Config object at 0x1>, 'dtype': 'fp8'}")
    assert found.arguments == {"max_num_seqs": 8, "dtype": "fp8"}


@pytest.mark.parametrize(
    "line",
    ["token=hf_abcdefghijk", "'api_key': 'geheim-123456'", "Authorization: Bearer abcdef123456", "sk-abcdef123456"],
)
def test_secrets_do_not_leave_the_log(line: str) -> None:
    assert not any(secret in redacted(line) for secret in ("abcdefghijk", "geheim", "abcdef123456"))
    assert MASK in redacted(line)


def test_at_most_fifty_lines_of_evidence_are_kept() -> None:
    log = "\n".join(f"ERROR {i} out of memory" for i in range(80))
    assert len(last_words(log).evidence) == 50
    assert last_words(log).evidence[-1] == "ERROR 79 out of memory"


def test_a_long_line_says_that_it_was_cut() -> None:
    line = f"ERROR 08-01 12:01:00 [core.py:400] {OOM} " + 40 * "some room " + "See https://docs.vllm.ai"
    shown = redacted(last_words(line).line)
    assert (len(shown), shown[-1]) == (400, "…")
    assert redacted(line[:400]) == line[:400]
