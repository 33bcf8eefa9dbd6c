"""What may be edited: flags of this engine version, values in range, rules between two, and the effect of each."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.flags.flag_history import fault_of_flag, fault_of_variable, life_of_flag
from bot.domain.flags.flag_table import (
    FlagSpec,
    FlagTable,
    FlagValue,
    FlagValueError,
    newest_table,
    normalised,
    parse_value,
    table_of,
    text_of,
)
from bot.domain.flags.flags_in_spec import CONFIG, FlagEdit, FlagsInSpec
from bot.domain.kernel.errors import NoPlanError, impossible
from bot.domain.kernel.redaction import shown_value

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
    "--kv-offloading-size": (0, float("inf"), "0 or more GiB"),
    "--kv-cache-memory-bytes": (1, float("inf"), "at least 1 byte"),
    "--block-size": (1, float("inf"), "at least 1"),
    "--max-model-len": (-1, float("inf"), "at least 1, or -1 for automatic"),
    "--tensor-parallel-size": (1, float("inf"), "at least 1"),
    "--data-parallel-size": (1, float("inf"), "at least 1"),
}
V1_DEFAULTS: dict[str, FlagValue] = {"--enable-prefix-caching": True, "--enable-chunked-prefill": True}
"""On by default in the V1 engine for generating models, although the parser has no default."""
FORMS = "write: edits: [{flag: --max-num-seqs, value: 6}], [{env: NAME, value: x}] or [{image: …}]"


@dataclass(frozen=True)
class Engine:
    """The engine version that edits are checked against."""

    version: str
    """`major.minor`, or empty if the image has no version."""
    on_v0: bool = False
    """It is known to run the engine before V1."""

    @property
    def is_sure(self) -> bool:
        """Whether there is a table of this exact version, so that a flag not in it does not exist."""
        return table_of(self.version) is not None

    @property
    def table(self) -> FlagTable:
        return table_of(self.version) or newest_table()

    def spec(self, flag: str) -> FlagSpec | None:
        """Returns the flag in this version. Its choices are unknown unless a table or the history has them."""
        spec, life = self.table.spec(flag), life_of_flag(flag)
        differed = life.values_in(self.version) if life else None
        if spec is None or self.is_sure:
            return spec
        if differed is None:
            return spec.model_copy(update={"choices": ()})
        changes: dict[str, Any] = {"default": differed.default, "choices": differed.choices}
        if differed.only_on:
            changes["type"] = "true"
        return spec.model_copy(update=changes)

    def default(self, flag: str) -> FlagValue | None:
        """Returns the value of an absent flag, if that is known for this version."""
        life = life_of_flag(flag)
        differed = life.values_in(self.version) if life else None
        if differed is not None:
            return differed.default
        if not self.is_sure:
            return None
        spec = self.table.spec(flag)
        return V1_DEFAULTS.get(flag, spec.default if spec else None)


@dataclass(frozen=True)
class EnvEdit:
    name: str
    value: str | None
    """None removes the variable."""


@dataclass(frozen=True)
class Edits:
    """The edits that a change requests for one pod template, parsed and checked one by one."""

    flags: tuple[FlagEdit, ...] = ()
    variables: tuple[EnvEdit, ...] = ()
    image: str = ""


def image_wanted(wanted: Any) -> str:
    """Returns the image of the edits before they are checked: it sets the version they are checked against."""
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return ""
    named = [edit["image"] for edit in wanted if isinstance(edit, Mapping) and edit.keys() == {"image"}]
    if len(named) > 1:
        raise impossible("the image is edited twice")
    if named and not re.fullmatch(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?", str(named[0])):
        raise impossible(f"{named[0]!r} is not an image's name")
    return str(named[0]) if named else ""


def check_edits(wanted: Any, engine: Engine) -> Edits:
    """Returns the edits with full names and parsed values; raise `NoPlanError` for an invalid one."""
    if wanted == []:  # what is written is never empty: the check of a playbook refuses that
        raise impossible("no edits given: the 'when' of each is false or unknown")
    if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
        raise impossible("no edits given", FORMS)
    flags: list[FlagEdit] = []
    variables: list[EnvEdit] = []
    for edit in wanted:
        match edit:
            case {"flag": flag, "value": value} if len(edit) == 2:
                flags.append(check_flag(flag, value, engine))
            case {"env": name, "value": value} if len(edit) == 2:
                variables.append(_checked_variable(name, value, engine))
            case {"image": _} if len(edit) == 1:
                continue
            case _:
                raise impossible(f"not an edit: {edit!r}", FORMS)
    if len({edit.flag for edit in flags}) < len(flags):
        raise impossible("one flag is edited twice")
    if len({edit.name for edit in variables}) < len(variables):
        raise impossible("one variable is edited twice")
    return Edits(tuple(flags), tuple(variables), image_wanted(wanted))


def check_flag(flag: Any, value: Any, engine: Engine) -> FlagEdit:
    option = str(flag) if re.fullmatch(r"-[A-Za-z]\w*(\..+)?", str(flag)) else "--" + str(flag).lstrip("-")
    name = engine.table.name_of(option)
    known = name or normalised(option)
    if isinstance(value, Mapping | list):
        value = json.dumps(value, separators=(",", ":"))
    if value is None:
        return FlagEdit(known, None)
    if fault := fault_of_flag(known, engine.version, on_v0=engine.on_v0):
        raise impossible(fault)
    if name is None:
        if engine.is_sure:
            close = difflib.get_close_matches(option, engine.table.flags, n=1)
            raise impossible(
                f"vLLM {engine.table.version} has no flag {option}", f"did you mean {close[0]}?" if close else ""
            )
        return FlagEdit(known, value)
    if name == CONFIG:
        raise impossible("another config file is another set of flags: edit the flags themselves")
    return FlagEdit(name, _checked_value(name, value, engine), spelled=text_of(value))


def fault_of_value(flag: str, value: FlagValue) -> str:
    """Why no engine takes this value; empty if one may. The version is not known, so its choices do not count."""
    try:
        # A version without a table: the flag's type and range are those of the newest one.
        _checked_value(newest_table().name_of(flag) or flag, value, Engine(""))
    except NoPlanError as error:
        return error.reason
    return ""


def _checked_value(name: str, value: Any, engine: Engine) -> FlagValue:
    spec = engine.spec(name)
    try:
        read = parse_value(spec, value)
    except FlagValueError as error:
        raise impossible(f"{name} {error}") from None
    if spec is not None and spec.choices and text_of(read) not in spec.choices:
        raise impossible(f"{name} takes one of {', '.join(spec.choices)} in vLLM {engine.version}, not {text_of(read)}")
    if name in RANGES and not isinstance(read, str):
        least, most, text = RANGES[name]
        if not least <= read <= most or (name == "--max-model-len" and read == 0):
            raise impossible(f"{name} has to be {text}, not {read}")
    return read


def _checked_variable(name: Any, value: Any, engine: Engine) -> EnvEdit:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
        raise impossible(f"{name!r} is not a variable's name")
    if value is None:
        return EnvEdit(name, None)
    if not isinstance(value, str | int | float):
        raise impossible(f"{name} takes a text, not {value!r}")
    if fault := fault_of_variable(name, engine.version):
        raise impossible(fault)
    return EnvEdit(name, ("1" if value else "0") if isinstance(value, bool) else text_of(value))


def changes_nothing(edit: FlagEdit, flags: FlagsInSpec, engine: Engine) -> bool:
    present = flags.values.get(edit.flag)
    if edit.value is None:
        return present is None
    if present is None:
        default = engine.default(edit.flag)
        return default is not None and default == edit.value
    return present == edit.value or number_of(present, engine.table, edit.flag) == edit.value


def number_of(written: str | bool, table: FlagTable, flag: str) -> FlagValue | None:
    """Returns a written value as the engine parses it; None if it would not (an unexpanded `$(VAR)`)."""
    try:
        return parse_value(table.spec(flag), written)
    except FlagValueError:
        return None


def broken_rule(flags: FlagsInSpec, edited: set[str], engine: Engine) -> str:
    """Returns the first rule between flags that the edited command line breaks, in words; empty if none."""
    known: dict[str, FlagValue] = {}
    for flag, written in flags.values.items():
        value = number_of(written, engine.table, flag)
        if value is not None:
            known[flag] = value
    numbers = {flag: float(value) for flag, value in known.items() if not isinstance(value, str)}
    engines = engines_of_server(
        flags.values, numbers.get("--data-parallel-size", 1), numbers.get("--data-parallel-size-local")
    )
    return (
        _order(numbers, edited)
        or _chunking(numbers, edited)
        or _queue(numbers, edited, engines)
        or _ineffective(numbers, edited)
        or _dotted(flags, edited)
    )


EXTERNAL_BALANCE = (
    "--data-parallel-external-lb",
    "--data-parallel-rank",  # implies the first
    "--data-parallel-multi-port-external-lb",
)


def engines_of_server(flags: Container[str], total: float, local: float | None) -> float:
    """Returns how many engines one API server has: all, those of its node, or one, as a router balances between them.

    `flags`: those that are set. `total`, `local`: `--data-parallel-size` and `--data-parallel-size-local`.
    """
    if any(flag in flags for flag in EXTERNAL_BALANCE):
        return 1.0
    return local or total if "--data-parallel-hybrid-lb" in flags else total


ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Releases of PyTorch before 2.9 do not read the first name; later ones read it before the others."""


def broken_allocator(variables: Sequence[EnvEdit], flags: FlagsInSpec, engine: Engine) -> str:
    """Expandable segments crash starts with several ranks (custom all-reduce) and are refused with a KV connector."""
    if not any(v.name in ALLOCATOR and "expandable_segments:true" in (v.value or "").lower() for v in variables):
        return ""
    for flag in ("--tensor-parallel-size", "--data-parallel-size"):
        ranks = number_of(flags.values.get(flag, "1"), engine.table, flag)
        if ranks != 1:
            return f"expandable_segments needs {flag} 1, and it is {flags.values[flag]}: the engine would not start"
    refused = next((f for f in ("--kv-transfer-config", "--enable-sleep-mode") if flags.values.get(f)), "")
    return f"expandable_segments does not go together with {refused}" if refused else ""


def faults_of_engine(flags: FlagsInSpec, engine: Engine) -> list[str]:
    """Returns flags that this version refuses: with another image they decide whether it starts at all."""
    found = []
    for flag in flags.values:
        life = life_of_flag(flag)
        fault = (
            fault_of_flag(flag, engine.version, on_v0=engine.on_v0)
            if life and not _is_only_ignored(flag, engine)
            else ""
        )
        if not fault and engine.is_sure and engine.table.name_of(flag) is None:
            fault = f"vLLM {engine.version} has no flag {flag}"
        if fault:
            found.append(fault)
    return found


def _is_only_ignored(flag: str, engine: Engine) -> bool:
    life = life_of_flag(flag)
    return life is not None and not life.is_gone(engine.version) and not life.is_yet_to_come(engine.version)


def edit_in_words(edit: FlagEdit) -> str:
    value = shown_value(edit.flag, edit.text)
    if edit.value is None:
        return f"no {edit.flag}"
    return f"{edit.flag} {'on' if edit.value is True else 'off' if edit.value is False else value}"


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


def _queue(numbers: Numbers, edited: set[str], engines: float) -> str:
    queue = numbers.get("--max-num-queued-reqs")
    # The lower of both caps applies.
    caps = [numbers[cap] for cap in ("--max-num-seqs", "--max-num-active-seqs") if cap in numbers]
    running = min(caps, default=None)
    if "--max-num-queued-reqs" in edited and queue is not None and running is not None and queue < running * engines:
        return (
            f"--max-num-queued-reqs counts running requests too: {queue:.0f} is less than the"
            f" {running * engines:.0f} that may run, which sheds load of a healthy engine"
        )
    return ""


def _ineffective(numbers: Numbers, edited: set[str]) -> str:
    if "--gpu-memory-utilization" in edited and "--kv-cache-memory-bytes" in numbers:
        return "--gpu-memory-utilization is ignored while --kv-cache-memory-bytes is set"
    return ""


def _dotted(flags: FlagsInSpec, edited: set[str]) -> str:
    """The engine merges the dotted keys of a flag, and the result replaces a value written as a whole."""
    for flag in sorted(edited & flags.values.keys()):
        whole = flag.partition(".")[0]
        if flag != whole and whole in flags.values:
            return f"{flag} would replace all of {whole}, which is written as one value: give the whole value"
        if flag == whole and any(other.startswith(whole + ".") for other in flags.values):
            return f"{whole} is written key by key ({whole}.…): edit its keys"
    return ""
