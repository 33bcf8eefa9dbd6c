"""One dependency that has stopped answering is not waited for again and again: questions to it fail at once.

Now and then one question goes through as a trial; the first answer closes the circuit. What was not asked is unknown,
never healthy, and what was not sent has certainly not happened.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import structlog

from bot.domain.kernel.errors import CircuitOpenError

log = structlog.get_logger()
OPENS_AFTER = 3
"""Questions in a row that nobody answered."""
SLOW_SECONDS = 2.5
"""A question that ends without an answer sooner than this has not stalled anybody: a refused connection does not."""
TRIAL_EVERY_SECONDS = 5.0


class Circuit:
    """`name` is what people read: `the Kubernetes API`. `elapsed` measures waits, `now` tells the time of day."""

    def __init__(
        self,
        name: str,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name, self._elapsed, self._now = name, elapsed, now
        self._unanswered = 0
        self._answered_at = float("-inf")
        self._silent_since = 0.0
        self._tried_at = float("-inf")
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    @contextlib.contextmanager
    def asking(self, *, insists: bool = False, counts: bool = True) -> Iterator[None]:
        """Around one question: an answer, also a refusal, leaves the block normally. Raise `CircuitOpenError`.

        `insists`: ask even if nobody has answered lately. `counts`: False where the dependency passes the question on,
        and a time-out says nothing about itself.
        """
        began, asked_at = self._elapsed(), self._now()
        if self._is_open and not insists:
            self._admit(began, may_try=counts)
        try:
            yield
        except BaseException:
            # Also a caller that gave up: its own deadline is often the shorter one.
            if counts and self._elapsed() - began >= SLOW_SECONDS:
                self._nobody_answered(began, asked_at)
            raise
        self._answered()

    def _admit(self, began: float, *, may_try: bool) -> None:
        if not may_try or began - self._tried_at < TRIAL_EVERY_SECONDS:
            since = datetime.fromtimestamp(self._silent_since, UTC)
            raise CircuitOpenError(f"{self.name} has not answered since {since:%H:%M} UTC")
        self._tried_at = began

    def _answered(self) -> None:
        self._unanswered, self._answered_at = 0, self._elapsed()
        if self._is_open:
            self._is_open = False
            log.info("circuit.closed", dependency=self.name)

    def _nobody_answered(self, began: float, asked_at: float) -> None:
        if began < self._answered_at:
            return  # one slow question among others that were answered
        self._unanswered += 1
        if self._unanswered == 1:
            self._silent_since = asked_at
        if self._unanswered >= OPENS_AFTER and not self._is_open:
            self._is_open, self._tried_at = True, self._elapsed()
            log.warning("circuit.opened", dependency=self.name)
