"""The items that were used last: a bound for what a process keeps in memory."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def keep_last(kept: MutableMapping[K, V], key: K, value: V, *, at_most: int) -> None:
    """Put this item last, and drop the first one if there are more than `at_most`."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > at_most:
        del kept[next(iter(kept))]
