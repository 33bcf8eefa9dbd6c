"""What counts as a number in data that people or probes give."""

from __future__ import annotations

from typing import TypeGuard


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is one; `true` and `false`, which Python counts as 1 and 0, are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
