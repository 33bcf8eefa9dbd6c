"""A small language for JSON structures: a check takes a value and its JSON pointer and yields the errors.

The wording follows Slack's `response_metadata.messages`, which an engineer will read in anger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    what: str
    pointer: str

    def __str__(self) -> str:
        return f"[ERROR] {self.what} [json-pointer:{self.pointer}]"


Check = Callable[[Any, str], Iterator[Problem]]


def string(limit: int, *, minimum: int = 1) -> Check:
    def check(value: Any, at: str) -> Iterator[Problem]:
        if not isinstance(value, str):
            yield Problem("must be a string", at)
        elif len(value) < minimum:
            yield Problem(f"must be more than {minimum - 1} characters", at)
        elif len(value) > limit:
            yield Problem(f"must be less than {limit + 1} characters", at)

    return check


def flag(value: Any, at: str) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield Problem("must be a boolean", at)


def whole(minimum: int, maximum: int) -> Check:
    def check(value: Any, at: str) -> Iterator[Problem]:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            yield Problem(f"must be a whole number from {minimum} to {maximum}", at)

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Any, at: str) -> Iterator[Problem]:
        if value not in allowed:
            yield Problem(f"must be one of: {', '.join(allowed)}", at)

    return check


def anything(value: Any, at: str) -> Iterator[Problem]:
    del value, at
    yield from ()


def items(each: Check, *, max_items: int, min_items: int = 1) -> Check:
    def check(value: Any, at: str) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield Problem("must be an array", at)
            return
        if len(value) < min_items:
            yield Problem(f"no fewer than {min_items} items allowed", at)
        if len(value) > max_items:
            yield Problem(f"no more than {max_items} items allowed", at)
            return
        for index, item in enumerate(value):
            yield from each(item, f"{at}/{index}")

    return check


def shape(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, any_of: tuple[str, ...] = ()
) -> Check:
    """An object with these properties and no others; `any_of`: at least one of these optional ones."""
    known = {**required, **(optional or {})}

    def check(value: Any, at: str) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield Problem("must be an object", at)
            return
        for name in required:
            if value.get(name) is None:
                yield Problem(f"missing required field: {name}", at)
        if any_of and not any(value.get(name) for name in any_of):
            yield Problem(f"must provide one of: {', '.join(any_of)}", at)
        for name, part in value.items():
            if name not in known:
                yield Problem(f"invalid additional property: {name}", at)
            elif part is not None:
                yield from known[name](part, f"{at}/{name}")

    return check


def by_type(kinds: Mapping[str, Check]) -> Check:
    """Chooses the check by the object's `type`."""

    def check(value: Any, at: str) -> Iterator[Problem]:
        if not isinstance(value, dict) or "type" not in value:
            yield Problem("missing required field: type", at)
        elif value["type"] not in kinds:
            yield Problem(f"unsupported type: {value['type']}", f"{at}/type")
        else:
            yield from kinds[value["type"]](value, at)

    return check
