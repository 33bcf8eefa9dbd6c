"""Edits flags in place, in the author's spelling: in a list, a shell string, a variable or a config file.

Each edit returns new copies of the pod template and of the ConfigMaps; the rest keeps every character.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.cluster.json_patch import parts_of, value_at
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.command_words import Place, Spot, Word, references_to
from bot.domain.flags.config_file import entries_of, with_line, with_switch, with_value, without
from bot.domain.flags.flag_table import FlagSpec, FlagTable
from bot.domain.flags.flags_in_spec import CONFIG, FlagEdit, FlagsInSpec, WrittenFlag, flags_of_template
from bot.domain.kernel.errors import impossible

_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")


@dataclass(frozen=True)
class Written:
    """A pod template and the ConfigMaps that it reads, before or after some edits."""

    template: Obj
    config_maps: Mapping[str, Obj]

    def text(self, place: Place) -> Any:
        return value_at(self._document(place), place.path)

    def with_text(self, place: Place, value: Any) -> Written:
        document = copy.deepcopy(self._document(place))
        *parents, last = parts_of(place.path)
        holder: Any = document
        for part in parents:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        holder[int(last) if isinstance(holder, list) else last] = value
        if place.config_map:
            return Written(self.template, {**self.config_maps, place.config_map: document})
        return Written(document, self.config_maps)

    def _document(self, place: Place) -> Obj:
        return self.config_maps[place.config_map] if place.config_map else self.template


@dataclass(frozen=True)
class Pen:
    """How one edit is written: with which table, and whether only the command line may be changed."""

    table: FlagTable
    only_template: bool = False
    """A canary shares ConfigMaps with the other replicas; the command line takes precedence over them."""

    def read(self, written: Written) -> FlagsInSpec:
        return flags_of_template(written.template, self.table, written.config_maps)


def with_flag(written: Written, edit: FlagEdit, pen: Pen) -> Written:
    """Raise `NoPlanError` if the value cannot be written in its place."""
    flags = pen.read(written)
    if edit.value is None:
        return _without_flag(written, flags, edit, pen)
    present = flags.last(edit.flag)
    if present is None or _is_out_of_reach(present, flags, pen):
        return _with_new_flag(written, flags, edit, pen)
    if present.entry is not None:
        return _with_entry(written, flags, present, edit, pen.table.spec(edit.flag))
    return _with_words(written, flags, present, edit, pen)


def _is_out_of_reach(present: WrittenFlag, flags: FlagsInSpec, pen: Pen) -> bool:
    held = [_spot(word, present, flags).place.config_map for word in present.words]
    return pen.only_template and (present.entry is not None or any(held))


# --- on the command line ----------------------------------------------------------------------------------------------

Change = tuple[Spot, Sequence[str]]
"""The replacement at a spot: no words remove it."""


def _with_words(written: Written, flags: FlagsInSpec, present: WrittenFlag, edit: FlagEdit, pen: Pen) -> Written:
    spec, first = pen.table.spec(edit.flag), present.words[0]
    if isinstance(edit.value, bool) and (spec is None or spec.is_switch):
        words = switch_words(present.option, spec, is_on=edit.value)
        spots = [_spot(word, present, flags) for word in present.words]
        return _rewritten(written, [(spots[0], words), *((spot, ()) for spot in spots[1:])], flags)
    holder = first if present.joined else (present.words[1] if len(present.words) == 2 else None)
    if holder is not None and (place := _own_variable(holder, present, written, flags, pen)):
        return written.with_text(place, _same_blanks(written.text(place), edit.text))
    if present.joined or len(present.words) == 1:
        word = f"{present.option}={_quoted_alike(written, first, edit.text, after='=')}"
        return _rewritten(written, [(_spot(first, present, flags), (word,))], flags, is_quoted=first.in_shell)
    second, *more = present.words[1:]
    value = _quoted_alike(written, second, edit.text)
    spots = [_spot(word, present, flags) for word in more]
    changes: list[Change] = [(_spot(second, present, flags), (value,)), *((spot, ()) for spot in spots)]
    return _rewritten(written, changes, flags, is_quoted=second.in_shell)


def _own_variable(word: Word, present: WrittenFlag, written: Written, flags: FlagsInSpec, pen: Pen) -> Place | None:
    """Returns the text of the variable that holds only this value and has no other use."""
    variable = flags.variables.by_name.get(word.variable)
    if variable is None or variable.place is None or present.words[0].inner is not None:
        return None
    if variable.place.config_map and pen.only_template:
        return None
    container = written.template["spec"]["containers"][flags.container_index]
    return variable.place if references_to(word.variable, container) == 1 else None


def _same_blanks(before: Any, text: str) -> str:
    """A ConfigMap's value often ends in a line break."""
    bare = str(before).strip()
    return str(before).replace(bare, text, 1) if bare else text


def _spot(word: Word, present: WrittenFlag, flags: FlagsInSpec) -> Spot:
    """Returns where to edit this word: in the variable that its option came from, else on the command line."""
    if word.inner is None:
        return word.spot
    if present.words[0].inner is not None:
        return word.inner
    shares = [other for other in flags.words if other.spot == word.spot and other not in present.words]
    return word.inner if shares else word.spot


def _rewritten(written: Written, changes: Sequence[Change], flags: FlagsInSpec, *, is_quoted: bool = False) -> Written:
    """Applies every change at its spot, from last to first, so that earlier positions stay valid."""
    places = {spot.place for spot, _ in changes}
    for place in places:
        here = dict.fromkeys((spot.start, spot.end) for spot, _ in changes if spot.place == place)
        words_at = {(spot.start, spot.end): words for spot, words in changes if spot.place == place}
        for start, end in sorted(here, reverse=True):
            spot, words = Spot(place, start, end), words_at[start, end]
            written = written.with_text(place, _spliced(written.text(place), spot, words, flags, is_quoted=is_quoted))
    return written


def _spliced(held: Any, spot: Spot, words: Sequence[str], flags: FlagsInSpec, *, is_quoted: bool) -> Any:
    if isinstance(held, list):
        return [*held[: spot.start], *words, *held[spot.end :]]
    is_ready = is_quoted and _is_script(spot.place, flags)
    text = " ".join(words if is_ready else [_in_text(word, spot.place, flags) for word in words])
    if words:
        return held[: spot.start] + text + held[spot.end :]
    before, behind = held[: spot.start], held[spot.end :]
    # Remove the gap before the word too, so that no line continuation is left alone.
    gap = re.search(r"(?:[ \t]|\\\n)+\Z", before)
    return (before[: gap.start()] if gap else before) + (behind if gap else behind.lstrip(" "))


def _in_text(word: str, place: Place, flags: FlagsInSpec) -> str:
    if _is_script(place, flags):
        return shlex.quote(word)
    if not word or re.search(r"\s", word):
        raise impossible(f"{word!r} cannot be written into a variable that is split at blanks", "set the variable")
    return word


def _is_script(place: Place, flags: FlagsInSpec) -> bool:
    return any(word.in_shell and word.spot.place == place for word in flags.words)


def _quoted_alike(written: Written, word: Word, text: str, *, after: str = "") -> str:
    """Returns the value in the quotes that the author used in the script; elsewhere unchanged."""
    if not word.in_shell or word.inner is not None:
        return text
    raw = str(written.text(word.spot.place))[word.spot.start : word.spot.end]
    if after:
        raw = raw.partition(after)[2]
    quote = raw[:1] if len(raw) > 1 and raw[:1] == raw[-1:] and raw[:1] in "'\"" else ""
    if quote and _PLAIN_WORD.fullmatch(text):
        return f"{quote}{text}{quote}"
    return shlex.quote(text)


def switch_words(option: str, spec: FlagSpec | None, *, is_on: bool) -> list[str]:
    """Returns a switch with the author's kind of dashes; one without a `--no-` form is removed to switch it off."""
    bare = re.sub(r"^--(no[-_])?", "", option)
    if is_on:
        return [f"--{bare}"]
    if spec is not None and spec.type == "true":
        return []
    return [f"--no{'_' if '_' in bare and '-' not in bare else '-'}{bare}"]


def _with_new_flag(written: Written, flags: FlagsInSpec, edit: FlagEdit, pen: Pen) -> Written:
    """Adds it after the last flag of the command line, in the form that most of its flags have."""
    spec = pen.table.spec(edit.flag)
    on_line = [flag for flag in flags.written if flag.words]
    only_file = flags.config_file is not None and all(flag.name == CONFIG for flag in on_line)
    if only_file and not pen.only_template:
        return _with_new_entry(written, flags, edit, spec)
    if isinstance(edit.value, bool) and (spec is None or spec.is_switch):
        words = switch_words(edit.flag, spec, is_on=edit.value)
    else:
        with_value = [flag for flag in on_line if not isinstance(flag.value, bool)]
        joined = sum(flag.joined for flag in with_value) * 2 >= len(with_value)
        words = [f"{edit.flag}={edit.text}"] if joined else [edit.flag, edit.text]
    return _appended(written, flags, on_line, words, pen)


def _appended(
    written: Written, flags: FlagsInSpec, on_line: Sequence[WrittenFlag], words: Sequence[str], pen: Pen
) -> Written:
    if dashes := next((word.spot for word in flags.words if word.text == "--"), None):
        return _inserted(written, flags, dashes, words)
    last = on_line[-1].words[-1] if on_line else None
    inner = last.inner if last is not None and on_line[-1].words[0].inner is not None else None
    if inner is not None and not (pen.only_template and inner.place.config_map):
        place, end = inner.place, inner.end
    else:
        place = last.spot.place if last is not None and not last.in_shell and inner is None else flags.home
        in_place = [word.spot.end for word in flags.words if word.spot.place == place]
        end = max(in_place, default=0)
    held = written.text(place)
    if not isinstance(held, str):
        return _with_list(written, place, [*(held if isinstance(held, list) else []), *words])
    text = " ".join(_in_text(word, place, flags) for word in words)
    return written.with_text(place, f"{held[:end]} {text}{held[end:]}")


def _inserted(written: Written, flags: FlagsInSpec, dashes: Spot, words: Sequence[str]) -> Written:
    """Adds a flag before `--`: behind it the engine takes no more."""
    place, at, held = dashes.place, dashes.start, written.text(dashes.place)
    if isinstance(held, str):
        text = " ".join(_in_text(word, place, flags) for word in words)
        return written.with_text(place, f"{held[:at]}{text} {held[at:]}")
    elements = held if isinstance(held, list) else []
    return _with_list(written, place, [*elements[:at], *words, *elements[at:]])


def _with_list(written: Written, place: Place, elements: list[str]) -> Written:
    return written.with_text(place, elements)


def _without_flag(written: Written, flags: FlagsInSpec, edit: FlagEdit, pen: Pen) -> Written:
    """Removes every occurrence: otherwise an earlier one would take effect."""
    while (present := flags.last(edit.flag)) is not None:
        if _is_out_of_reach(present, flags, pen):
            raise impossible(
                f"{edit.flag} stands in a ConfigMap that the running replicas read too", "give it another value instead"
            )
        if present.entry is not None:
            assert flags.config_file is not None
            written = written.with_text(flags.config_file, without(written.text(flags.config_file), present.entry))
        else:
            spots = [_spot(word, present, flags) for word in present.words]
            written = _rewritten(written, [(spot, ()) for spot in spots], flags)
        flags = pen.read(written)
    return written


# --- in the config file -----------------------------------------------------------------------------------------------


def _with_entry(
    written: Written, flags: FlagsInSpec, present: WrittenFlag, edit: FlagEdit, spec: FlagSpec | None
) -> Written:
    place, entry = flags.config_file, present.entry
    assert place is not None
    assert entry is not None
    text = written.text(place)
    if isinstance(edit.value, bool) and (spec is None or spec.is_switch):
        words = switch_words(entry.option, spec, is_on=edit.value)
        new = with_switch(text, entry, words[0].removeprefix("--")) if words else without(text, entry)
        return written.with_text(place, new)
    if not entry.is_scalar:
        raise impossible(f"{edit.flag} is more than one line of the config file", "edit the ConfigMap by hand")
    return written.with_text(place, with_value(text, entry, edit.text))


def _with_new_entry(written: Written, flags: FlagsInSpec, edit: FlagEdit, spec: FlagSpec | None) -> Written:
    place = flags.config_file
    assert place is not None
    text = written.text(place)
    key, value = edit.flag, edit.text
    if isinstance(edit.value, bool) and (spec is None or spec.is_switch):
        words = switch_words(edit.flag, spec, is_on=edit.value)
        if not words:
            return written
        key, value = words[0], "true"
    keys = "".join(entry.key for entry in entries_of(text))
    key = key.removeprefix("--")
    return written.with_text(place, with_line(text, key.replace("-", "_") if _is_underscored(keys) else key, value))


def _is_underscored(keys: str) -> bool:
    return "_" in keys and "-" not in keys
