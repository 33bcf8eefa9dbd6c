"""Rewords the YAML reader's errors about a broken file for authors: what is there, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a key cannot stand here",
        "Indent this line like its neighbours, or put a text that has ': ' in quotes.",
    ),
    ("'\\t' that cannot start", "a tab cannot indent", "Indent with spaces, two for each level."),
    ("that cannot start any token", "a text cannot begin with this character", "Put the text in quotes."),
    ("could not find expected ':'", "a key without its colon", "Write 'key: value', with a space after the colon."),
    (
        "did not find expected key",
        "neither a key nor the end of what stands above",
        "Indent this line like its neighbours.",
    ),
    (
        "expected <block end>, but found",
        "this line is indented otherwise than its neighbours",
        "Indent lines of one level alike; a quote that is not closed reads on to the next one.",
    ),
    ("expected ',' or '}'", "a '{' is not closed, or a comma is missing", "Write {key: value, key: value}."),
    ("expected ',' or ']'", "a '[' is not closed, or a comma is missing", "Write [one, two]."),
    ("found unexpected end of stream", "a quoted text never ends", "Close it with the quote that it began with."),
    ("found unknown escape character", "a backslash means something in double quotes", "Take single quotes."),
    ("found undefined alias", "a text cannot begin with '*'", "Put the text in quotes."),
    ("expected a comment or a line break", "a text cannot begin with '!', '>' or '|'", "Put the text in quotes."),
)

_LATE = ("could not find expected ':'", "unexpected end of stream")
_BRACKETS = ("expected ',' or '}'", "expected ',' or ']'")


@dataclass(frozen=True)
class Spot:
    """Counted from 0, as in the reader."""

    line: int
    column: int


@dataclass(frozen=True)
class Slip:
    at: Spot
    what: str
    hint: str


_SLIPS = (
    (re.compile(r"[ \t]*(?P<at>[\u00a0\u2000-\u200b\u3000])"), "this looks like a space and is another character",
     "Write plain spaces."),
    (re.compile(r" *(?P<at>-)[\w{\['\"]"), "a dash needs a space after it", "Write '- …'."),
    (re.compile(r" *(?:- )?\w+(?P<at>:)[^\s:/]"), "a key needs a space after its colon", "Write 'key: value'."),
)  # fmt: skip
QUOTES = "Put the whole text in the other kind of quotes; or a quote above is not closed."
_AFTER_QUOTE = re.compile(r".*['\"]\s*")


def explained(problem: str, seen: Spot, begun: Spot | None, lines: Sequence[str]) -> Slip:
    """Returns what is wrong and where: often above the reported place, where the reader started."""
    in_line = lines[seen.line][: seen.column] if seen.line < len(lines) else ""
    if "but found '<scalar>'" in problem and _AFTER_QUOTE.fullmatch(in_line):
        return Slip(seen, "a text goes on after its closing quote", QUOTES)
    if slip := _slip_near(seen.line, lines):
        return slip
    is_late = any(message in problem for message in _LATE)
    is_open = any(message in problem for message in _BRACKETS) and begun is not None and begun.line < seen.line
    what, hint = _in_plain_words(problem)
    return Slip(begun if begun is not None and (is_late or is_open) else seen, what, hint)


def _slip_near(line: int, lines: Sequence[str]) -> Slip | None:
    """Searches that line and the one above it, skipping blank lines and comments."""
    written = [n for n, text in enumerate(lines[: line + 1]) if text.strip() and not text.lstrip().startswith("#")]
    for number in reversed(written[-2:]):
        for pattern, what, hint in _SLIPS:
            if found := pattern.match(lines[number]):
                return Slip(Spot(number, found.start("at")), what, hint)
    return None


def _in_plain_words(problem: str) -> tuple[str, str]:
    """Returns unrecognized messages in the reader's words."""
    for message, what, hint in _MESSAGES:
        if message in problem:
            return what, hint
    return problem, "Indent with spaces, close quotes and brackets, and put odd texts in quotes."
