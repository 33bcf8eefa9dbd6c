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
    """Parts, plain text and expressions, in order; `$${` stands for a literal `${`."""

    source: str
    parts: tuple[str | Expression, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(part.names for part in self.parts if isinstance(part, Expression)))

    def render(self, data: Mapping[str, Value]) -> Any:
        """Returns the value or text, or `Unknown` as soon as one expression is; a whole number becomes an int."""
        values = [part.evaluate(data) if isinstance(part, Expression) else part for part in self.parts]
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
        texts = [part if isinstance(part, str) else _in_words(part, data, units) for part in self.parts]
        if NOT_KNOWN not in texts:
            return "".join(texts)
        marked = "".join(part if isinstance(part, str) else _MARK for part in self.parts)
        values = iter([words for words, part in zip(texts, self.parts, strict=True) if not isinstance(part, str)])
        segments = [
            _filled(segment, [next(values) for _ in range(segment.count(_MARK))]) for segment in _ASIDE.split(marked)
        ]
        return "".join(segments)


def _filled(segment: str, values: list[str]) -> str:
    """The words with these values; nothing, where they are in parentheses and no value is known."""
    if _ASIDE.fullmatch(segment) and NOT_KNOWN in values and not {*values} - {NOT_KNOWN, ""}:
        return ""
    plain, *others = segment.split(_MARK)
    return plain + "".join(value + words for value, words in zip(values, others, strict=True))


def _in_words(part: Expression, data: Mapping[str, Value], units: Mapping[str, str]) -> str:
    value = part.evaluate(data)
    if isinstance(value, Unknown):
        return "" if _MAY_BE_LEFT_OUT.search(part.source) else NOT_KNOWN
    return shown(value, units.get(_PAST.sub("", part.source.strip()), ""))


def shown(value: Value, unit: str) -> str:
    """Returns a value for a sentence; a longer unit is part of the words around the number."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value.replace("_", " ")  # a kind that a probe names: `engine_died`
    return in_words(value, SHOWN_UNITS.get(unit, ""))


def compile_template(source: str, scope: Scope) -> Template:
    """Raise `ExpressionError` with the column within `source`."""
    parts: list[str | Expression] = []
    for text, is_expression, start in split_template(source):
        if not is_expression:
            parts.append(text)
            continue
        try:
            parts.append(compile_expression(text, scope, None))
        except ExpressionError as error:
            raise error.moved(start) from error
    return Template(source, tuple(parts) or ("",))


@lru_cache(maxsize=8192)
def split_template(source: str) -> tuple[tuple[str, bool, int], ...]:
    """Returns parts as (text, is it an expression, start); raise `ExpressionError` for a `${` without its end."""
    parts: list[tuple[str, bool, int]] = []
    plain, at = "", 0
    while (sign := source.find("$", at)) >= 0:
        plain, at = plain + source[at:sign], sign
        if source.startswith("$${", at):
            plain, at = plain + "${", at + 3
        elif source.startswith("${", at):
            if plain:
                parts.append((plain, False, at - len(plain)))
                plain = ""
            end = _end_of_expression(source, at + 2)
            parts.append((source[at + 2 : end], True, at + 2))
            at = end + 1
        else:
            plain, at = plain + "$", at + 1
    if plain := plain + source[at:]:
        parts.append((plain, False, len(source) - len(plain)))
    return tuple(parts)


def _end_of_expression(source: str, start: int) -> int:
    quote, is_escaped = "", False
    for at in range(start, len(source)):
        character = source[at]
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "}":
            return at
    raise ExpressionError("this ${ is not closed", start - 1, "Write ${expression}.")


def as_written(value: Value) -> Value | int:
    """Returns 6 for 6.0, as for a command line and for people."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
