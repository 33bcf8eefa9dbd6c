"""Alertmanager's matchers: `alertname=~"KV.*",severity!="info"`. All of one line must match; RE2, anchored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.kernel.patterns import HINT, compile_pattern

_MATCHER = re.compile(
    r"""\s*(?P<label>[A-Za-z_][A-Za-z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*(?P<value>"(?:\\.|[^"\\])*")\s*(?P<comma>,|$)"""
)
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


class MatcherError(ValueError):
    """The line is not a list of matchers; `column` counts from 1."""

    def __init__(self, what: str, column: int, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.column, self.hint = what, column, hint


@dataclass(frozen=True)
class Matcher:
    label: str
    operator: str
    value: str
    _pattern: Any = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """An absent label counts as empty, as in Alertmanager."""
        actual = labels.get(self.label, "")
        match self.operator:
            case "=":
                return actual == self.value
            case "!=":
                return actual != self.value
            case "=~":
                return self._pattern.fullmatch(actual) is not None
            case _:
                return self._pattern.fullmatch(actual) is None


def parse_matchers(line: str) -> tuple[Matcher, ...]:
    """Returns all matchers of one line; raise `MatcherError` with the column of the first fault."""
    matchers: list[Matcher] = []
    at, goes_on = 0, True
    while goes_on and line[at:].strip():
        found = _MATCHER.match(line, at)
        if found is None:
            start = at + len(line[at:]) - len(line[at:].lstrip()) + 1
            raise MatcherError("this is not a matcher", start, 'Write label="value" (or !=, =~, !~), in double quotes.')
        matchers.append(_matcher(found))
        at, goes_on = found.end(), found["comma"] == ","
    if not matchers:
        raise MatcherError("the line has no matcher", 1, 'Write alertname="…".')
    return tuple(matchers)


def _matcher(found: re.Match[str]) -> Matcher:
    value = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), found["value"][1:-1])
    if "~" not in found["operator"]:
        return Matcher(found["label"], found["operator"], value)
    try:
        pattern = compile_pattern(value)
    except ValueError as error:
        raise MatcherError(str(error), found.start("value") + 1, HINT) from error
    return Matcher(found["label"], found["operator"], value, pattern)
