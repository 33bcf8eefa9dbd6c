"""The history of flags: data that fits the table of the newest version, and answers by version."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.flags import flag_table as beside
from bot.domain.flags.flag_history import fault_of_flag, fault_of_variable, history, release
from bot.domain.flags.flag_rules import RANGES
from bot.domain.flags.flag_table import KNOWN_VERSIONS, newest_table, table_of

pytestmark = pytest.mark.fast

FLAGS = Path(beside.__file__).parent / "tables"


def test_the_history_agrees_with_the_table_of_the_newest_parser() -> None:
    table, newest = newest_table(), KNOWN_VERSIONS[-1]
    for flag, life in history().flags.items():
        assert (flag in table.flags) is not life.is_gone(newest), flag
        assert not life.is_yet_to_come(newest), flag


def test_every_flag_of_the_newest_parser_has_a_life_with_a_source_that_is_named() -> None:
    flags = history().flags
    assert newest_table().flags.keys() <= flags.keys()
    assert {life.source for life in flags.values()} == {"", *history().sources}


def test_a_replacement_is_a_flag_that_exists() -> None:
    lives = [*history().flags.values(), *history().variables.values()]
    assert {life.replacement for life in lives} - {""} <= newest_table().flags.keys()


def test_ranges_are_of_flags_that_exist() -> None:
    assert RANGES.keys() <= newest_table().flags.keys()


def test_a_release_is_compared_by_number() -> None:
    assert release("0.9") < release("0.10.2") < release("0.33")


@pytest.mark.parametrize(
    ("flag", "version", "fault"),
    [
        pytest.param("--swap-space", "0.7", "", id="v0-uses-it"),
        pytest.param("--swap-space", "0.17", "ignores --swap-space", id="v1-ignores-it"),
        pytest.param("--swap-space", "0.18", "removed in 0.18; use --kv-offloading-size", id="removed"),
        pytest.param("--watermark", "0.22", "no --watermark yet: it was first seen in 0.24", id="before"),
        pytest.param("--watermark", "0.23", "", id="between-two-that-were-read-nobody-knows"),
        pytest.param("--watermark", "", "", id="an-unknown-version-says-nothing"),
        pytest.param("--max-num-on-the-fly-batches", "0.6", "no release ever had it", id="never"),
        pytest.param("--num-scheduler-steps", "0.33", "no --num-scheduler-steps", id="gone-by-a-release-that-was-read"),
        pytest.param("--num-scheduler-steps", "0.20", "", id="gone-some-day-in-between"),
        pytest.param("--max-num-seqs", "0.5", "", id="nothing-known-against-it"),
    ],
)
def test_a_flag_is_judged_by_the_version(flag: str, version: str, fault: str) -> None:
    found = fault_of_flag(flag, version)
    assert fault in found
    assert bool(fault) == bool(found)


def test_an_ignored_variable_names_its_flag() -> None:
    assert "use --attention-backend" in fault_of_variable("VLLM_ATTENTION_BACKEND", "0.15")
    assert fault_of_variable("VLLM_ATTENTION_BACKEND", "0.14") == ""


def test_every_table_of_the_folder_is_one_of_a_known_version_oldest_first() -> None:
    written = {path.name for path in FLAGS.glob("vllm-*.json")}
    assert {f"vllm-{version}.json" for version in KNOWN_VERSIONS} == written
    assert [table_of(version) is not None for version in KNOWN_VERSIONS] == [True] * len(written)
