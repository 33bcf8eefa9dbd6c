"""How long a server that refuses asks to be left alone: bounded, because what waits may be a page."""

from __future__ import annotations

import math


def retry_after(header: str, *, otherwise: float, at_most: float) -> float:
    """The seconds of a `Retry-After`; `otherwise` without one, and for one that is not a number."""
    try:
        wanted = float(header)
    except ValueError:
        return otherwise
    return otherwise if math.isnan(wanted) else min(max(wanted, 0.0), at_most)
