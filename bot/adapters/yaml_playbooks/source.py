"""YAML 1.2 as data (`on` and `no` are texts), with the position of everything in it.

Anchors, aliases, tags and repeated keys are refused: a file must be readable without following references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

import yaml

from bot.adapters.yaml_playbooks.files import text_of
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.loading.yaml_words import Spot, explained
from bot.domain.playbooks.mistakes import Path
from bot.domain.playbooks.source import Position, Source

MAX_DEPTH = 30
_SURROGATE = re.compile(r"[\ud800-\udfff]")
r"""Half a character, as from the escape `\ud83d`: no file, database or expression accepts it."""
STANDS_FOR_A_VALUE = {"ScalarEvent", "SequenceStartEvent", "MappingStartEvent"}
Event = Any
"""PyYAML's or ruamel's: they have the same names and marks."""


def read_source(text: str, file: str, *, is_included: bool = False) -> Source:
    """The data with the position of everything in it; raises `PlaybookError` for anything but plain YAML."""
    reader = _Reader(text, file, names_file=is_included)
    data = reader.document()
    if not isinstance(data, dict):
        raise PlaybookError((Fault(f"{file}:1:1", "a playbook is a mapping of keys", "Begin with 'language: 1'."),))
    return Source(file, text, data, reader.values, reader.keys)


def load_table(path: FilePath) -> Source:
    """A test table with its positions: a list of cases, or a mapping with `cases`."""
    text, file = text_of(path), str(path)
    if isinstance(text, Fault):
        raise PlaybookError((text,))
    reader = _Reader(text, file)
    data = reader.document(list_as="cases")
    if not isinstance(data, dict):
        raise PlaybookError((Fault(f"{file}:1:1", "a test table is a list of cases", "Begin with '- name: …'."),))
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
        slip = explained(problem, seen or Spot(0, 0), begun, text.splitlines())
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
