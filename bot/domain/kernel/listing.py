"""Lists for people that have an end, however many items there are."""

from __future__ import annotations

from collections.abc import Sequence


def first_of(texts: Sequence[str], at_most: int, *, between: str = ", ") -> str:
    """Returns the first `at_most` of these texts, and how many more there are."""
    more = f" and {len(texts) - at_most} more" if len(texts) > at_most else ""
    return f"{between.join(texts[:at_most])}{more}"
