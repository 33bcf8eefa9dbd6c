"""A mistake in a playbook, located by its path in the data; `check` turns it into a fault with line and column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bot.domain.kernel.errors import ExpressionError

Path = tuple[str | int, ...]
"""Location in the file, e.g. `("states", "look", "go", 0, "when")`."""


Noun = Literal[
    "change",
    "diagnosis",
    "key",
    "name",
    "probe",
    "question",
    "reading",
    "replicas",
    "setting",
    "signal",
    "state",
    "team",
]
"""What a reference is to; a `name` stands in an expression."""


@dataclass(frozen=True)
class Reference:
    noun: Noun
    name: str


@dataclass(frozen=True)
class Mistake:
    path: Path
    what: str
    hint: str = ""
    column: int = 0
    """Character of the value, from 1; 0 means the whole value."""
    at_key: bool = False
    """The key is wrong, not its value."""
    missing: Reference | None = None
    """What it refers to and what is not there."""
    near: str = ""
    """The known word that the hint suggests."""


def of_expression(path: Path, error: ExpressionError) -> Mistake:
    missing = Reference("name", error.unknown) if error.unknown else None
    return Mistake(path, error.what, error.hint, error.column, missing=missing, near=error.near)


def as_written(value: object) -> str:
    """Returns a value in quotes, `true` and `false` as YAML spells them."""
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


Report = Callable[[Mistake], None]
