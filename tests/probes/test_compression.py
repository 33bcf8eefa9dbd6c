"""The class of KV compression by its evidence: each class by each of its signs, and no `none` without a check."""

from pathlib import Path

import pytest

from bot.probes.engine.compression import Compression, Evidence, compression_of

pytestmark = pytest.mark.fast

STARTED = "INFO Initializing a V1 LLM engine (v0.32.0) with config\n"
IMAGE = "vllm/vllm-openai:v0.32.0"
TRIATTENTION = "[TriAttention] Runtime (V2) plugin activated: patch_scheduler=True patch_worker=True"


def compression(
    flags: dict[str, str | bool] | None = None, *, log: str = STARTED, image: str = IMAGE, dtype: str = "", **env: str
) -> Compression:
    return compression_of(Evidence(flags if flags is not None else {}, env, image, dtype, log))


@pytest.mark.parametrize(
    ("found", "kind", "sign"),
    [
        pytest.param(compression({"--kv-cache-dtype": "fp8"}), "quantised_kv", "fp8 in --kv-cache-dtype", id="flag"),
        pytest.param(compression(dtype="fp8_e4m3"), "quantised_kv", "fp8_e4m3 in cache_config_info", id="page"),
        pytest.param(compression(dtype="turboquant_4bit_nc"), "quantised_kv", "turboquant", id="other-format"),
        pytest.param(
            compression(dtype="auto", log=STARTED + "Using fp8 data type to store kv cache. It reduces"),
            "quantised_kv",
            "fp8 in its log",
            id="auto-that-means-fp8",
        ),
        pytest.param(
            compression(ENABLE_TRIATTENTION="1"),
            "eviction_with_compaction",
            "env ENABLE_TRIATTENTION=1",
            id="plugin-env",
        ),
        pytest.param(
            compression(log=STARTED + TRIATTENTION),
            "eviction_with_compaction",
            "plugin activated",
            id="plugin-default-on",
        ),
        pytest.param(compression(image="me/vllm-h2o:v1"), "eviction_without_compaction", "h2o in its image", id="fork"),
        pytest.param(
            compression(log=STARTED + "Loaded plugin snapkv\n"),
            "eviction_without_compaction",
            "snapkv in its log",
            id="plugin",
        ),
        pytest.param(
            compression(log=STARTED + "Using FLASHMLA_SPARSE attention backend out of potential backends"),
            "page_selection",
            "FLASHMLA_SPARSE selects pages",
            id="sparse-backend",
        ),
        pytest.param(compression(), "none", "", id="nothing-and-looked"),
        pytest.param(compression(ENABLE_TRIATTENTION="0"), "none", "", id="switched-off"),
        pytest.param(compression({"--kv-cache-dtype": "bfloat16"}, log=""), "none", "", id="full-size-by-flag"),
        pytest.param(compression(log=STARTED + "Using FLASH_ATTN attention backend"), "none", "", id="plain-backend"),
    ],
)
def test_each_class_is_known_by_its_signs(found: Compression, kind: str, sign: str) -> None:
    assert found.kind == kind
    assert sign in "; ".join(found.seen)
    assert found.missing == ""


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        pytest.param(compression(log=""), "auto, which is fp8 for some checkpoints", id="auto-and-no-start"),
        pytest.param(compression(image="registry/ours:7"), "not upstream's image", id="own-image"),
        pytest.param(
            compression(log="Initializing a V1 LLM engine (v0.32.0+fork)"), "not upstream's build", id="build-of-a-fork"
        ),
        pytest.param(compression_of(Evidence(None, {}, IMAGE, "", STARTED)), "flags cannot be read", id="no-flags"),
    ],
)
def test_what_was_not_seen_is_not_called_none(found: Compression, missing: str) -> None:
    assert found.kind is None
    assert missing in found.missing


def test_passes_that_free_nothing_are_reported() -> None:
    log = f"{STARTED}{TRIATTENTION}\nTriAttention scheduler FREE_BLOCKS: req=a freed=0 kept=64\n"
    assert "its passes freed 0 blocks" in compression(log=log).seen


def test_offloading_is_no_compression() -> None:
    found = compression({"--kv-offloading-size": "8"})
    assert (found.kind, found.offloads, found.seen) == ("none", True, ("offloads: --kv-offloading-size",))


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("B_thrash_8MiB_kv_auto", "none"), ("C_same_8MiB_kv_fp8", "quantised_kv")],
)
def test_the_logs_of_real_servers_distinguish_fp8_from_auto(captures: Path, folder: str, kind: str) -> None:
    assert compression(log=(captures / folder / "server.log").read_text()).kind == kind
