"""The check of a playbook: every fault of a file at once, each with line, column and what to do next.

What passes can run: no unknown name, no state without a way to an end, no loop that changes things without a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.errors import Fault, PlaybookError
from bot.domain.playbook.check_names import check_names
from bot.domain.playbook.check_ways import check_ways, lint
from bot.domain.playbook.compiled import CompiledPlaybook, compile_playbook
from bot.domain.playbook.language import Playbook, ProbeSignal
from bot.domain.playbook.mistakes import Mistake, Path
from bot.domain.playbook.settings import effective_settings
from bot.domain.playbook.structure import structure
from bot.domain.signal import PROBES, Value


@dataclass(frozen=True)
class Position:
    """Where something stands in a file, counted from 1."""

    line: int
    column: int
    text_column: int | None = None
    """Where the text itself begins, behind its quote; None where it does not stand in the file as it is."""

    def of(self, file: str) -> str:
        return f"{file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Source:
    """A file as plain data, with the position of each key and each value by its path."""

    file: str
    text: str = field(repr=False)
    data: dict[str, Any] = field(repr=False)
    values: Mapping[Path, Position] = field(default_factory=dict, repr=False)
    keys: Mapping[Path, Position] = field(default_factory=dict, repr=False)

    def fault(self, mistake: Mistake) -> Fault:
        return Fault(self._where(mistake).of(self.file), mistake.what, mistake.hint)

    def _where(self, mistake: Mistake) -> Position:
        path = mistake.path
        if mistake.at_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        at = self.values.get(path, Position(1, 1))
        if mistake.column and at.text_column is not None and path == mistake.path:
            return Position(at.line, at.text_column + mistake.column - 1)
        return at


@dataclass(frozen=True)
class Checked:
    """The playbook where it has no fault; warnings do not stop it."""

    compiled: CompiledPlaybook | None
    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()


def check(source: Source, overrides: Mapping[str, str], *, only_known_overrides: bool = False) -> Checked:
    mistakes: list[Mistake] = []
    structured = structure(source.data, mistakes.append)
    playbook = structured.playbook
    if playbook is None:
        return Checked(None, _faults(source, mistakes))
    found: list[Mistake] = []
    if only_known_overrides:
        overrides = {name: value for name, value in overrides.items() if name in playbook.settings}
    settings = effective_settings(playbook.settings, overrides, found.append)
    found.extend(check_names(playbook, settings))
    compiled = compile_playbook(playbook, settings, source=source.text, file=source.file, report=found.append)
    if not mistakes and not found:
        found.extend(check_ways(playbook))
    unbuilt = _unbuilt(playbook, structured.broken)
    mistakes += [mistake for mistake in found if not _mentions(mistake, unbuilt)]
    if mistakes:
        return Checked(None, _faults(source, mistakes))
    return Checked(compiled, (), _faults(source, lint(playbook)))


def recompile(source: Source, settings: dict[str, Value]) -> CompiledPlaybook:
    """A playbook that was checked before: only what keeps it from running is a fault now."""
    mistakes: list[Mistake] = []
    playbook = structure(source.data, mistakes.append).playbook
    if playbook is None or mistakes:
        raise PlaybookError(_faults(source, mistakes))
    compiled = compile_playbook(playbook, settings, source=source.text, file=source.file, report=mistakes.append)
    if mistakes:
        raise PlaybookError(_faults(source, mistakes))
    return compiled


def _unbuilt(playbook: Playbook, broken: frozenset[Path]) -> frozenset[str]:
    """First words of names that are unknown only because a mistake, which is reported, kept them from being built."""
    words = {str(path[-1]) for path in broken if path}
    words |= {name for name, s in playbook.signals.items() if isinstance(s, ProbeSignal) and s.probe not in PROBES}
    if any(path[0] == "states" for path in broken if path):
        words |= {"picked", "baseline", "answers"}
    return frozenset(words)


def _mentions(mistake: Mistake, words: frozenset[str]) -> bool:
    quoted = " ".join(re.findall(r"'([^']*)'", mistake.what))
    return mistake.what.startswith(_REFERENCES) and bool(words & set(re.split(r"[^\w]+", quoted)))


_REFERENCES = ("unknown name ", "unknown signal ", "unknown state ", "unknown setting ", "'picked.")
"""How mistakes begin that name something else of the file; only these may be another mistake's echo."""


def _faults(source: Source, mistakes: Iterable[Mistake]) -> tuple[Fault, ...]:
    faults = dict.fromkeys(source.fault(mistake) for mistake in mistakes)
    return tuple(sorted(faults, key=lambda fault: [int(n) for n in fault.where.rsplit(":", 2)[1:]]))
