"""How command lines start: the engine they describe, or the exit code and the line that a real vLLM 0.32 printed."""

from __future__ import annotations

import re

import pytest

from bot.sandbox.fleet.compaction import Compaction
from bot.sandbox.fleet.engine import EngineLimits
from bot.sandbox.fleet.pod_spec import read_pod
from bot.sandbox.fleet.startup import Failed, Installed, LogLine, Started, plan_start

pytestmark = pytest.mark.fast

BASE = ("--max-model-len", "2048", "--block-size", "32", "--max-num-seqs", "16", "--num-gpu-blocks-override", "128")
SERVE = ("vllm", "serve", "tiny-llama")


def start(*flags: str, command: tuple[str, ...] = SERVE) -> Started | Failed:
    return plan_start([*command, *flags], "0.32.0")


def limits(*flags: str, command: tuple[str, ...] = SERVE) -> EngineLimits:
    started = start(*flags, command=command)
    assert isinstance(started, Started), started
    return started.limits


def text(lines: tuple[LogLine, ...]) -> str:
    return "\n".join(line.written(0.0) for line in lines)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--max_num_seqs", "6"), id="underscores"),
        pytest.param(("--max-num-seqs=6",), id="equals"),
        pytest.param(("--max-num-seq", "6"), id="unique-prefix"),
        pytest.param(("--max-num-seqs", "64", "--max-num-seqs", "6"), id="the-last-wins"),
    ],
)
def test_a_flag_is_read_in_every_form_that_vllm_reads(flags: tuple[str, ...]) -> None:
    assert limits("--num-gpu-blocks-override=128", "--block-size=32", *flags).max_num_seqs == 6


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        pytest.param(("sh", "-c", "exec vllm serve tiny --max-num-seqs 6 --block-size=32"), (), id="shell"),
        pytest.param(
            ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny"),
            ("--max-num-seqs", "6", "--block-size=32"),
            id="module",
        ),
    ],
)
def test_a_vllm_is_found_behind_a_shell_or_a_module(command: tuple[str, ...], flags: tuple[str, ...]) -> None:
    assert limits(*flags, command=command).max_num_seqs == 6


def test_a_shell_that_cannot_read_its_line_exits_at_once() -> None:
    failed = start(command=("sh", "-c", "vllm serve tiny --max-num-seqs '6"))
    assert isinstance(failed, Failed)
    assert failed.exit_code == 2


def test_sizes_may_be_written_for_people() -> None:
    assert limits("--max-model-len=2k", "--block-size=32").max_model_len == 2000
    assert limits("--kv-cache-memory-bytes", "16M", "--block-size=32").blocks == 256


def test_an_fp8_cache_holds_twice_the_tokens_in_the_same_bytes() -> None:
    assert limits("--kv-cache-memory-bytes=16M", "--block-size=32", "--kv-cache-dtype=fp8").blocks == 512


def test_what_is_not_given_has_the_defaults_of_a_large_gpu() -> None:
    default = limits()
    assert (default.max_num_seqs, default.max_num_batched_tokens, default.block_size) == (1024, 8192, 16)
    assert (default.prefix_caching, default.watermark, default.max_num_queued_reqs) == (True, 0.0, None)


@pytest.mark.parametrize(
    ("flags", "exit_code", "line"),
    [
        pytest.param(
            ("--max-num-on-the-fly-batches", "4"),
            2,
            r"^vllm: error: unrecognized arguments: --max-num-on-the-fly-batches 4$",
            id="unknown",
        ),
        pytest.param(("--swap-space", "8"), 2, r"^vllm: error: unrecognized arguments: --swap-space 8$", id="removed"),
        pytest.param(
            ("--kv-cache-dtype", "fp4"),
            2,
            r"^vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp4' \(choose from 'auto', 'bfloat16',",
            id="choice",
        ),
        pytest.param(
            ("--enable-prefix-caching", "false"), 2, r"unrecognized arguments: false$", id="value-of-a-switch"
        ),
        pytest.param(
            ("--max-num-seqs", "0"),
            1,
            r"greater than or equal to 1 \[type=greater_than_equal, input_value=0, input_type=int\]$",
            id="zero-seqs",
        ),
        pytest.param(
            ("--max-num-batched-tokens", "8"),
            1,
            r"max_num_batched_tokens \(8\) must be greater than or equal to max_num_seqs \(16\)\.",
            id="batched-below-seqs",
        ),
        pytest.param(
            ("--gpu-memory-utilization", "1.2"),
            1,
            r"less than or equal to 1 \[type=less_than_equal, input_value=1\.2, input_type=float\]$",
            id="utilization",
        ),
        pytest.param(
            ("--watermark", "1.0"),
            1,
            r"Input should be less than 1 \[type=less_than, input_value=1\.0, input_type=float\]$",
            id="watermark",
        ),
        pytest.param(
            ("--max-num-active-seqs", "32"),
            1,
            r"max_num_active_seqs \(32\) cannot be greater than max_num_seqs \(16\)\.",
            id="active-above-seqs",
        ),
        pytest.param(("--block-size", "0"), 1, r"Input should be greater than 0 \[type=greater_than,", id="no-block"),
        pytest.param(("--block-size", "24"), 1, r"block_size not supported", id="block-size-of-no-backend"),
        pytest.param(
            ("--max-model-len", "8192"), 1, r"User-specified max_model_len \(8192\) is greater than", id="too-long"
        ),
        pytest.param(
            ("--num-gpu-blocks-override", "32"),
            1,
            r"To serve at least one request with the model's max seq len \(2048\).*estimated maximum.* length is 992",
            id="pool-too-small",
        ),
    ],
)
def test_a_bad_command_line_exits_as_the_real_server_did(flags: tuple[str, ...], exit_code: int, line: str) -> None:
    failed = start(*BASE, *flags)
    assert isinstance(failed, Failed)
    assert failed.exit_code == exit_code
    assert re.search(line, text(failed.lines), re.MULTILINE)


def test_an_engine_that_fails_to_start_names_the_cause_above_the_last_line() -> None:
    failed = start(*BASE, "--num-gpu-blocks-override", "32")
    assert isinstance(failed, Failed)
    whole = text(failed.lines)
    assert whole.index("EngineCore failed to start.") < whole.index("To serve at least one request")
    assert "RuntimeError: Engine core initialization failed. See root cause above." in whole.splitlines()[-1]


@pytest.mark.parametrize(
    "line",
    [
        r"^\(APIServer pid=1\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[api_utils.py:286\] non-default args: \{'model_tag': "
        r"'tiny-llama', 'model': 'tiny-llama', 'max_model_len': 2048, 'block_size': 32, "
        r"'num_gpu_blocks_override': 128, 'max_num_seqs': 16\}$",
        r"Initializing a V1 LLM engine \(v0\.32\.0\) with config",
        r"Using FLASH_ATTN attention backend out of potential backends",
        r"Available KV cache memory: [\d.]+ GiB",
        r"Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=128",
        r"GPU KV cache size: 4,096 tokens, Maximum concurrency for 2,048 tokens per request: 2\.00x",
        r"^INFO:     Application startup complete\.$",
    ],
)
def test_the_start_up_log_has_the_lines_that_people_and_bots_look_for(line: str) -> None:
    started = start(*BASE)
    assert isinstance(started, Started)
    assert re.search(line, text((*started.early, *started.late)), re.MULTILINE)


def test_a_value_equal_to_its_default_is_not_among_the_non_default_args() -> None:
    started = start(*BASE, "--gpu-memory-utilization=0.92", "--watermark=0.1")
    assert isinstance(started, Started)
    (line,) = [one.text for one in started.early if "non-default" in one.text]
    assert "gpu_memory_utilization" not in line
    assert "'watermark': 0.1" in line


def test_a_pod_spec_gives_the_command_with_its_environment_and_the_port() -> None:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve"],
        "args": ["$(MODEL)", "--max-num-seqs=$(SEQS)", "$(UNKNOWN)"],
        "env": [{"name": "MODEL", "value": "tiny"}, {"name": "SEQS", "value": "6"}],
        "ports": [{"containerPort": 8001}],
        "lifecycle": {"preStop": {"sleep": {"seconds": 10}}},
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
    }
    metadata = {"name": "llm-0", "namespace": "serving", "uid": "u"}
    spec = read_pod({"metadata": metadata, "spec": {"nodeName": "n", "containers": [container]}})
    assert spec.argv == ("vllm", "serve", "tiny", "--max-num-seqs=6", "$(UNKNOWN)")
    assert (spec.port, spec.gpus, spec.pre_stop_seconds, spec.version) == (8001, 2, 10.0, "0.32.0")


@pytest.mark.parametrize(
    ("image", "exists"),
    [
        ("vllm/vllm-openai:v0.32.0", True),
        ("vllm/vllm-openai:v0.32.O", False),
        ("vllm/vllm-openai", False),
        ("bad:image", False),
        ("registry.k8s.io/pause:3.9", True),
    ],
)
def test_only_released_engine_images_can_be_pulled(image: str, exists: bool) -> None:
    container = {"name": "c", "image": image}
    metadata = {"name": "p", "namespace": "d", "uid": "u"}
    pod = {"metadata": metadata, "spec": {"nodeName": "n", "containers": [container]}}
    assert read_pod(pod).image_exists is exists


PLUGIN_IMAGE, UPSTREAM = "registry.example/serving/vllm-triattention:v0.32.0", "vllm/vllm-openai:v0.32.0"
RECLAIM = "TRIATTN_RUNTIME_ENABLE_EXPERIMENTAL_BLOCK_RECLAIM"


@pytest.mark.parametrize(
    ("image", "env", "flag", "wanted", "logged"),
    [
        pytest.param(PLUGIN_IMAGE, {}, "--no-enable-prefix-caching", Compaction(), True, id="on-once-installed"),
        pytest.param(
            PLUGIN_IMAGE,
            {"TRIATTN_RUNTIME_KV_BUDGET": "256", "TRIATTN_RUNTIME_DIVIDE_LENGTH": "32"},
            "--no-enable-prefix-caching",
            Compaction(256, 32),
            True,
            id="with-its-numbers",
        ),
        pytest.param(PLUGIN_IMAGE, {}, "--enable-prefix-caching", None, True, id="prefix-caching-keeps-the-blocks"),
        pytest.param(
            PLUGIN_IMAGE, {RECLAIM: "false"}, "--no-enable-prefix-caching", None, True, id="it-only-marks-tokens"
        ),
        pytest.param(
            PLUGIN_IMAGE, {"ENABLE_TRIATTENTION": "0"}, "--no-enable-prefix-caching", None, False, id="turned-off"
        ),
        pytest.param(
            UPSTREAM, {"ENABLE_TRIATTENTION": "1"}, "--no-enable-prefix-caching", None, False, id="not-installed"
        ),
    ],
)
def test_a_compacting_plugin_works_where_it_is_installed_and_may_reclaim(
    image: str, env: dict[str, str], flag: str, wanted: Compaction | None, logged: bool
) -> None:
    started = plan_start([*SERVE, *BASE, flag], "0.32.0", installed=Installed(image, env))
    assert isinstance(started, Started)
    assert started.limits.compaction == wanted
    assert ("[TriAttention] Runtime (V2) plugin activated" in text(started.early)) == logged


def test_kv_is_kept_in_host_memory_only_with_its_flag() -> None:
    assert not limits(*BASE).offloads
    assert limits(*BASE, "--kv-offloading-size", "16").offloads
