"""The engine flags of a pod template: where each one is written, and the same lists with some of them edited.

The author's spelling is kept: `--a-b=v`, `--a_b v`, `--no-x`. The last of several wins, as in the engine. A command
line hidden in a shell string is not parsed: `unparsable` says so, and nothing is edited by guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bot.domain.change.flag_table import FlagSpec, FlagTable, FlagValue, newest_table, normalised, text_of
from bot.domain.change.objects import dig
from bot.domain.change.world import Obj

Where = Literal["command", "args"]
SHELLS = ("sh", "bash", "ash", "dash", "zsh")
ENGINE_WORDS = ("vllm", "api_server", "openai")
_NUMBER = re.compile(r"^-\d+(\.\d+)?$")


@dataclass(frozen=True)
class WrittenFlag:
    """One occurrence of a flag in `command` or `args`."""

    name: str
    """The flag's full name (`--max-num-seqs`), however it was written."""
    option: str
    """As written, without `=value`."""
    value: str | bool
    where: Where
    index: int
    length: int
    """How many list elements it takes: 1 for `--a=b` and switches."""
    joined: bool
    """Whether the value follows after `=`."""


@dataclass(frozen=True)
class FlagsInSpec:
    container: str = ""
    container_index: int = 0
    image: str = ""
    lists: Mapping[Where, tuple[str, ...]] = field(default_factory=dict)
    written: tuple[WrittenFlag, ...] = ()
    unparsable: str = ""
    """Why the flags cannot be known; empty when they are."""

    @property
    def values(self) -> dict[str, str | bool]:
        """Flag to value, the last one written wins."""
        return {flag.name: flag.value for flag in self.written}

    def last(self, name: str) -> WrittenFlag | None:
        return next((flag for flag in reversed(self.written) if flag.name == name), None)


def engine_container(template: Obj) -> tuple[int, Obj] | None:
    """The container that runs the engine: the only one, else the one whose image or command line names it."""
    containers = dig(template, "spec", "containers") or []
    if len(containers) == 1:
        return 0, containers[0]
    for index, container in enumerate(containers):
        said = " ".join([container.get("image", ""), container.get("name", ""), *_words(container)])
        if any(word in said for word in ENGINE_WORDS):
            return index, container
    return None


def flags_of_template(template: Obj, table: FlagTable | None = None) -> FlagsInSpec:
    """Flags of a pod template or of a pod (both carry `spec.containers`)."""
    found = engine_container(template)
    if found is None:
        return FlagsInSpec(unparsable="no container of it is recognised as the engine")
    index, container = found
    command, args = list(container.get("command") or []), list(container.get("args") or [])
    known = FlagsInSpec(
        container=container.get("name", ""),
        container_index=index,
        image=container.get("image", ""),
        lists={"command": tuple(command), "args": tuple(args)},
    )
    if reason := _shell(command or args):
        return FlagsInSpec(known.container, index, known.image, known.lists, unparsable=reason)
    if any(normalised(word) == "--config" for word in command + args):
        return FlagsInSpec(
            known.container, index, known.image, known.lists, unparsable="its flags come from a --config file"
        )
    table = table or newest_table()
    written = (*_written("command", command, table), *_written("args", args, table))
    return FlagsInSpec(known.container, index, known.image, known.lists, written)


def _words(container: Obj) -> list[str]:
    return [*(container.get("command") or []), *(container.get("args") or [])]


def _shell(words: Sequence[str]) -> str:
    program = words[0].rsplit("/", 1)[-1] if words else ""
    if program in SHELLS and any(re.fullmatch(r"-\w*c", word) for word in words[1:]):
        return f"its command line is one string for `{program} -c`, which is not taken apart"
    return ""


def _written(where: Where, words: Sequence[str], table: FlagTable) -> list[WrittenFlag]:
    found: list[WrittenFlag] = []
    index = 0
    while index < len(words):
        flag = _flag_at(where, words, index, table)
        if flag is not None:
            found.append(flag)
        index += flag.length if flag is not None else 1
    return found


def _flag_at(where: Where, words: Sequence[str], index: int, table: FlagTable) -> WrittenFlag | None:
    word = words[index]
    option, equals, behind = word.partition("=")
    if not option.startswith("-") or _NUMBER.match(option):
        return None
    name = table.name_of(option)
    # A single dash is an option only if the engine knows it (`-tp`); `python -m module` is not one.
    if name is None and not option.startswith("--"):
        return None
    spec = table.spec(name) if name else None
    if equals:
        return WrittenFlag(name or normalised(option), option, behind, where, index, 1, joined=True)
    if spec is not None and spec.is_switch:
        is_on = not (spec.type == "switch" and normalised(option).startswith("--no-"))
        return WrittenFlag(name or option, option, is_on, where, index, 1, joined=False)
    count = _values_behind(words, index, spec)
    value: str | bool = " ".join(words[index + 1 : index + 1 + count]) if count else True
    return WrittenFlag(name or normalised(option), option, value, where, index, 1 + count, joined=False)


def _values_behind(words: Sequence[str], index: int, spec: FlagSpec | None) -> int:
    """How many of the next words belong to this flag."""
    most = len(words) if spec is not None and spec.many else 1
    count = 0
    for word in words[index + 1 :]:
        if count == most or (word.startswith("-") and not _NUMBER.match(word)):
            break
        count += 1
    return count


@dataclass(frozen=True)
class FlagEdit:
    flag: str
    """The full name."""
    value: FlagValue
    """As the engine reads it."""
    spelled: str = ""
    """As the author of the edit wrote it (`6G`)."""

    @property
    def text(self) -> str:
        return self.spelled or text_of(self.value)


def with_edits(flags: FlagsInSpec, edits: Sequence[FlagEdit], table: FlagTable) -> dict[Where, list[str]]:
    """The lists with every edit written into them. Only for flags that could be parsed."""
    for edit in edits:
        flags = _with_edit(flags, edit, table)
    return {where: list(words) for where, words in flags.lists.items()}


def _with_edit(flags: FlagsInSpec, edit: FlagEdit, table: FlagTable) -> FlagsInSpec:
    spec, present = table.spec(edit.flag), flags.last(edit.flag)
    lists = {where: list(words) for where, words in flags.lists.items()}
    if present is not None:
        new_words = _rewritten(present, edit, spec)
        lists[present.where][present.index : present.index + present.length] = new_words
    else:
        lists[_home(flags)] += _appended(flags, edit, spec)
    words: dict[Where, tuple[str, ...]] = {where: tuple(words) for where, words in lists.items()}
    written = [flag for where in words for flag in _written(where, words[where], table)]
    return FlagsInSpec(flags.container, flags.container_index, flags.image, words, tuple(written))


def _rewritten(present: WrittenFlag, edit: FlagEdit, spec: FlagSpec | None) -> list[str]:
    if isinstance(edit.value, bool) and (spec is None or spec.is_switch):
        return _switch_words(present.option, spec, is_on=edit.value)
    if present.joined or present.length == 1:
        return [f"{present.option}={edit.text}"]
    return [present.option, edit.text]


def _switch_words(option: str, spec: FlagSpec | None, *, is_on: bool) -> list[str]:
    """A switch in the author's spelling of dashes; one without a `--no-` form is taken away to switch it off."""
    bare = re.sub(r"^--(no[-_])?", "", option)
    if is_on:
        return [f"--{bare}"]
    if spec is not None and spec.type == "true":
        return []
    return [f"--no{'_' if '_' in bare and '-' not in bare else '-'}{bare}"]


def _appended(flags: FlagsInSpec, edit: FlagEdit, spec: FlagSpec | None) -> list[str]:
    if isinstance(edit.value, bool) and (spec is None or spec.is_switch):
        return _switch_words(edit.flag, spec, is_on=edit.value)
    with_value = [flag for flag in flags.written if not isinstance(flag.value, bool)]
    joined = sum(flag.joined for flag in with_value) * 2 >= len(with_value)
    return [f"{edit.flag}={edit.text}"] if joined else [edit.flag, edit.text]


def _home(flags: FlagsInSpec) -> Where:
    """Where a new flag goes: behind the last one that is there; else `args`, unless only `command` is used."""
    if flags.written:
        return flags.written[-1].where
    return "command" if flags.lists.get("command") and not flags.lists.get("args") else "args"
