"""What the engine's parser does not say about flags: ranges, rules between two, and edits that change nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.change.context import impossible
from bot.domain.change.flag_table import FlagTable, FlagValue, FlagValueError, newest_table, parse_value, text_of
from bot.domain.change.flags_in_spec import FlagEdit, FlagsInSpec

Numbers = Mapping[str, float]

RANGES: dict[str, tuple[float, float, str]] = {
    "--max-num-seqs": (1, float("inf"), "at least 1"),
    "--max-num-active-seqs": (1, float("inf"), "at least 1"),
    "--max-num-batched-tokens": (1, float("inf"), "at least 1"),
    "--gpu-memory-utilization": (0.01, 1, "above 0, at most 1"),
    "--watermark": (0, 0.999, "from 0 to below 1"),
    "--shutdown-timeout": (0, float("inf"), "0 or more seconds"),
    "--max-num-queued-reqs": (0, float("inf"), "0 or more"),
    "--max-num-queued-tokens": (0, float("inf"), "0 or more"),
    "--num-gpu-blocks-override": (2, float("inf"), "at least 2, because one block is reserved"),
    "--cpu-offload-gb": (0, float("inf"), "0 or more"),
}
V1_DEFAULTS: dict[str, FlagValue] = {"--enable-prefix-caching": True, "--enable-chunked-prefill": True}
"""On in the V1 engine for generating models although the parser's default says nothing."""


def check_edits(wanted: Any, flags: FlagsInSpec, table: FlagTable, *, is_sure: bool) -> tuple[FlagEdit, ...]:
    """The edits that change something, in full names and readable values; raise `NoPlanError` for one that cannot be.

    `is_sure`: the table is of this very engine version, so a flag that is not in it does not exist.
    """
    if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
        raise impossible("no edits given", "write: edits: [{flag: --max-num-seqs, value: 6}]")
    edits = [_checked(edit, table, is_sure=is_sure) for edit in wanted]
    if len({edit.flag for edit in edits}) < len(edits):
        raise impossible("one flag is edited twice")
    return tuple(edit for edit in edits if not _changes_nothing(edit, flags, table))


def _checked(edit: Any, table: FlagTable, *, is_sure: bool) -> FlagEdit:
    if not isinstance(edit, Mapping) or edit.keys() != {"flag", "value"} or edit["value"] is None:
        raise impossible(f"not an edit: {edit!r}", "write: {flag: --max-num-seqs, value: 6}")
    option = "--" + str(edit["flag"]).lstrip("-")
    name = table.name_of(option)
    if name is None:
        if is_sure:
            close = difflib.get_close_matches(option, table.flags, n=1)
            hint = f"did you mean {close[0]}?" if close else ""
            raise impossible(f"vLLM {table.version} has no flag {option}", hint)
        return FlagEdit(option, edit["value"])
    try:
        value = parse_value(table.spec(name), edit["value"])
    except FlagValueError as error:
        raise impossible(f"{name} {error}") from None
    if name in RANGES and not isinstance(value, str):
        least, most, text = RANGES[name]
        if not least <= value <= most:
            raise impossible(f"{name} has to be {text}, not {value}")
    return FlagEdit(name, value, spelled=text_of(edit["value"]))


def _changes_nothing(edit: FlagEdit, flags: FlagsInSpec, table: FlagTable) -> bool:
    spec, present = table.spec(edit.flag), flags.values.get(edit.flag)
    if present is None:
        default = V1_DEFAULTS.get(edit.flag, spec.default if spec else None)
        return default is not None and default == edit.value
    return present == edit.value or number_of(present, table, edit.flag) == edit.value


def number_of(written: str | bool, table: FlagTable, flag: str) -> FlagValue | None:
    """A written value as the engine reads it; None when it would not (an unexpanded `$(VAR)`)."""
    try:
        return parse_value(table.spec(flag), written)
    except FlagValueError:
        return None


def broken_rule(flags: FlagsInSpec, edits: Sequence[FlagEdit]) -> str:
    """The first rule between flags that the edited command line would break, in words; empty when none."""
    known: dict[str, FlagValue] = {}
    for flag, written in flags.values.items():
        value = number_of(written, newest_table(), flag)
        if value is not None:
            known[flag] = value
    known.update({edit.flag: edit.value for edit in edits})
    edited = {edit.flag for edit in edits}
    numbers = {flag: float(value) for flag, value in known.items() if not isinstance(value, str)}
    return next((reason for rule in (_order, _chunking, _queue, _ineffective) if (reason := rule(numbers, edited))), "")


_AT_MOST = (
    ("--max-num-seqs", "--max-num-batched-tokens", "the engine does not start otherwise"),
    ("--max-num-active-seqs", "--max-num-seqs", "the engine does not start otherwise"),
)


def _order(numbers: Numbers, edited: set[str]) -> str:
    for smaller, larger, why in _AT_MOST:
        if not edited & {smaller, larger} or smaller not in numbers or larger not in numbers:
            continue
        if numbers[smaller] > numbers[larger]:
            return f"{smaller} {numbers[smaller]:.0f} has to be at most {larger} {numbers[larger]:.0f}: {why}"
    return ""


def _chunking(numbers: Numbers, edited: set[str]) -> str:
    is_off = numbers.get("--enable-chunked-prefill") == 0
    tokens, length = numbers.get("--max-num-batched-tokens"), numbers.get("--max-model-len")
    involved = edited & {"--enable-chunked-prefill", "--max-num-batched-tokens", "--max-model-len"}
    if involved and is_off and tokens is not None and length is not None and tokens < length:
        return (
            f"without chunked prefill --max-num-batched-tokens {tokens:.0f} has to reach --max-model-len {length:.0f}"
        )
    return ""


def _queue(numbers: Numbers, edited: set[str]) -> str:
    queue, running = numbers.get("--max-num-queued-reqs"), numbers.get("--max-num-seqs")
    ranks = numbers.get("--data-parallel-size", 1)
    if "--max-num-queued-reqs" in edited and queue is not None and running is not None and queue < running * ranks:
        return (
            f"--max-num-queued-reqs counts running requests too: {queue:.0f} is less than the"
            f" {running * ranks:.0f} that may run, which sheds load of a healthy engine"
        )
    return ""


def _ineffective(numbers: Numbers, edited: set[str]) -> str:
    if "--gpu-memory-utilization" in edited and "--kv-cache-memory-bytes" in numbers:
        return "--gpu-memory-utilization is ignored while --kv-cache-memory-bytes is set"
    return ""
