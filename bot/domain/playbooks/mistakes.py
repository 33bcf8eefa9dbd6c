"""A mistake in a playbook, located by its path in the data; `check` turns it into a fault with line and column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Where in the file, e.g. `("states", "look", "go", 0, "when")`."""


@dataclass(frozen=True)
class Mistake:
    path: Path
    what: str
    hint: str = ""
    column: int = 0
    """The character of the value that is meant, from 1; 0 means the value as a whole."""
    at_key: bool = False
    """The key is wrong, not what it holds."""


Report = Callable[[Mistake], None]
