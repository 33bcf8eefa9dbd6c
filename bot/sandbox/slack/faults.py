"""Faults on demand: Slack's failures, for chosen methods, a number of times or for a while."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Fault(BaseModel):
    """One fault. `seconds` is the delay of a `delay`, else how long the fault lasts; `count` defaults to once.

    `drop` closes the connection without doing the work; `lost_reply` does the work and then closes it.
    """

    model_config = ConfigDict(extra="forbid")

    method: str = "*"
    kind: Annotated[str, Field(pattern=r"^(429|500|drop|lost_reply|delay|error:[a-z_]+)$")]
    retry_after: int = 1
    count: int | None = None
    seconds: float | None = None


class FaultList:
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._left: list[float] = []
        self._ends_at: list[float] = []

    def replace(self, faults: list[Fault], now: float) -> None:
        self._faults = faults
        self._left, self._ends_at = [], []
        for fault in faults:
            lasts = fault.seconds if fault.kind != "delay" else None
            endless = lasts is not None and fault.count is None
            self._left.append(math.inf if endless else (1 if fault.count is None else fault.count))
            self._ends_at.append(math.inf if lasts is None else now + lasts)

    def next_for(self, method: str, now: float) -> Fault | None:
        for index, fault in enumerate(self._faults):
            if fault.method in ("*", method) and self._left[index] > 0 and now < self._ends_at[index]:
                self._left[index] -= 1
                return fault
        return None
