"""A finding of `doctor`: one thing that was checked, its state, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["fine", "weak", "broken"]
"""`weak`: the bot works and keeps less than it promises; `broken`: it cannot do its work."""


@dataclass(frozen=True)
class Finding:
    about: str
    grade: Grade
    what: str
    remedy: str = ""


def fine(about: str, what: str) -> Finding:
    return Finding(about, "fine", what)


def weak(about: str, what: str, remedy: str) -> Finding:
    return Finding(about, "weak", what, remedy)


def broken(about: str, what: str, remedy: str) -> Finding:
    return Finding(about, "broken", what, remedy)
