"""A file as plain data that keeps the position of everything, through all later transformations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.mistakes import Mistake, Path


@dataclass(frozen=True)
class Stretch:
    """A part of an assembled text: its length and origin; `column` is its start in the original text."""

    length: int
    at: Position
    column: int = 0
    """0: only the position is known, as for generated brackets."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a file, counted from 1."""

    line: int
    column: int
    text_column: int | None = None
    """Where the text itself starts, after its quote; None if it is not in the file in this form."""
    file: str = ""
    """The file of a fragment, whose positions may be included in other files; empty for the source's own."""
    stretches: tuple[Stretch, ...] = ()
    """Origin of each part of a text into which parameters were inserted."""

    def of(self, file: str) -> str:
        return f"{self.file or file}:{self.line}:{self.column}"

    def at_column(self, column: int) -> Position:
        """Returns the position of the text's character `column`, as precisely as it is known."""
        for stretch in self.stretches:
            if column <= stretch.length:
                return stretch.at.at_column(stretch.column + column - 1) if stretch.column else stretch.at
            column -= stretch.length
        if self.stretches or self.text_column is None:
            return self
        return Position(self.line, self.text_column + column - 1, file=self.file)


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
        return at.at_column(mistake.column) if mistake.column and path == mistake.path else at


def owner_of(state: str, written: Iterable[str]) -> str:
    """Returns the written state or include that a state comes from, by the beginning of its name; else empty.

    The longest counts, because one name may begin like another.
    """
    return max((name for name in written if f"{state}_".startswith(f"{name}_")), key=len, default="")
