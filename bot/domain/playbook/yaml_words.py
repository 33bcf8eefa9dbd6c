"""What the YAML reader says about a broken file, in an author's words: what stands there, and what to do next."""

from __future__ import annotations

_SAID: tuple[tuple[str, str, str], ...] = (
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
)

_LATE = ("could not find expected ':'", "unexpected end of stream")


def is_told_late(problem: str) -> bool:
    """The reader sees it only further down; what is wrong stands where it began to read."""
    return any(said in problem for said in _LATE)


def in_plain_words(problem: str) -> tuple[str, str]:
    """What is wrong, and what to do; what is not known here stands as the reader said it."""
    for said, what, hint in _SAID:
        if said in problem:
            return what, hint
    return problem, ""
