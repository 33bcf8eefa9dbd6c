"""The verdict on one GPU or node, and how several claims make one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SOURCE = "GPU exporters and nodes"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one GPU or node; None is unknown. `notes` are for people."""

    fault: bool | None
    thermal: bool | None
    notes: tuple[str, ...] = ()

    @classmethod
    def on(cls, where: str, fault: bool | None, thermal: bool | None, *notes: str) -> Verdict:
        """Each note begins with where it was; empty notes are left out."""
        return cls(fault, thermal, tuple(f"{where}: {note}" for note in notes if note))


def any_of(*claims: bool | None) -> bool | None:
    """True if one is true, else unknown if one is unknown, else False."""
    if any(claims):
        return True
    return None if None in claims else False


def counted_errors(
    name: str, now: Mapping[str, float], before: Sequence[Mapping[str, float]], *, reaches_back: bool
) -> tuple[bool | None, str]:
    """Whether uncorrectable errors happened in the incident's time, with a note.

    The count lasts as long as the driver is loaded, so only a rise proves that one happened now.
    """
    count = now.get(name, 0.0)
    if count <= 0:
        return False, ""
    if rose(name, now, before):
        return True, f"uncorrectable memory errors rose to {count:.0f} since the incident began"
    if reaches_back and any(name in was for was in before):
        return False, "uncorrectable memory errors seen, not recent"
    return None, "uncorrectable memory errors seen, their age is not known"


def rose(name: str, now: Mapping[str, float], before: Sequence[Mapping[str, float]]) -> bool:
    """Whether a count is higher than in an earlier reading."""
    return any(was[name] < now.get(name, 0.0) for was in before if name in was)
