"""Playbooks that were found sound, kept in `__pycache__` beside their files: a start then need not check them again.

One counts only for the same texts, code and libraries, and only if its file is whole. Where the folder cannot be
written, nothing is kept and each start checks again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict

import bot
from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.compiled import checked_before
from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.loading.check import Checked
from bot.domain.playbooks.mistakes import Path as KeyPath
from bot.domain.playbooks.settings import effective_settings
from bot.domain.playbooks.source import Position, Source
from bot.domain.signals.probe_spec import Probes

log = structlog.get_logger()
FOLDER = "__pycache__"
DECIDING = ("domain", "probes", "adapters/yaml_playbooks", "adapters/checked_playbooks.py")
"""The code and data that decide whether a playbook is sound, and what it becomes."""
LIBRARIES = ("cel-expr-python", "google-re2", "pydantic", "pyyaml")
"""What else decides."""

Texts = Mapping[str, tuple[str, str]]
"""Of fragments, by name: the file and its text."""
_Place = tuple[tuple[str, ...], int, int, str]
"""A path, and its line, column and file."""


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    playbook: Playbook
    """With its fragments."""
    places: tuple[_Place, ...]
    """Where its sections, states, signals and settings are written; a picture needs no more."""
    fragments: dict[str, tuple[_Place, ...]]
    """Those that it includes, by name, with the places of their states."""
    warnings: tuple[tuple[str, str, str], ...]


class CheckedPlaybooks:
    def __init__(self, probes: Probes, *, reads: bool = True, code: Callable[[], str] | None = None) -> None:
        """`reads`: False to check each playbook, and keep the sound ones. `code`: names the code that checks them."""
        self._probes, self._reads, self._code = probes, reads, code or _code

    def read(self, path: Path, text: str, fragments: Texts) -> Checked | None:
        """Returns the playbook of this file as it was checked; None if it has to be checked."""
        if not self._reads:
            return None
        try:
            key, _, body = _text_of(_place(path)).partition("\n")
            kept = _Kept.model_validate(json.loads(body, object_pairs_hook=_each_text_once))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # a file of another version, or damaged
            log.info("playbook.unusable_check", file=str(path), reason=type(error).__name__)
            return None
        used = {name: fragments[name] for name in kept.fragments if name in fragments}
        if len(used) < len(kept.fragments) or key != self._key(path, text, used, body):
            log.info("playbook.checked_again", file=str(path), reason="its text, or the bot, is another one")
            return None
        compiled = checked_before(
            kept.playbook,
            effective_settings(kept.playbook.settings, {}, lambda _: None),
            source=Source(str(path), text, {}, keys=_keys(kept.places)),
            fragments=tuple(
                Source(file, found, {"fragment": name}, keys=_keys(kept.fragments[name]))
                for name, (file, found) in used.items()
            ),
            probes=self._probes,
        )
        return Checked(compiled, (), tuple(Fault(*each) for each in kept.warnings))

    def keep(self, path: Path, checked: Checked) -> None:
        """Keeps a sound playbook if its folder can be written."""
        if checked.compiled is None:
            return
        source = checked.compiled.source
        included = {str(each.data["fragment"]): each for each in checked.compiled.fragments}
        texts = {name: (each.file, each.text) for name, each in included.items()}
        kept = _Kept(
            playbook=checked.compiled.playbook,
            places=_places(source),
            fragments={name: _places(each) for name, each in included.items()},
            warnings=tuple((each.where, each.what, each.hint) for each in checked.warnings),
        )
        body = kept.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            _write(_place(path), f"{self._key(path, source.text, texts, body)}\n{body}")
        except OSError as error:
            log.info("playbook.check_not_kept", file=str(path), reason=error.strerror)

    def _key(self, path: Path, text: str, fragments: Texts, body: str) -> str:
        decides = [str(path), text, dict(sorted(fragments.items())), self._code(), body]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def _each_text_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The playbooks share fragments, and so most of their texts."""
    return {key: sys.intern(value) if isinstance(value, str) else value for key, value in pairs}


def _places(source: Source) -> tuple[_Place, ...]:
    found = ((tuple(map(str, path)), at) for path, at in source.keys.items() if len(path) <= 2)
    return tuple((path, at.line, at.column, at.file) for path, at in found)


def _keys(places: tuple[_Place, ...]) -> dict[KeyPath, Position]:
    return {path: Position(line, column, file=file) for path, line, column, file in places}


def _text_of(place: Path) -> str:
    """Without waiting: a pipe may never get a writer."""
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
        return file.read()


def _place(path: Path) -> Path:
    return path.parent / FOLDER / f"{path.stem}.checked.json"


def _write(place: Path, text: str) -> None:
    """Two processes may write at once, and a reader never sees half of a file."""
    place.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=place.parent, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, place)
        except OSError:
            os.unlink(file.name)
            raise


@cache
def _code() -> str:
    """The files of the deciding packages, each with its size and time. An image keeps whole seconds."""
    package = Path(bot.__file__).parent
    files = sorted(each for name in DECIDING for each in _files(os.fspath(package / name)))
    return repr([files, *((name, version(name)) for name in LIBRARIES)])


def _files(place: str) -> Iterator[tuple[str, int, int]]:
    if not os.path.isdir(place):
        found = os.stat(place)
        yield place, found.st_size, int(found.st_mtime)
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name != FOLDER:
                yield from _files(entry.path)
