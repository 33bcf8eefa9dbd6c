"""The limits of live engines: their actual values, and the ones that are not enforced."""

from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.signal import Reading
from tests.kit import probes
from tests.kit.probes import request
from tests.probes.test_engine_probes import OPENED, Logs, pod

pytestmark = pytest.mark.fast


async def ask(*pods: Obj, log: str | None = "") -> Reading:
    owner = {"kind": "Deployment", "uid": "d", "controller": True}
    replica_set = {"metadata": {"name": "rs", "uid": "rs", "ownerReferences": [owner]}}
    seen = ClusterSnapshot(
        at=OPENED, workload={"metadata": {"name": "llm", "uid": "d"}}, replica_sets=(replica_set,), pods=pods
    )
    return await probes.ask(request("limits", seen, at=OPENED), logs=Logs({"llm-0": log}))


def with_memory(limit: str, request: str) -> Obj:
    made = pod("llm-0")
    made["spec"]["containers"][0]["resources"] = {"limits": {"memory": limit}, "requests": {"memory": request}}
    return made


@pytest.mark.parametrize(
    ("arguments", "part", "value"),
    [
        pytest.param([], "utilization", 0.92, id="the-default-of-0.32"),
        pytest.param(["--gpu-memory-utilization=0.85"], "utilization", 0.85, id="as-written"),
        pytest.param([], "sizes_by_utilization", True, id="the-pool-follows-utilization"),
        pytest.param(["--kv-cache-memory-bytes", "1G"], "sizes_by_utilization", False, id="or-it-is-fixed"),
        pytest.param([], "prefix_caching", True, id="on-in-v1"),
        pytest.param(["--no-enable-prefix-caching"], "prefix_caching", False, id="unless-switched-off"),
        pytest.param(["--override-generation-config", '{"max_new_tokens": 512}'], "output_cap", 512, id="capped"),
        pytest.param([], "output_cap", 0, id="not-capped"),
        pytest.param(["--override-generation-config", '{"temperature": 0}'], "generation_config", True, id="theirs"),
        pytest.param(["--kv-offloading-size", "16"], "offloading", 16, id="offloads"),
        pytest.param(["--data-parallel-size=2"], "ranks", 2, id="two-ranks"),
        pytest.param(["-dp", "16", "--data-parallel-external-lb"], "ranks", 1, id="a-server-for-each"),
        pytest.param(["-dp", "16", "--data-parallel-rank", "0"], "ranks", 1, id="a-rank-means-the-same"),
        pytest.param(["-dp", "16", "-dpl", "8", "--data-parallel-hybrid-lb"], "ranks", 8, id="a-server-for-a-node"),
        pytest.param(["-dp", "16", "-dpl", "$LOCAL"], "ranks", 16, id="whatever-runs-on-its-node"),
        pytest.param(["-dp", "16", "-dpl", "8"], "ranks", 16, id="a-server-for-all"),
        pytest.param(["--max-num-active-seqs=6"], "active_cap", 6, id="capped"),
        pytest.param([], "active_cap", 0, id="not-capped"),
        pytest.param(["--max-model-len", "8k"], "max_model_len", 8000, id="a-measured-length"),
        pytest.param([], "v0", False, id="v1"),
    ],
)
async def test_a_limit_is_read_from_the_flags(arguments: list[str], part: str, value: Any) -> None:
    assert (await ask(pod("llm-0", *arguments))).fields[part] == value


@pytest.mark.parametrize(
    ("image", "arguments", "swap"),
    [
        pytest.param("v0.6.6", ["--swap-space", "16"], 16, id="as-written"),
        pytest.param("v0.6.6", [], 4, id="the-default-of-v0"),
        pytest.param("v0.12.0", ["--swap-space", "16"], 0, id="v1-ignores-it"),
    ],
)
async def test_swap_space_counts_where_the_engine_swaps(image: str, arguments: list[str], swap: float) -> None:
    assert (await ask(pod("llm-0", *arguments, image=f"vllm/vllm-openai:{image}"))).fields["swap"] == swap


@pytest.mark.parametrize("part", ["prefix_caching", "chunked_prefill"])
async def test_what_is_on_in_v1_was_off_in_v0(part: str) -> None:
    reading = await ask(pod("llm-0", image="vllm/vllm-openai:v0.6.6"))
    assert (reading.fields[part], reading.fields["v0"]) == (False, True)


@pytest.mark.parametrize(
    ("version", "asked", "log", "v0"),
    [
        ("0.8.5", None, "", False),
        ("0.8.5", "0", "", True),
        ("0.10.2", "1", "", False),
        ("0.7.3", "1", "", False),
        ("0.7.3", None, "", True),
        ("0.12.0", "0", "", False),
        ("0.8.5", None, "INFO Initializing a V0 LLM engine (v0.8.5) with config: model", True),
        ("latest", None, "INFO Initializing a V1 LLM engine (v0.1.dev1+gb22b798) with config: model", False),
    ],
)
async def test_which_of_the_two_engines_runs_is_configured_or_read_from_its_log(
    version: str, asked: str | None, log: str, *, v0: bool
) -> None:
    made = pod("llm-0", image=f"vllm/vllm-openai:v{version}")
    made["spec"]["containers"][0]["env"] = [{"name": "VLLM_USE_V1", "value": asked}] if asked else []
    assert (await ask(made, log=log)).fields["v0"] is v0


@pytest.mark.parametrize("arguments", [[], ["--enable-prefix-caching"]])
async def test_a_model_without_a_prefix_cache_has_none_whatever_the_default(arguments: list[str]) -> None:
    """A hybrid model switches it off itself: its counters stand still, so no hit rate is ever known."""
    line = "INFO Initializing a V1 LLM engine (v0.12.0) with config: seed=0, enable_prefix_caching=False, more"
    assert (await ask(pod("llm-0", *arguments), log=line)).fields["prefix_caching"] is False


async def test_an_engine_on_the_cpu_does_not_size_its_pool_by_utilization() -> None:
    reading = await ask(pod("llm-0"), log="INFO Initializing a V1 LLM engine (v0.32.0) with config: device_config=cpu")
    assert reading.fields["sizes_by_utilization"] is False
    assert "utilization" in reading.unknown_parts


async def test_a_length_that_nobody_set_is_the_models_and_not_known() -> None:
    assert "max_model_len" in (await ask(pod("llm-0"))).unknown_parts


async def test_missing_limits_are_listed() -> None:
    reading = await ask(pod("llm-0", "--max-num-seqs=64", "--max-model-len=8192"))
    missing = str(reading.fields["missing"])
    assert reading.detail == f"no limit of {missing}"
    assert missing.split(", ") == [
        "answer length (--override-generation-config)",
        "queue (--max-num-queued-reqs)",
        "memory headroom (--gpu-memory-utilization)",
    ]


async def test_host_memory_is_what_the_limit_leaves_above_the_request() -> None:
    assert (await ask(with_memory("96Gi", "64Gi"))).fields["host_room"] == 32
    assert "host_room" in (await ask(pod("llm-0"))).unknown_parts


async def test_bytes_of_a_token_come_from_the_start_log_where_the_memory_makes_the_pool() -> None:
    log = "INFO gpu_worker.py: Available KV cache memory: 1.00 GiB\nINFO GPU KV cache size: 8,192 tokens\n"
    assert (await ask(pod("llm-0"), log=log)).fields["bytes_per_token"] == pytest.approx(131072)
    overridden = await ask(pod("llm-0", "--num-gpu-blocks-override=128"), log=log)
    assert "bytes_per_token" in overridden.unknown_parts


async def test_replicas_that_differ_make_a_limit_unknown() -> None:
    reading = await ask(pod("llm-0", "--data-parallel-size=2"), pod("llm-1", template="t2"))
    assert "ranks" in reading.unknown_parts


async def test_without_a_pod_nothing_is_known() -> None:
    assert (await ask()).unknown == "there is no such pod"
