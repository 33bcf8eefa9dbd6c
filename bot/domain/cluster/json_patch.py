"""JSON patch (RFC 6902) as kube-apiserver applies it, and the edits of single fields that patches are made of.

A field edit builds its own `test` of the old value and its inverse; applying both leaves the document unchanged.
Unlike RFC 6902, `test` with null holds for an absent key, and `replace` may set one, as in the API server's library.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.redaction import shown_value


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = _Absent()
"""The field does not exist; not the same as null."""
SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class Broken:
    """A failed `test`: the value that the patch expected, and the present one."""

    path: str
    expected: Any
    present: Any


def difference_in_words(path: str, present: Any, left: Any) -> str:
    """A field that is not as the bot left it, as people may see it: without secrets, and shortened."""
    return f"{path} is {_in_words(path, present)}, the bot left {_in_words(path, left)}"


def _in_words(path: str, value: Any) -> str:
    if value is ABSENT:
        return "not set"
    text = str(shown_value(path.rpartition("/")[2], value))
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


class PatchError(ValueError):
    """A patch does not fit the document."""


def pointer(*parts: str | int) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def parts_of(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def overlap(one: str, other: str) -> bool:
    """Whether two paths are the same, or one is within the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def value_at(document: Any, path: str) -> Any:
    """Returns the value at a JSON pointer, or `ABSENT`."""
    try:
        return _lookup(document, parts_of(path))
    except PatchError:
        return ABSENT


def test_of(document: Any, path: str) -> Obj:
    """Returns the operation that pins the document's value at `path`."""
    return {"op": "test", "path": path, "value": value_at(document, path)}


@dataclass(frozen=True)
class FieldEdit:
    """One field from `before` to `after`, either of which may be `ABSENT`."""

    path: str
    before: Any
    after: Any

    def operations(self) -> list[Obj]:
        if self.before is ABSENT:
            return [{"op": "add", "path": self.path, "value": self.after}]
        tested: Obj = {"op": "test", "path": self.path, "value": self.before}
        if self.after is ABSENT:
            return [tested, {"op": "remove", "path": self.path}]
        return [tested, {"op": "replace", "path": self.path, "value": self.after}]

    def inverted(self) -> FieldEdit:
        return FieldEdit(self.path, self.after, self.before)


def edit_of(document: Any, path: str, after: Any) -> FieldEdit:
    return FieldEdit(path, value_at(document, path), after)


def broken_tests(operations: Iterable[Obj], document: Any) -> tuple[Broken, ...]:
    """Returns the preconditions of a patch that `document` does not meet, without applying it."""
    tests = [op for op in operations if op["op"] == "test"]
    return tuple(
        Broken(op["path"], op["value"], value_at(document, op["path"]))
        for op in tests
        if value_at(document, op["path"]) != op["value"]
    )


def is_in_force(operations: Iterable[Obj], document: Any) -> bool:
    """Whether every field already has the value that the patch would set."""
    wanted = [op for op in operations if op["op"] != "test"]
    return all(value_at(document, op["path"]) == op.get("value", ABSENT) for op in wanted)


def applied(operations: Iterable[Obj], document: Obj) -> Obj:
    """Returns a patched copy: all operations or none. Raise `PatchError` if a test fails or one does not fit."""
    # Wrapped in a parent, the whole document can be replaced or removed like any field.
    root: Obj = {"": copy.deepcopy(document)}
    for operation in operations:
        _operate(root, operation)
    patched: Obj = root.get("", {})
    return patched


def _operate(root: Obj, operation: Obj) -> None:
    path = _path(operation.get("path"))
    match operation.get("op"):
        case "test":
            _test(root, path, operation.get("value"))
        case "remove":
            _take(root, path)
        case "add":
            _add(root, path, _value(operation))
        case "replace":
            if isinstance(_lookup(root, path[:-1]), list):
                _take(root, path)
            _add(root, path, _value(operation))
        case "move":
            _add(root, path, _take(root, _path(operation.get("from"))))
        case "copy":
            _add(root, path, copy.deepcopy(_lookup(root, _path(operation.get("from")))))
        case kind:
            raise PatchError(f"unexpected kind: {kind}")


def _path(text: object) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{text!r} is no JSON pointer")
    return ["", *parts_of(text)]


def _value(operation: Obj) -> Any:
    if "value" not in operation:
        raise PatchError(f"operation {operation.get('op')} lacks a value")
    return copy.deepcopy(operation["value"])


def _lookup(document: Any, path: Sequence[str]) -> Any:
    for token in path:
        document = document[_key(document, token)]
    return document


def _key(parent: Any, token: str, *, room: int = 0) -> Any:
    """What `parent` takes in brackets for an element that is there, or, with `room`, one behind the end of a list."""
    if isinstance(parent, list) and token.isdecimal() and int(token) < len(parent) + room:
        return int(token)
    if isinstance(parent, dict) and token in parent:
        return token
    raise PatchError(f"{token!r} does not exist")


def _test(root: Obj, path: list[str], expected: Any) -> None:
    parent, last = _lookup(root, path[:-1]), path[-1]
    present = parent.get(last) if isinstance(parent, dict) else _lookup(parent, [last])
    if not _same(present, expected):
        raise PatchError(f"{pointer(*path[1:])} is {present!r}, not {expected!r}")


def _same(left: Any, right: Any) -> bool:
    # JSON has no integers: 1 equals 1.0, but true does not equal 1 as it would in Python.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _take(root: Obj, path: list[str]) -> Any:
    parent = _lookup(root, path[:-1])
    return parent.pop(_key(parent, path[-1]))


def _add(root: Obj, path: list[str], value: Any) -> None:
    parent, last = _lookup(root, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _key(parent, last, room=1), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise PatchError(f"cannot add {last!r} to a plain value")
