"""Changes values in a YAML text and leaves every other character as it is: comments, quotes, order and indentation.

A reviewer of a pull request then sees only what changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import yaml

from bot.domain.cluster.owner import yaml_text

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:+")
"""Characters of a text that needs no quotes, if it is not another type without them."""


class NotEditableError(ValueError):
    """The text is no YAML, or cannot be edited without changing something else."""


def documents(text: str) -> list[Any]:
    """Returns the values of all documents. Raises `NotEditableError`."""
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise NotEditableError(f"it is not plain YAML{line}") from error


def edited(text: str, number: int, wanted: Any) -> str:
    """Returns the text in which document `number` has the wanted value. Raises `NotEditableError`."""
    expected = documents(text)
    expected[number] = wanted
    root = list(yaml.compose_all(text, yaml.SafeLoader))[number]
    for span in sorted(_spans(text, root, wanted), key=lambda span: (span.start, span.end), reverse=True):
        text = text[: span.start] + span.text + text[span.end :]
    # Anchors, merge keys and unusual layouts: what does not read as wanted is not proposed.
    if not _reads_as(text, expected):
        raise NotEditableError("its layout cannot be edited without changing something else")
    return text


def _reads_as(text: str, expected: list[Any]) -> bool:
    try:
        return documents(text) == expected
    except NotEditableError:
        return False


class _Span(NamedTuple):
    """Replaces the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def _spans(text: str, node: yaml.Node, wanted: Any) -> Iterator[_Span]:
    present = _value_of(node)
    if present == wanted and type(present) is type(wanted):
        return
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value and isinstance(wanted, Mapping):
        yield from _of_mapping(text, node, wanted)
    elif isinstance(node, yaml.SequenceNode) and not node.flow_style and isinstance(wanted, list) and wanted:
        yield from _of_sequence(text, node, wanted)
    else:
        yield _Span(node.start_mark.index, _end(node), _in_place_of(node, wanted))


def _of_mapping(text: str, node: yaml.MappingNode, wanted: Mapping[str, Any]) -> Iterator[_Span]:
    entries = {_value_of(key): (key, value) for key, value in node.value}
    for name, (key, value) in entries.items():
        if name in wanted:
            yield from _spans(text, value, wanted[name])
        else:
            yield _Span(_line_start(text, key.start_mark.index), _line_end(text, _end(value)), "")
    if new := {name: value for name, value in wanted.items() if name not in entries}:
        indent = " " * node.value[0][0].start_mark.column
        lines = "".join(f"{indent}{line}\n" for line in yaml_text(new).split("\n"))
        yield _inserted(text, _line_end(text, _end(node)), lines)


def _of_sequence(text: str, node: yaml.SequenceNode, wanted: list[Any]) -> Iterator[_Span]:
    present = [_value_of(item) for item in node.value]
    matcher = SequenceMatcher(None, list(map(_key, present)), list(map(_key, wanted)), autojunk=False)
    for _, begin, end, first, last in matcher.get_opcodes():
        both = min(end - begin, last - first)
        for at in range(both):
            yield from _spans(text, node.value[begin + at], wanted[first + at])
        for item in node.value[begin + both : end]:
            yield _Span(_line_start(text, item.start_mark.index), _line_end(text, _end(item)), "")
        if added := wanted[first + both : last]:
            near = node.value[min(begin + both, len(node.value) - 1)]
            indent = " " * _indent(text, node.value[0].start_mark.index)
            lines = "".join(f"{indent}- {_in_place_of(near, value)}\n" for value in added)
            where = (
                _line_end(text, _end(node.value[begin + both - 1]))
                if begin + both
                else _line_start(text, near.start_mark.index)
            )
            yield _inserted(text, where, lines)


def _inserted(text: str, at: int, lines: str) -> _Span:
    """The last line of a text may have no end."""
    is_open = at == len(text) and not text.endswith("\n")
    return _Span(at, at, f"\n{lines[:-1]}" if is_open else lines)


def _in_place_of(node: yaml.Node, value: Any) -> str:
    """The value as text, in the style of what is there."""
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    if isinstance(value, str) and style in ("|", ">"):
        raise NotEditableError("the value is in a block of text")
    if isinstance(value, str) and style is None and _is_plain(value):
        return value
    if isinstance(value, str) and style == "'" and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: str) -> bool:
    if not value or not set(value) <= _PLAIN or value.endswith(":"):
        return False
    # "- " and "? " begin other things; a flag begins with two dashes.
    return bool(yaml.safe_load(f"- {value}") == [value])


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _value_of(node: yaml.Node) -> Any:
    return yaml.constructor.SafeConstructor().construct_object(node, deep=True)


def _end(node: yaml.Node) -> int:
    """Where its last value ends; the parser's own end of a block is after the comments that follow it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    """After the end of the line, with a comment in it."""
    if at and text[at - 1] == "\n":  # a block of text ends with its own line
        return at
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _indent(text: str, at: int) -> int:
    line = text[_line_start(text, at) : at]
    return len(line) - len(line.lstrip(" "))
