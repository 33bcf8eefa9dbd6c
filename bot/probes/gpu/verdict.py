"""What can be said of one GPU or node, and how several such things make one."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "GPU exporters and nodes"
BEFORE_SECONDS = 1800.0
"""Registers of this time before the incident count: a fault comes before its alert."""


@dataclass(frozen=True)
class Verdict:
    """What can be said of one GPU or node; None is not known. `notes` are for people."""

    where: str
    fault: bool | None
    thermal: bool | None
    notes: tuple[str, ...] = ()


def any_of(*claims: bool | None) -> bool | None:
    """True when one is, unknown when one that could be is not known, else False."""
    if any(claims):
        return True
    return None if None in claims else False
