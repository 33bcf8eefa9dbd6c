"""One figure at a time: matplotlib is not safe in several threads, and its settings are those of the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from matplotlib import rc_context

_LOCK = threading.Lock()


@contextlib.contextmanager
def drawing(salt: str) -> Iterator[None]:
    """What is drawn within it is the same each time; in an SVG text stays text, so that it can be searched.

    `salt`: of the names in an SVG.
    """
    with _LOCK, rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        yield
