"""Playbooks from YAML files (1.2: `on` and `no` are texts). Reports all faults at once, with file, line and column.

Anchors, aliases, tags and repeated keys are refused: a file must be readable without following references.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, Protocol

import yaml

from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.bundle import Bundle, diverts_of
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.edges import Origin
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.files import playbooks_in
from bot.domain.playbooks.library import SETTINGS, Library
from bot.domain.playbooks.loading.check import Checked, check, recompile
from bot.domain.playbooks.loading.check_paths import NOTHING_OPENS
from bot.domain.playbooks.loading.fragment import Fragments, ReadFragment, read_fragment
from bot.domain.playbooks.loading.include import expand
from bot.domain.playbooks.loading.link import Known, link_faults, slim
from bot.domain.playbooks.loading.overrides import OnTarget, together_on, values_of_override
from bot.domain.playbooks.loading.yaml_words import Spot, told
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.settings import Override
from bot.domain.playbooks.source import Position, Source, owner_of
from bot.domain.signals.signal import Value
from bot.probes.catalogue import PROBES

FRAGMENTS = "fragments"
"""The folder of fragments, beside the playbooks."""
NO_FRAGMENTS: Fragments = MappingProxyType({})
NOTHING: Mapping[str, str] = MappingProxyType({})
MAX_BYTES = 512 * 1024
MAX_DEPTH = 30
SETTLED_SECONDS = 5.0
"""Longer than one tick of a file system's clock: 2 s where it is the longest."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
r"""Half a character, as from the escape `\ud83d`: no file, database or expression accepts it."""
STANDS_FOR_A_VALUE = {"ScalarEvent", "SequenceStartEvent", "MappingStartEvent"}
_Files = Mapping[str, tuple[str, str | Fault]]
"""Fragments by name: the file, and its text or why it cannot be read."""
Event = Any
"""PyYAML's or ruamel's: they have the same names and marks."""


class CheckedBefore(Protocol):
    """Playbooks that were found sound before."""

    def read(self, path: FilePath, text: str, fragments: Mapping[str, tuple[str, str]]) -> Checked | None:
        """Returns the playbook of this file; None if it has to be checked. `fragments`: their files and texts."""
        ...

    def keep(self, path: FilePath, checked: Checked) -> None:
        """Keeps it if it is sound."""
        ...


def load_playbook(
    path: FilePath, overrides: Mapping[str, str] | None = None, *, place: str = SETTINGS
) -> CompiledPlaybook:
    """Raises `PlaybookError` with all faults of the file, or of the overrides that are written at `place`."""
    return _sound(check_file(path, overrides or {}, place=place))


def origins_in(path: FilePath) -> Mapping[str, Origin]:
    """States of a valid playbook that come from a fragment, by the fragment's own names."""
    fragments = fragments_beside(path)
    text = _text_of(path)
    source = _read_source(text, str(path)) if isinstance(text, str) else None
    expanded = expand(source, fragments) if source else None
    if source is None or expanded is None or expanded.source is None:
        return {}
    includes = [str(where[1]) for where in source.keys if len(where) == 3 and where[::2] == ("states", "include")]
    own = {
        (read.source.file, at.line): (name, str(where[1]))
        for name, read in fragments.items()
        if read.source is not None
        for where, at in read.source.keys.items()
        if len(where) == 2 and where[0] == "states"
    }
    found: dict[str, Origin] = {}
    for where, at in expanded.source.keys.items():
        if len(where) == 2 and where[0] == "states" and (at.file, at.line) in own:
            fragment, state = own[at.file, at.line]
            found[str(where[1])] = Origin(fragment, state, include=owner_of(str(where[1]), includes))
    return found


def load_text(
    text: str,
    overrides: Mapping[str, str] | None = None,
    *,
    file: str = "playbook",
    fragments: Mapping[str, str] = NOTHING,
) -> CompiledPlaybook:
    return _sound(check_text(text, overrides or {}, file=file, fragments=fragments_of(fragments)))


class StoredPlaybooks:
    """Rebuilds the playbooks of a run's start, with the settings of that time; newer rules of the check do not stop it.

    Compiling one takes a second, so a playbook that is in force with the same text is taken from there.
    """

    def __init__(self, in_force: Callable[[], Mapping[str, CompiledPlaybook]] = dict) -> None:
        self._in_force = in_force

    def __call__(self, stored: Mapping[str, str]) -> Bundle:
        return Bundle(stored["entry"], _WhenNeeded(json.loads(stored["playbooks"]), self._in_force))


class _WhenNeeded(Mapping[str, CompiledPlaybook]):
    """Stored playbooks, each compiled when a run first enters it: most runs never leave the first."""

    def __init__(
        self, kept: Mapping[str, Mapping[str, Any]], in_force: Callable[[], Mapping[str, CompiledPlaybook]]
    ) -> None:
        self._kept, self._in_force = kept, in_force
        self._compiled: dict[str, CompiledPlaybook] = {}

    def __getitem__(self, name: str) -> CompiledPlaybook:
        if name not in self._compiled:
            kept, current = self._kept[name], self._in_force().get(name)
            if current is not None and {**current.texts(), "settings": kept["settings"]} == kept:
                self._compiled[name] = current.with_settings(kept["settings"])
            else:
                self._compiled[name] = _from_stored(kept)
        return self._compiled[name]

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _from_stored(kept: Mapping[str, Any]) -> CompiledPlaybook:
    fragments = {
        name: _read_fragment(name, fragment["source"], fragment["file"]) for name, fragment in kept["fragments"].items()
    }
    return recompile(_read_source(kept["source"], kept["file"]), fragments, kept["settings"], PROBES)


def load_folder(folder: FilePath, *overrides: Override) -> Library:
    return load_folders((folder,), overrides)


def with_packaged(folder: FilePath) -> tuple[FilePath, ...]:
    """A user's own folder as it is served: over the packaged one."""
    packaged = packaged_playbooks()
    return (folder,) if folder.resolve() == packaged.resolve() else (packaged, folder)


def load_folders(
    folders: Sequence[FilePath], overrides: Sequence[Override] = (), *, before: CheckedBefore | None = None
) -> Library:
    """Every `*.yaml` of the folders except `*.test.yaml`; of files with one name the last folder's counts.

    `before`: those that were found sound before are not checked again, unless a fault is found, whose exact place only
    the check knows.
    """
    if before is not None:
        library = _loaded(folders, overrides, before)
        if not library.faults:
            return library
    return _loaded(folders, overrides, None)


def _loaded(folders: Sequence[FilePath], overrides: Sequence[Override], before: CheckedBefore | None) -> Library:
    fragments = {folder: _fragments_in(folder / FRAGMENTS) for folder in folders}
    home = packaged_playbooks()
    packaged = fragments[home] if home in fragments else _fragments_in(home / FRAGMENTS)
    playbooks: dict[str, CompiledPlaybook] = {}
    faults: dict[str, tuple[Fault, ...]] = {}
    warnings: dict[str, tuple[Fault, ...]] = {}
    for path in {path.stem: path for folder in folders for path in playbooks_in(folder)}.values():
        checked = _checked(path, {**packaged, **fragments[path.parent]}, before)
        found = checked.compiled
        if found is not None and found.name in playbooks:
            faults[str(path)] = (Fault(str(path), f"'{found.name}' is also in {playbooks[found.name].file}"),)
        elif found is not None:
            playbooks[found.name] = slim(found)
        else:
            faults[str(path)] = checked.faults
        if checked.warnings:
            warnings[str(path)] = checked.warnings
    included = {each.file for playbook in playbooks.values() for each in playbook.fragments}
    unread = {file: (name, text) for own in fragments.values() for name, (file, text) in own.items()}
    broken = {file: _read_fragment(*each, file).faults for file, each in unread.items() if file not in included}
    faults = {file: found for file, found in broken.items() if found} | faults
    _unlink(playbooks, faults, warnings)
    wrong = [*_unknown_names(playbooks, faults, overrides)]
    on_targets = _take_effect(playbooks, overrides, wrong)
    if wrong:
        faults[SETTINGS] = tuple(dict.fromkeys(wrong))
    return Library(playbooks, faults, warnings, on_targets)


def _checked(path: FilePath, fragments: _Files, before: CheckedBefore | None) -> Checked:
    text = _text_of(path) if before is not None else None
    texts = {name: (file, found) for name, (file, found) in fragments.items() if isinstance(found, str)}
    if before is not None and isinstance(text, str) and (known := before.read(path, text, texts)) is not None:
        return known
    read = {name: _read_fragment(name, found, file) for name, (file, found) in fragments.items()}
    checked = check_file(path, {}, fragments=read)
    if before is not None:
        before.keep(path, checked)
    return checked


def _unlink(
    playbooks: dict[str, CompiledPlaybook],
    faults: dict[str, tuple[Fault, ...]],
    warnings: dict[str, tuple[Fault, ...]],
) -> None:
    """Removes playbooks that divert to a missing one; a playbook that others divert to needs no trigger."""
    for name, compiled in list(playbooks.items()):
        known: Known = {**{FilePath(file).stem: None for file in faults}, **playbooks}
        if unlinked := tuple(link_faults(compiled, known)):
            faults[compiled.file] = unlinked
            del playbooks[name]
    for name in {name for compiled in playbooks.values() for name in diverts_of(compiled)} & playbooks.keys():
        file = playbooks[name].file
        if others := tuple(w for w in warnings.pop(file, ()) if w.what != NOTHING_OPENS):
            warnings[file] = others


def _unknown_names(
    playbooks: Mapping[str, CompiledPlaybook], faults: Mapping[str, object], overrides: Sequence[Override]
) -> Iterator[Fault]:
    refused = {FilePath(file).stem for file in faults}
    known = {name for playbook in playbooks.values() for name in playbook.settings}
    for override in overrides:
        name = override.playbook
        # A setting that nobody knows may be one of a playbook that is refused.
        for setting in [] if name or refused else sorted(override.settings.keys() - known):
            hint = did_you_mean(setting, known)
            yield Fault(override.place, f"no playbook has a setting '{setting}'", hint)
        if name and name not in playbooks and name not in refused:
            yield Fault(override.place, f"unknown playbook '{name}'", did_you_mean(name, playbooks))


def _take_effect(
    playbooks: dict[str, CompiledPlaybook], overrides: Sequence[Override], wrong: list[Fault]
) -> list[OnTarget]:
    """Applies the overrides that count everywhere. Returns those of targets, which count on top of them.

    One with a fault has no effect, and takes no playbook out of force; its faults are added to `wrong`.
    """
    on_targets: list[OnTarget] = []
    for override in sorted(overrides, key=lambda each: bool(each.target)):
        settings: dict[str, dict[str, Value]] = {}
        for playbook, own in _meant(override, playbooks):
            earlier = [each for each in on_targets if own and each[1].get(playbook.name)]
            together = together_on(override.target, earlier)
            try:
                values = [values_of_override(playbook, own, override.place, below) for below in together]
            except PlaybookError as error:
                wrong += error.faults
            else:
                settings[playbook.name] = values[0]
        if override.target:
            on_targets.append((override.target, settings))
        else:
            playbooks.update({name: playbooks[name].with_settings(values) for name, values in settings.items()})
    return on_targets


def _meant(
    override: Override, playbooks: Mapping[str, CompiledPlaybook]
) -> Iterator[tuple[CompiledPlaybook, Mapping[str, str]]]:
    """The playbooks that an override is for, each with the settings that apply to it."""
    for name, playbook in list(playbooks.items()):
        if override.playbook == name:
            yield playbook, override.settings
        elif not override.playbook:
            yield playbook, {key: text for key, text in override.settings.items() if key in playbook.settings}


def load_table(path: FilePath) -> Source:
    """A test table with its positions: a list of cases, or a mapping with `cases`."""
    text, file = _text_of(path), str(path)
    if isinstance(text, Fault):
        raise PlaybookError((text,))
    reader = _Reader(text, file)
    data = reader.document(list_as="cases")
    if not isinstance(data, dict):
        raise PlaybookError((Fault(f"{file}:1:1", "a test table is a list of cases", "Begin with '- name: …'."),))
    return Source(file, text, data, reader.values, reader.keys)


class FileHashes:
    """A hash of each file of the folders that `load_folders` reads. A file is read only when it may have changed."""

    def __init__(self, folders: Sequence[FilePath]) -> None:
        self._folders = folders
        self._known: dict[str, _Read] = {}

    def __call__(self) -> dict[str, str]:
        files = (each for folder in self._folders for each in (folder, folder / FRAGMENTS))
        found = {str(path): path for folder in files for path in sorted(folder.glob("*.yaml"))}
        self._known = {name: self._hash(name, path) for name, path in found.items()}
        return {name: read.digest for name, read in self._known.items()}

    def _hash(self, name: str, path: FilePath) -> _Read:
        written, known = _written(path), self._known.get(name)
        if known is not None and known.is_final and known.written == written:
            return known
        read_at, text = time.time(), _text_of(path)
        digest = hashlib.sha256(str(text).encode()).hexdigest()
        # Two writes within one tick of the file system's clock leave the same times. What could not be read may be
        # readable a moment later, without any write.
        is_final = written is not None and isinstance(text, str) and read_at - written.at > SETTLED_SECONDS
        return _Read(written, digest, is_final)


@dataclass(frozen=True)
class _Written:
    """What differs after a file was written. A mounted ConfigMap is replaced by another file of the same name."""

    at: float
    size: int
    inode: int


@dataclass(frozen=True)
class _Read:
    written: _Written | None
    digest: str
    is_final: bool
    """It need not be read again until it is written."""


def _written(path: FilePath) -> _Written | None:
    """None for a link without an end, or a file that has just gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _Written(max(found.st_mtime, found.st_ctime), found.st_size, found.st_ino)


def read_fragments(folder: FilePath) -> Fragments:
    """Every fragment of a folder, by the name of its file; those of a playbook are in `fragments/` beside it."""
    return {name: _read_fragment(name, text, file) for name, (file, text) in _fragments_in(folder).items()}


def _fragments_in(folder: FilePath) -> _Files:
    return {path.stem: (str(path), _text_of(path)) for path in sorted(folder.glob("*.yaml"))}


@cache
def packaged_fragments() -> Fragments:
    """The fragments that came with the bot: every playbook may include them; one of the same name beside it wins."""
    return read_fragments(packaged_playbooks() / FRAGMENTS)


def fragments_beside(path: FilePath) -> Fragments:
    """The fragments that a playbook may include."""
    return {**packaged_fragments(), **read_fragments(path.parent / FRAGMENTS)}


def fragments_of(texts: Mapping[str, str]) -> Fragments:
    """Fragments from texts, by name."""
    return {name: _read_fragment(name, text, f"{FRAGMENTS}/{name}.yaml") for name, text in texts.items()}


@lru_cache(maxsize=64)
def _read_fragment(name: str, text: str | Fault, file: str) -> ReadFragment:
    if isinstance(text, Fault):
        return ReadFragment(None, None, (text,))
    try:
        return read_fragment(name, _read_source(text, file, is_included=True))
    except PlaybookError as error:
        return ReadFragment(None, None, error.faults)


def check_file(
    path: FilePath, overrides: Mapping[str, str], *, place: str = SETTINGS, fragments: Fragments | None = None
) -> Checked:
    """`fragments`: None for a file that is checked alone, with the fragments and the playbooks beside it.

    `place`: where the overrides were written, for their faults.
    """
    text = _text_of(path)
    if isinstance(text, Fault):
        return Checked(None, (text,))
    beside = fragments_beside(path) if fragments is None else fragments
    checked = check_text(text, overrides, file=str(path), place=place, fragments=beside)
    compiled = checked.compiled
    if compiled is None:
        return checked
    if compiled.name != path.stem:
        other = Mistake(("playbook",), f"its file is called '{path.stem}'", "Give both one name: commands take it.")
        checked = replace(checked, warnings=(*checked.warnings, compiled.fault(other)))
    if fragments is not None:
        return checked
    # A playbook is seldom written in the folder that serves it: beside the packaged ones.
    others = (*playbooks_in(packaged_playbooks()), *playbooks_in(path.parent))
    neighbours = {other.stem: None for other in others}
    unlinked = tuple(link_faults(compiled, {**neighbours, compiled.name: compiled}))
    return Checked(None, unlinked) if unlinked else checked


def _text_of(path: FilePath) -> str | Fault:
    try:
        # Without waiting: a pipe in the folder may never get a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Fault(str(path), "is not a file with text", "Move it out of the folder.")
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Fault(str(path), f"the file is bigger than {MAX_BYTES // 1024} KiB")
        return content.decode("utf-8")
    except OSError as error:
        return Fault(str(path), f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return Fault(str(path), f"is not UTF-8 at byte {error.start}")


def check_text(
    text: str,
    overrides: Mapping[str, str],
    *,
    file: str = "playbook",
    place: str = SETTINGS,
    fragments: Fragments = NO_FRAGMENTS,
) -> Checked:
    try:
        checked = check(_read_source(text, file), fragments, PROBES)
        if checked.compiled is None or not overrides:
            return checked
        values = values_of_override(checked.compiled, overrides, place)
        return replace(checked, compiled=checked.compiled.with_settings(values))
    except PlaybookError as error:
        return Checked(None, error.faults)


def _sound(checked: Checked) -> CompiledPlaybook:
    if checked.compiled is None:
        raise PlaybookError(checked.faults)
    return checked.compiled


def _read_source(text: str, file: str, *, is_included: bool = False) -> Source:
    """The data with the position of everything in it; raises `PlaybookError` for anything but plain YAML."""
    reader = _Reader(text, file, names_file=is_included)
    data = reader.document()
    if not isinstance(data, dict):
        raise PlaybookError((Fault(f"{file}:1:1", "a playbook is a mapping of keys", "Begin with 'language: 1'."),))
    return Source(file, text, data, reader.values, reader.keys)


def _events(text: str, file: str) -> list[Event]:
    """The file's events, in order. libyaml reads it; a refused file is read again by a slow reader, which explains."""
    try:
        return _plain(list(yaml.parse(text, Loader=yaml.CSafeLoader)), file)
    except yaml.YAMLError:
        return _events_of_the_slow_reader(text, file)


def _events_of_the_slow_reader(text: str, file: str) -> list[Event]:
    # Imported only for a file that is not YAML.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _plain(YAML(typ="safe", pure=True).parse(text), file)
    except MarkedYAMLError as error:
        problem = _one_line(error.problem or error.context or "is not YAML")
        seen, begun = _spot(error.problem_mark or error.context_mark), _spot(error.context_mark)
        slip = told(problem, seen or Spot(0, 0), begun, text.splitlines())
        where = f"{file}:{slip.at.line + 1}:{slip.at.column + 1}"
        raise PlaybookError((Fault(where, slip.what, slip.hint),)) from error
    except YAMLError as error:
        raise PlaybookError((Fault(file, _one_line(str(error))),)) from error


def _spot(mark: Any) -> Spot | None:
    return Spot(mark.line, mark.column) if mark else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(events: Iterable[Event], file: str) -> list[Event]:
    """Refuses them before anything is built, so that a small file cannot grow into a big one."""
    kept: list[Event] = []
    faults: list[Fault] = []
    depth = documents = 0
    for event in events:
        kind = _kind(event)
        where = f"{file}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        documents += kind == "DocumentStartEvent"
        if depth > MAX_DEPTH or documents > 1:
            deep = Fault(where, "this is nested too deep", "Nothing here needs so many levels.")
            second = Fault(where, "a file holds one playbook", "Delete the line '---', or take a second file.")
            faults.append(second if documents > 1 else deep)
            break
        if getattr(event, "anchor", None) is not None:
            faults.append(Fault(where, "anchors and aliases are refused", "Write the value out, or make it a setting."))
        elif kind != "DocumentStartEvent" and getattr(event, "tag", None) is not None:
            faults.append(
                Fault(
                    where,
                    f"the tag '{event.tag}' is refused",
                    "Write a plain value; a text that begins with '!' in quotes.",
                )
            )
        if _SURROGATE.search(getattr(event, "value", None) or ""):
            faults.append(Fault(where, "this text holds half a character", r"Write the character itself."))
        kept.append(event)
    if faults:
        raise PlaybookError(tuple(faults))
    return kept


def _kind(event: Event) -> str:
    """Both readers name their events alike, but share no class."""
    return type(event).__name__


class _Reader:
    """Turns a file into plain data, and records the position of each key and value."""

    def __init__(self, text: str, file: str, *, names_file: bool = False) -> None:
        """`names_file`: positions name the file, since others include them."""
        self._lines, self._file = text.splitlines(), file
        self._named = file if names_file else ""
        self._events = iter(_events(text, file))
        self.values: dict[Path, Position] = {}
        self.keys: dict[Path, Position] = {}
        self._faults: list[Fault] = []

    def document(self, list_as: str = "") -> Any:
        """A list is returned under `list_as`; None for an empty file. Raises `PlaybookError` for impossible keys."""
        data: Any = None
        if root := next((event for event in self._events if _kind(event) in STANDS_FOR_A_VALUE), None):
            is_named = list_as and _kind(root) == "SequenceStartEvent"
            data = {list_as: self._read(root, (list_as,))} if is_named else self._read(root, ())
        if self._faults:
            raise PlaybookError(tuple(self._faults))
        return data

    def _read(self, event: Event, path: Path) -> Any:
        self.values[path] = self._position(event)
        if _kind(event) == "MappingStartEvent":
            return self._mapping(path)
        if _kind(event) == "SequenceStartEvent":
            items = iter(lambda: self._next_until("SequenceEndEvent"), None)
            return [self._read(item, (*path, index)) for index, item in enumerate(items)]
        return _scalar(event)

    def _next_until(self, end: str) -> Event | None:
        event = next(self._events)
        return None if _kind(event) == end else event

    def _mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_event in iter(lambda: self._next_until("MappingEndEvent"), None):
            where = self._position(key_event).of(self._file)
            if _kind(key_event) != "ScalarEvent":
                self._faults.append(Fault(where, "a key must be a word", "Write 'key: value'."))
                self._read(key_event, (*path, "?"))
                self._read(next(self._events), (*path, "?"))
                continue
            key = key_event.value
            if key in data:
                self._faults.append(Fault(where, f"'{key}' is written twice", "Delete one, or give it another name."))
            self.keys[*path, key] = self._position(key_event)
            data[key] = self._read(next(self._events), (*path, key))
        return data

    def _position(self, event: Event) -> Position:
        line, column = event.start_mark.line, event.start_mark.column
        text_column = None
        if _kind(event) == "ScalarEvent" and line < len(self._lines):
            begins = column + (event.style in ("'", '"'))
            # Folded and escaped texts differ from the text in the file: only their beginning has a position.
            if event.value and self._lines[line][begins : begins + len(event.value)] == event.value:
                text_column = begins + 1
        return Position(line + 1, column + 1, text_column, self._named)


def _scalar(event: Event) -> Any:
    """By YAML 1.2's core schema, decimal only: `on`, `no`, `0x1F` and `1_000` are texts, as is every quoted value."""
    text: str = event.value
    is_plain = event.implicit[0]
    if not is_plain:
        return text
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if re.fullmatch(r"[-+]?\d{1,15}", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\d{1,15}\.?\d{0,15}|\.\d{1,15})([eE][-+]?\d{1,2})?", text):
        return float(text)
    return text
