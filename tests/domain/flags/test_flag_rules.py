"""Permitted edits of an engine's command line, rule by rule, with the text of each refusal."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.flags.flag_rules import (
    FORMS,
    RANGES,
    Edits,
    Engine,
    EnvEdit,
    broken_allocator,
    broken_rule,
    changes_nothing,
    check_edits,
    check_flag,
    edit_in_words,
    faults_of_engine,
    image_wanted,
)
from bot.domain.flags.flag_table import FlagValue
from bot.domain.flags.flags_in_spec import FlagEdit, FlagsInSpec, WrittenFlag
from bot.domain.kernel.errors import NoPlanError

pytestmark = pytest.mark.fast
NEWEST, NO_TABLE, ON_V0 = Engine("0.32"), Engine("0.30"), Engine("0.8", on_v0=True)


def flag(name: str, value: Any) -> dict[str, Any]:
    return {"flag": name, "value": value}


def env(name: Any, value: Any) -> dict[str, Any]:
    return {"env": name, "value": value}


def running(**values: str | bool) -> FlagsInSpec:
    """A command line with these flags, which are written with underscores here."""
    named = {"--" + name.replace("_", "-"): value for name, value in values.items()}
    return as_written(named)


def as_written(values: dict[str, str | bool]) -> FlagsInSpec:
    return FlagsInSpec(written=tuple(WrittenFlag(name, name, value) for name, value in values.items()))


# --- what is no edit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "reason", "hint"),
    [
        pytest.param([], "no edits given: the 'when' of each is false or unknown", "", id="none"),
        pytest.param("--max-num-seqs", "no edits given", FORMS, id="a-text"),
        pytest.param(7, "no edits given", FORMS, id="a-number"),
        pytest.param([flag("--seed", 6) | {"why": "x"}], None, FORMS, id="a-flag-and-more"),
        pytest.param([env("A", 6) | {"why": "x"}], None, FORMS, id="a-variable-and-more"),
        pytest.param([{"image": "a", "why": "x"}], None, FORMS, id="an-image-and-more"),
        pytest.param([flag("--seed", 6), flag("seed", 7)], "one flag is edited twice", "", id="one-flag-twice"),
        pytest.param([env("A", 6), env("A", 7)], "one variable is edited twice", "", id="one-variable-twice"),
        pytest.param([{"image": "a"}, {"image": "b"}], "the image is edited twice", "", id="two-images"),
        pytest.param([{"image": "a b"}], "'a b' is not an image's name", "", id="no-image"),
        pytest.param([env("1A", 6)], "'1A' is not a variable's name", "", id="no-name"),
        pytest.param([env(7, 6)], "7 is not a variable's name", "", id="a-number-as-name"),
        pytest.param([env("A", [1])], "A takes a text, not [1]", "", id="a-list-as-value"),
        pytest.param(
            [flag("--max-num-seqz", 6)],
            "vLLM 0.32 has no flag --max-num-seqz",
            "did you mean --max-num-seqs?",
            id="misspelled",
        ),
        pytest.param([flag("--qqqqq", 6)], "vLLM 0.32 has no flag --qqqqq", "", id="like-no-flag"),
        pytest.param(
            [flag("--config", "/other.yaml")],
            "another config file is another set of flags: edit the flags themselves",
            "",
            id="another-config-file",
        ),
        pytest.param(
            [flag("--gpu-memory-utilization", 1.01)],
            "--gpu-memory-utilization has to be above 0, at most 1, not 1.01",
            "",
            id="too-much",
        ),
        pytest.param(
            [flag("--max-model-len", 0)],
            "--max-model-len has to be at least 1, or -1 for automatic, not 0",
            "",
            id="no-length",
        ),
        pytest.param(
            [flag("--max-model-len", -2)],
            "--max-model-len has to be at least 1, or -1 for automatic, not -2",
            "",
            id="below-automatic",
        ),
    ],
)
def test_what_cannot_be_edited_says_why_and_what_to_write(wanted: Any, reason: str | None, hint: str) -> None:
    with pytest.raises(NoPlanError) as refused:
        check_edits(wanted, NEWEST)
    expected = f"not an edit: {wanted[0]!r}" if reason is None else reason
    assert (refused.value.outcome, refused.value.reason, refused.value.hint) == ("impossible", expected, hint)


# --- what is one, as the engine reads it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value", "name", "read", "text"),
    [
        pytest.param("max_num_seqs", 6.0, "--max-num-seqs", 6, "6", id="a-number-of-an-expression"),
        pytest.param("-tp", 2, "--tensor-parallel-size", 2, "2", id="short-form"),
        pytest.param("--max-model-len", "auto", "--max-model-len", -1, "auto", id="automatic"),
        pytest.param("--gpu-memory-utilization", 1, "--gpu-memory-utilization", 1.0, "1", id="the-most"),
        pytest.param("--gpu-memory-utilization", 0.01, "--gpu-memory-utilization", 0.01, "0.01", id="the-least"),
        pytest.param("--compilation-config", {"a": [1, 2]}, "--compilation-config", '{"a":[1,2]}', None, id="mapping"),
        pytest.param("--compilation-config", [1, 2], "--compilation-config", "[1,2]", None, id="list"),
        pytest.param("--max-num-seqs", None, "--max-num-seqs", None, "", id="taken-away"),
    ],
)
def test_a_flag_is_read_as_the_engine_reads_it(
    written: str, value: Any, name: str, read: FlagValue | None, text: str | None
) -> None:
    edit = check_flag(written, value, NEWEST)
    assert (edit.flag, edit.value, edit.text) == (name, read, read if text is None else text)


@pytest.mark.parametrize(
    ("value", "written"),
    [(True, "1"), (False, "0"), (6, "6"), (6.0, "6"), (0.5, "0.5"), ("x", "x"), (None, None)],
)
def test_a_variable_takes_what_a_shell_would_be_given(value: Any, written: str | None) -> None:
    assert check_edits([env("A", value)], NEWEST) == Edits(variables=(EnvEdit("A", written),))


def test_each_edit_goes_to_its_kind() -> None:
    edits = check_edits([flag("--seed", 1), env("A", "x"), {"image": "vllm/vllm-openai:v0.32.0"}], NEWEST)
    assert edits == Edits((FlagEdit("--seed", 1, "1"),), (EnvEdit("A", "x"),), "vllm/vllm-openai:v0.32.0")


@pytest.mark.parametrize("wanted", [7, "image", ["image"], [{"image": "a", "why": "x"}], [flag("--seed", 1)]])
def test_no_image_is_wanted_where_none_is_named(wanted: Any) -> None:
    assert image_wanted(wanted) == ""


def test_what_a_version_without_a_table_takes_is_not_guessed() -> None:
    assert check_flag("--made_up", 2, NO_TABLE) == FlagEdit("--made-up", 2)
    assert check_flag("--kv-cache-dtype", "new_one", NO_TABLE).value == "new_one"
    with pytest.raises(NoPlanError, match="takes a whole number"):
        check_flag("--max-num-seqs", "many", NO_TABLE)


@pytest.mark.parametrize(
    ("name", "taken", "refused", "reason"),
    [
        ("--kv-cache-dtype", "fp8", "nvfp4", "takes one of auto, fp8, fp8_e4m3, fp8_e5m2, not 'nvfp4'"),
        ("--block-size", 32, 64, "takes one of 8, 16, 32 in vLLM 0.5, not 64"),
    ],
)
def test_a_version_whose_values_are_known_takes_those_and_no_others(
    name: str, taken: FlagValue, refused: FlagValue, reason: str
) -> None:
    assert check_flag(name, taken, Engine("0.5")).value == taken
    with pytest.raises(NoPlanError) as refusal:
        check_flag(name, refused, Engine("0.5"))
    assert refusal.value.reason == f"{name} {reason}"


def test_a_switch_of_an_old_version_has_only_one_direction() -> None:
    spec = Engine("0.7").spec("--enable-prefix-caching")
    assert spec is not None
    assert (spec.type, spec.default) == ("true", False)


def test_only_the_engine_that_heeds_a_flag_is_given_it() -> None:
    assert check_flag("--swap-space", 4, ON_V0).value == 4
    with pytest.raises(NoPlanError, match="ignores --swap-space"):
        check_flag("--swap-space", 4, Engine("0.8"))


ANY = float("inf")


@pytest.mark.parametrize(
    ("name", "least", "most", "words"),
    [
        ("--max-num-seqs", 1, ANY, "at least 1"),
        ("--max-num-active-seqs", 1, ANY, "at least 1"),
        ("--max-num-batched-tokens", 1, ANY, "at least 1"),
        ("--gpu-memory-utilization", 0.01, 1, "above 0, at most 1"),
        ("--watermark", 0, 0.999, "from 0 to below 1"),
        ("--shutdown-timeout", 0, ANY, "0 or more seconds"),
        ("--max-num-queued-reqs", 0, ANY, "0 or more"),
        ("--max-num-queued-tokens", 0, ANY, "0 or more"),
        ("--num-gpu-blocks-override", 2, ANY, "at least 2, because one block is reserved"),
        ("--cpu-offload-gb", 0, ANY, "0 or more"),
        ("--kv-offloading-size", 0, ANY, "0 or more GiB"),
        ("--kv-cache-memory-bytes", 1, ANY, "at least 1 byte"),
        ("--block-size", 1, ANY, "at least 1"),
        ("--max-model-len", -1, ANY, "at least 1, or -1 for automatic"),
        ("--tensor-parallel-size", 1, ANY, "at least 1"),
        ("--data-parallel-size", 1, ANY, "at least 1"),
    ],
)
def test_the_range_of_each_flag_has_these_ends(name: str, least: float, most: float, words: str) -> None:
    assert RANGES[name] == (least, most, words)
    assert check_flag(name, least, NEWEST).value == least
    with pytest.raises(NoPlanError, match=f"{name} has to be {words}, not"):
        check_flag(name, least - 1, NEWEST)


# --- what changes nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "flags", "engine", "nothing"),
    [
        pytest.param(FlagEdit("--seed", None), running(), NEWEST, True, id="away-and-absent"),
        pytest.param(FlagEdit("--seed", None), running(seed="1"), NEWEST, False, id="away-and-there"),
        pytest.param(FlagEdit("--seed", 1), running(seed="1"), NEWEST, True, id="there"),
        pytest.param(FlagEdit("--seed", 2), running(seed="1"), NEWEST, False, id="another"),
        pytest.param(FlagEdit("--seed", "$(SEED)"), running(seed="$(SEED)"), NEWEST, True, id="the-same-text"),
        pytest.param(
            FlagEdit("--enable-prefix-caching", True), running(), NEWEST, True, id="what-is-on-without-a-flag"
        ),
        pytest.param(FlagEdit("--enable-prefix-caching", False), running(), NEWEST, False, id="off"),
        pytest.param(
            FlagEdit("--enable-prefix-caching", True), running(), NO_TABLE, False, id="whose-default-is-not-known"
        ),
        pytest.param(FlagEdit("--seed", 7), running(), NO_TABLE, False, id="not-known-and-absent"),
    ],
)
def test_an_edit_that_changes_nothing_is_known_as_one(
    edit: FlagEdit, flags: FlagsInSpec, engine: Engine, nothing: bool
) -> None:
    assert changes_nothing(edit, flags, engine) is nothing


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (FlagEdit("--max-num-seqs", 6), "--max-num-seqs 6"),
        (FlagEdit("--max-num-seqs", None), "no --max-num-seqs"),
        (FlagEdit("--enable-prefix-caching", True), "--enable-prefix-caching on"),
        (FlagEdit("--enable-prefix-caching", False), "--enable-prefix-caching off"),
        (FlagEdit("--api-key", "s3cret"), "--api-key (masked)"),
    ],
)
def test_an_edit_is_described_without_its_secrets(edit: FlagEdit, words: str) -> None:
    assert edit_in_words(edit) == words


# --- rules between two flags ------------------------------------------------------------------------------------------

SEQS_OVER_TOKENS = "--max-num-seqs 9 has to be at most --max-num-batched-tokens 8: the engine does not start otherwise"
UNCHUNKED: dict[str, str | bool] = {
    "enable_chunked_prefill": False,
    "max_num_batched_tokens": "2047",
    "max_model_len": "2048",
}
QUEUE = "--max-num-queued-reqs counts running requests too: {} is less than the {} that may run, which sheds load of a healthy engine"  # noqa: E501 - one sentence for people
IGNORED = "--gpu-memory-utilization is ignored while --kv-cache-memory-bytes is set"


@pytest.mark.parametrize(
    ("flags", "edited", "fault"),
    [
        pytest.param(
            running(max_num_seqs="9", max_num_batched_tokens="8"), "--max-num-seqs", SEQS_OVER_TOKENS, id="seqs"
        ),
        pytest.param(
            running(max_num_seqs="9", max_num_batched_tokens="8"),
            "--max-num-batched-tokens",
            SEQS_OVER_TOKENS,
            id="tokens",
        ),
        pytest.param(running(max_num_seqs="9", max_num_batched_tokens="8"), "--seed", "", id="as-it-was-before"),
        pytest.param(running(max_num_seqs="8", max_num_batched_tokens="8"), "--max-num-seqs", "", id="as-many"),
        pytest.param(running(max_num_seqs="$(N)", max_num_batched_tokens="8"), "--max-num-seqs", "", id="not-known"),
        pytest.param(
            running(max_num_active_seqs="9", max_num_seqs="8"),
            "--max-num-active-seqs",
            "--max-num-active-seqs 9 has to be at most --max-num-seqs 8: the engine does not start otherwise",
            id="active",
        ),
        *(
            pytest.param(
                running(**UNCHUNKED),
                edited,
                "without chunked prefill --max-num-batched-tokens 2047 has to reach --max-model-len 2048",
                id=f"unchunked-by{edited}",
            )
            for edited in ("--enable-chunked-prefill", "--max-num-batched-tokens", "--max-model-len")
        ),
        pytest.param(running(**UNCHUNKED), "--seed", "", id="unchunked-before"),
        pytest.param(running(**UNCHUNKED | {"enable_chunked_prefill": True}), "--max-model-len", "", id="chunked"),
        pytest.param(
            running(**UNCHUNKED | {"max_num_batched_tokens": "2048"}), "--max-model-len", "", id="long-enough"
        ),
        pytest.param(
            running(enable_chunked_prefill=False, max_model_len="2048"), "--max-model-len", "", id="tokens-not-known"
        ),
        pytest.param(
            running(enable_chunked_prefill=False, max_num_batched_tokens="8"),
            "--max-num-batched-tokens",
            "",
            id="length-not-known",
        ),
        pytest.param(
            running(max_num_queued_reqs="7", max_num_seqs="8"), "--max-num-queued-reqs", QUEUE.format(7, 8), id="queue"
        ),
        pytest.param(
            running(max_num_queued_reqs="7", max_num_seqs="9", max_num_active_seqs="8"),
            "--max-num-queued-reqs",
            QUEUE.format(7, 8),
            id="the-lower-cap-binds",
        ),
        pytest.param(
            running(max_num_queued_reqs="15", max_num_seqs="8", data_parallel_size="2"),
            "--max-num-queued-reqs",
            QUEUE.format(15, 16),
            id="queue-of-all-ranks",
        ),
        pytest.param(
            running(max_num_queued_reqs="8", max_num_seqs="8", data_parallel_size="2", data_parallel_rank="1"),
            "--max-num-queued-reqs",
            "",
            id="queue-of-the-only-rank",
        ),
        pytest.param(
            running(
                max_num_queued_reqs="15",
                max_num_seqs="8",
                data_parallel_size="16",
                data_parallel_size_local="2",
                data_parallel_hybrid_lb=True,
            ),
            "--max-num-queued-reqs",
            QUEUE.format(15, 16),
            id="queue-of-the-nodes-ranks",
        ),
        pytest.param(
            running(max_num_queued_reqs="8", max_num_seqs="8"), "--max-num-queued-reqs", "", id="queue-of-as-many"
        ),
        pytest.param(running(max_num_queued_reqs="7"), "--max-num-queued-reqs", "", id="queue-cap-not-known"),
        pytest.param(
            running(max_num_queued_reqs="$(N)", max_num_seqs="8"), "--max-num-queued-reqs", "", id="queue-not-known"
        ),
        pytest.param(running(max_num_queued_reqs="7", max_num_seqs="8"), "--max-num-seqs", "", id="queue-as-before"),
        pytest.param(
            running(gpu_memory_utilization="0.9", kv_cache_memory_bytes="5"),
            "--gpu-memory-utilization",
            IGNORED,
            id="without-effect",
        ),
        pytest.param(
            running(gpu_memory_utilization="0.9", kv_cache_memory_bytes="5"),
            "--kv-cache-memory-bytes",
            "",
            id="with-effect",
        ),
        pytest.param(running(gpu_memory_utilization="0.9"), "--gpu-memory-utilization", "", id="effective"),
        pytest.param(
            as_written({"--compilation-config": "{}", "--compilation-config.level": "3"}),
            "--compilation-config.level",
            "--compilation-config.level would replace all of --compilation-config, which is written as one value: "
            "give the whole value",
            id="a-key-of-a-whole",
        ),
        pytest.param(
            as_written({"--compilation-config": "{}", "--seed": "1", "--compilation-config.level": "3"}),
            "--compilation-config",
            "--compilation-config is written key by key (--compilation-config.…): edit its keys",
            id="a-whole-of-keys",
        ),
        pytest.param(
            as_written({"--compilation-config.level": "3", "--compilation-config.x": "1"}),
            "--compilation-config.level",
            "",
            id="keys-beside-keys",
        ),
    ],
)
def test_a_rule_between_two_flags_is_broken_only_by_an_edit_of_one_of_them(
    flags: FlagsInSpec, edited: str, fault: str
) -> None:
    assert broken_rule(flags, {edited}, NEWEST) == fault


EXPANDABLE = (EnvEdit("NCCL_DEBUG", None), EnvEdit("PYTORCH_CUDA_ALLOC_CONF", "Expandable_Segments:True"))
RANKS = "expandable_segments needs --{0}-parallel-size 1, and it is 2: the engine would not start"


@pytest.mark.parametrize(
    ("variables", "flags", "fault"),
    [
        pytest.param(EXPANDABLE, running(), "", id="one-rank"),
        pytest.param(EXPANDABLE, running(tensor_parallel_size="1"), "", id="one-rank-in-words"),
        pytest.param(EXPANDABLE, running(tensor_parallel_size="2"), RANKS.format("tensor"), id="tensor"),
        pytest.param(EXPANDABLE, running(data_parallel_size="2"), RANKS.format("data"), id="data"),
        pytest.param(
            EXPANDABLE,
            running(kv_transfer_config="{}"),
            "expandable_segments does not go together with --kv-transfer-config",
            id="connector",
        ),
        pytest.param(
            EXPANDABLE,
            running(enable_sleep_mode=True),
            "expandable_segments does not go together with --enable-sleep-mode",
            id="sleep",
        ),
        pytest.param(EXPANDABLE, running(enable_sleep_mode=False), "", id="no-sleep"),
        pytest.param(EXPANDABLE[:1], running(tensor_parallel_size="2"), "", id="another-variable"),
        pytest.param(
            (EnvEdit("OTHER", "expandable_segments:True"),), running(tensor_parallel_size="2"), "", id="another-name"
        ),
        pytest.param(
            (EnvEdit("PYTORCH_ALLOC_CONF", "max_split_size_mb:64"),),
            running(tensor_parallel_size="2"),
            "",
            id="another-value",
        ),
        pytest.param((EnvEdit("PYTORCH_ALLOC_CONF", None),), running(tensor_parallel_size="2"), "", id="taken-away"),
    ],
)
def test_expandable_segments_are_refused_where_the_engine_would_not_start(
    variables: tuple[EnvEdit, ...], flags: FlagsInSpec, fault: str
) -> None:
    assert broken_allocator(variables, flags, NEWEST) == fault


# --- with another image -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "engine", "faults"),
    [
        pytest.param(running(seed="1", max_num_seqs="6"), NEWEST, [], id="all-known"),
        pytest.param(running(made_up="1"), NEWEST, ["vLLM 0.32 has no flag --made-up"], id="never-there"),
        pytest.param(running(made_up="1"), NO_TABLE, [], id="nobody-knows"),
        pytest.param(running(swap_space="4"), Engine("0.17"), [], id="only-ignored"),
        pytest.param(running(watermark="0.1"), Engine("0.22"), ["no --watermark yet"], id="yet-to-come"),
        pytest.param(running(swap_space="4"), Engine("0.18"), ["removed in 0.18"], id="gone"),
    ],
)
def test_flags_that_another_version_refuses_are_named(flags: FlagsInSpec, engine: Engine, faults: list[str]) -> None:
    found = faults_of_engine(flags, engine)
    assert len(found) == len(faults)
    assert all(part in text for part, text in zip(faults, found, strict=True))
