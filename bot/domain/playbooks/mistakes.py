"""A mistake in a playbook, located by its path in the data; `check` turns it into a fault with line and column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Location in the file, e.g. `("states", "look", "go", 0, "when")`."""


@dataclass(frozen=True)
class Mistake:
    path: Path
    what: str
    hint: str = ""
    column: int = 0
    """Character of the value, from 1; 0 means the whole value."""
    at_key: bool = False
    """The key is wrong, not its value."""


def as_written(value: object) -> str:
    """Returns a value in quotes, `true` and `false` as YAML spells them."""
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


Report = Callable[[Mistake], None]
