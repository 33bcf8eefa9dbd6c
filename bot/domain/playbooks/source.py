"""A file as plain data that still knows where everything stands, whatever was made of it since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.kernel.errors import Fault
from bot.domain.playbooks.mistakes import Mistake, Path


@dataclass(frozen=True)
class Stretch:
    """A part of a text that was put together: so long, from there; `column` is where it begins in the text there."""

    length: int
    at: Position
    column: int = 0
    """0: only the place is known, as for brackets that nobody wrote."""


@dataclass(frozen=True)
class Position:
    """Where something stands in a file, counted from 1."""

    line: int
    column: int
    text_column: int | None = None
    """Where the text itself begins, behind its quote; None where it does not stand in the file as it is."""
    file: str = ""
    """Another file than that of its source: a fragment that was included."""
    stretches: tuple[Stretch, ...] = ()
    """Where each part of a text comes from, when parameters were put into it."""

    def of(self, file: str) -> str:
        return f"{self.file or file}:{self.line}:{self.column}"

    def at_column(self, column: int) -> Position:
        """The place of the text's character `column`, as near as the files know it."""
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
