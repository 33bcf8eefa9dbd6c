"""A clock on which every call takes long, to test time-outs without waiting."""

from __future__ import annotations

from dataclasses import dataclass

from bot.flow.circuit import SLOW_SECONDS


@dataclass
class Steps:
    """Each look at it is `step` seconds after the last one."""

    step: float = SLOW_SECONDS
    at: float = 0.0

    def __call__(self) -> float:
        self.at += self.step
        return self.at
