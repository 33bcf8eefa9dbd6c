"""JSON patch (RFC 6902), as far as calls use it: add, replace, remove and test on objects and list elements.

A field edit makes its own `test` of the old value, and its inverse; applying both leaves the document as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bot.domain.cluster.snapshot import Obj


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = _Absent()
"""There is no such field; not the same as null."""


@dataclass(frozen=True)
class Broken:
    """A `test` that does not hold: what the patch relied on, and what is there."""

    path: str
    expected: Any
    present: Any


class PatchConflictError(ValueError):
    """A patch does not fit the document."""

    def __init__(self, broken: Sequence[Broken]) -> None:
        super().__init__("; ".join(f"{b.path} is {b.present!r}, not {b.expected!r}" for b in broken))
        self.broken = tuple(broken)


def pointer(*parts: str | int) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def parts_of(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def value_at(document: Any, path: str) -> Any:
    """The value at a JSON pointer, or `ABSENT`."""
    for part in parts_of(path):
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        else:
            return ABSENT
    return document


def test_of(document: Any, path: str) -> Obj:
    """The operation that pins the value which `document` has at `path`."""
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
    """The preconditions of a patch that `document` does not meet; it need not be applied to find out."""
    tests = [op for op in operations if op["op"] == "test"]
    return tuple(
        Broken(op["path"], op["value"], value_at(document, op["path"]))
        for op in tests
        if value_at(document, op["path"]) != op["value"]
    )


def is_in_force(operations: Iterable[Obj], document: Any) -> bool:
    """Whether every field has the value that the patch would give it."""
    wanted = [op for op in operations if op["op"] != "test"]
    return all(value_at(document, op["path"]) == op.get("value", ABSENT) for op in wanted)


def applied(operations: Iterable[Obj], document: Obj) -> Obj:
    """A patched copy; raise `PatchConflictError` when a test fails or a field to change is missing."""
    patched = copy.deepcopy(document)
    for op in operations:
        _apply(op, patched)
    return patched


def _apply(op: Obj, document: Any) -> None:
    path = op["path"]
    present = value_at(document, path)
    if op["op"] == "test":
        if present != op["value"]:
            raise PatchConflictError([Broken(path, op["value"], present)])
        return
    if op["op"] in ("replace", "remove") and present is ABSENT:
        raise PatchConflictError([Broken(path, "something", ABSENT)])
    *way, last = parts_of(path)
    holder = value_at(document, pointer(*way))
    if isinstance(holder, list):
        _change_list(op, holder, int(last))
    elif isinstance(holder, dict):
        if op["op"] == "remove":
            del holder[last]
        else:
            holder[last] = copy.deepcopy(op["value"])
    else:
        raise PatchConflictError([Broken(pointer(*way), "an object", holder)])


def _change_list(op: Obj, holder: list[Any], index: int) -> None:
    if op["op"] == "remove":
        del holder[index]
    elif op["op"] == "add":
        holder.insert(index, copy.deepcopy(op["value"]))
    else:
        holder[index] = copy.deepcopy(op["value"])
