"""Texts with `${…}` in them. A text that is one expression yields its typed value; any other yields a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from bot.domain.kernel.errors import ExpressionError
from bot.domain.playbooks.expressions.expression import Expression, Scope, Unknown, compile_expression
from bot.domain.signals.signal import SHOWN_UNITS, Value, in_words

_NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
_PAST = re.compile(r"^(baseline|results\.\w+)\.")
"""An earlier reading has the unit of its signal."""
NO_UNITS: Mapping[str, str] = MappingProxyType({})

NOT_KNOWN = "not known"
"""Stands in a text for a value that has not been read."""
_MARK = "\0"
"""Stands for an expression while the words around it are looked at."""
_ASIDE = re.compile(rf"( ?\([^(){_MARK}]*(?:{_MARK}[^(){_MARK}]*)+\))")
"""Words in parentheses with expressions in them."""
_MAY_BE_LEFT_OUT = re.compile(r"""\?\s*(''|"")\s*:|:\s*(''|"")\s*$""")
"""An expression that adds some words, or none."""


@dataclass(frozen=True)
class Template:
    """Pieces of plain text and expressions, in order; `$${` stands for a literal `${`."""

    source: str
    pieces: tuple[str | Expression, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(piece.names for piece in self.pieces if isinstance(piece, Expression)))

    def render(self, data: Mapping[str, Value]) -> Any:
        """Returns the value or text, or `Unknown` as soon as one expression is; a whole number becomes an int."""
        values = [piece.evaluate(data) if isinstance(piece, Expression) else piece for piece in self.pieces]
        known: list[Value] = []
        for value in values:
            if isinstance(value, Unknown):
                return value
            known.append(value)
        return as_written(known[0]) if len(known) == 1 else "".join(str(as_written(value)) for value in known)

    def in_words(self, data: Mapping[str, Value], units: Mapping[str, str] = NO_UNITS) -> str:
        """Returns the text for people; unknown values are marked as unknown in their place.

        Words that are there only under an unknown condition (`${slow ? ' It is slow.' : ''}`) are left out, and so are
        words in parentheses in which nothing is known: ` (${before} before)`.
        `units`: of the names that may stand alone in a `${…}`; a computed value has none.
        """
        said = [piece if isinstance(piece, str) else _in_words(piece, data, units) for piece in self.pieces]
        if NOT_KNOWN not in said:
            return "".join(said)
        marked = "".join(piece if isinstance(piece, str) else _MARK for piece in self.pieces)
        values = iter([words for words, piece in zip(said, self.pieces, strict=True) if not isinstance(piece, str)])
        parts = [_filled(part, [next(values) for _ in range(part.count(_MARK))]) for part in _ASIDE.split(marked)]
        return "".join(parts)


def _filled(part: str, values: list[str]) -> str:
    """The words with these values; nothing, where they are in parentheses and no value is known."""
    if _ASIDE.fullmatch(part) and NOT_KNOWN in values and not {*values} - {NOT_KNOWN, ""}:
        return ""
    plain, *others = part.split(_MARK)
    return plain + "".join(value + words for value, words in zip(values, others, strict=True))


def _in_words(piece: Expression, data: Mapping[str, Value], units: Mapping[str, str]) -> str:
    value = piece.evaluate(data)
    if isinstance(value, Unknown):
        return "" if _MAY_BE_LEFT_OUT.search(piece.source) else NOT_KNOWN
    return shown(value, units.get(_PAST.sub("", piece.source.strip()), ""))


def shown(value: Value, unit: str) -> str:
    """Returns a value for a sentence; a longer unit is part of the words around the number."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value.replace("_", " ")  # a kind that a probe names: `engine_died`
    return in_words(value, SHOWN_UNITS.get(unit, ""))


def compile_template(source: str, scope: Scope) -> Template:
    """Raise `ExpressionError` with the column within `source`."""
    pieces: list[str | Expression] = []
    for text, is_expression, start in split_template(source):
        if not is_expression:
            pieces.append(text)
            continue
        try:
            pieces.append(compile_expression(text, scope, None))
        except ExpressionError as error:
            raise error.moved(start) from error
    return Template(source, tuple(pieces) or ("",))


@lru_cache(maxsize=8192)
def split_template(source: str) -> tuple[tuple[str, bool, int], ...]:
    """Returns pieces as (text, is it an expression, start); raise `ExpressionError` for a `${` without its end."""
    pieces: list[tuple[str, bool, int]] = []
    plain, at = "", 0
    while (sign := source.find("$", at)) >= 0:
        plain, at = plain + source[at:sign], sign
        if source.startswith("$${", at):
            plain, at = plain + "${", at + 3
        elif source.startswith("${", at):
            if plain:
                pieces.append((plain, False, at - len(plain)))
                plain = ""
            end = _end_of_expression(source, at + 2)
            pieces.append((source[at + 2 : end], True, at + 2))
            at = end + 1
        else:
            plain, at = plain + "$", at + 1
    if plain := plain + source[at:]:
        pieces.append((plain, False, len(source) - len(plain)))
    return tuple(pieces)


def _end_of_expression(source: str, start: int) -> int:
    quote = ""
    for at in range(start, len(source)):
        character = source[at]
        if quote:
            quote = "" if character == quote and source[at - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character == "}":
            return at
    raise ExpressionError("this ${ is not closed", start - 1, "Write ${expression}.")


def as_written(value: Value) -> Value | int:
    """Returns 6 for 6.0, as for a command line and for people."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
