"""Circuit breaker for one dependency: once it has stopped answering, requests to it fail at once.

From time to time one request goes through as a trial; the first answer closes the circuit. A request that was not sent
has certainly not taken effect, and its answer is unknown, never healthy.
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
"""Consecutive requests without an answer."""
SLOW_SECONDS = 2.5
"""A request that fails faster than this, such as a refused connection, has not blocked any caller."""
TRIAL_EVERY_SECONDS = 5.0


class Circuit:
    """`name` is shown to people: `the Kubernetes API`. `elapsed` measures waits, `now` returns the time of day."""

    def __init__(
        self,
        name: str,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name, self._elapsed, self._now = name, elapsed, now
        self._unanswered = 0
        self._failed = 0
        self._answered_at = float("-inf")
        self._silent_since = 0.0
        self._tried_at = float("-inf")
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def is_silent(self) -> bool:
        """Whether the last requests had no answer: also where each fails at once and none has to be kept back."""
        return self._is_open or self._failed >= OPENS_AFTER

    @contextlib.contextmanager
    def asking(self, *, insists: bool = False, counts: bool = True) -> Iterator[None]:
        """Wraps one request. An answer, even a refusal, leaves the block normally. Raises `CircuitOpenError`.

        `insists`: send the request even if the circuit is open. `counts`: False if the dependency passes the request
        on, so that a time-out proves nothing about the dependency itself.
        """
        began, asked_at = self._elapsed(), self._now()
        if self._is_open and not insists:
            self._admit(began, may_try=counts)
        try:
            yield
        except BaseException as error:
            # This includes a caller that gave up: its own deadline is often the shorter one.
            is_slow = self._elapsed() - began >= SLOW_SECONDS
            if counts and began >= self._answered_at:  # else it is one slow request among others that were answered
                self._failed += is_slow or isinstance(error, Exception)
                if is_slow:
                    self._nobody_answered(asked_at)
            raise
        self._answered()

    def _admit(self, began: float, *, may_try: bool) -> None:
        if not may_try or began - self._tried_at < TRIAL_EVERY_SECONDS:
            since = datetime.fromtimestamp(self._silent_since, UTC)
            raise CircuitOpenError(f"{self.name} has not answered since {since:%H:%M} UTC")
        self._tried_at = began

    def _answered(self) -> None:
        self._unanswered, self._failed, self._answered_at = 0, 0, self._elapsed()
        if self._is_open:
            self._is_open = False
            log.info("circuit.closed", dependency=self.name)

    def _nobody_answered(self, asked_at: float) -> None:
        self._unanswered += 1
        if self._unanswered == 1:
            self._silent_since = asked_at
        if self._unanswered >= OPENS_AFTER and not self._is_open:
            self._is_open, self._tried_at = True, self._elapsed()
            log.warning("circuit.opened", dependency=self.name)
