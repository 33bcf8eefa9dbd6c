"""Circuit breaker for one dependency: once it has stopped answering, requests to it fail at once.

From time to time one request goes through as a trial; the first answer closes the circuit. A request that was not sent
has certainly not taken effect, and its answer is unknown, never healthy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from bot.domain.kernel.errors import CircuitOpenError

log = structlog.get_logger()
OPENS_AFTER = 3
"""Consecutive requests without an answer."""
SLOW_SECONDS = 2.5
"""A request that fails faster than this, such as a refused connection, has not blocked any caller."""
TRIAL_EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class BackOff:
    """When a circuit opens, and how the time from one trial to the next grows."""

    slow_seconds: float = SLOW_SECONDS
    first_seconds: float = TRIAL_EVERY_SECONDS
    max_seconds: float = TRIAL_EVERY_SECONDS
    """Doubled after each trial that fails, up to this."""
    trial_seconds: float = 0.0
    """A trial that has not ended for so long is no longer waited for."""


class Circuit:
    """`name` is shown to people: `the Kubernetes API`. `elapsed` measures waits, `now` returns the time of day."""

    def __init__(
        self,
        name: str,
        back_off: BackOff = BackOff(),
        *,
        elapsed: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name, self._back_off, self._elapsed, self._now = name, back_off, elapsed, now
        self._unanswered = 0
        self._failed = 0
        self._answered_at = float("-inf")
        self._silent_since = 0.0
        self._trial_at = float("-inf")
        self._trying_since: float | None = None
        self._rest_seconds = back_off.first_seconds
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def is_silent(self) -> bool:
        """Whether the last requests had no answer: also where each fails at once and none has to be kept back."""
        return self._is_open or self._failed >= OPENS_AFTER

    @property
    def reason(self) -> str:
        """Since when the dependency has not answered, while the circuit is open; else empty."""
        since = datetime.fromtimestamp(self._silent_since, UTC)
        return f"{self.name} has not answered since {since:%H:%M} UTC" if self._is_open else ""

    def must_try(self) -> None:
        """Raise `CircuitOpenError` if a request would not be sent now: before work that only a request needs."""
        self._must_try(self._elapsed())

    @contextlib.contextmanager
    def asking(self, *, insists: bool = False, counts: bool = True) -> Iterator[None]:
        """Wraps one request. An answer, even a refusal, leaves the block normally. Raises `CircuitOpenError`.

        `insists`: send the request even if the circuit is open. `counts`: False if the dependency passes the request
        on, so that a time-out proves nothing about the dependency itself.
        """
        began, asked_at = self._elapsed(), self._now()
        is_trial = self._is_open and not insists
        if is_trial:
            self._admit(began, may_try=counts)
        try:
            yield
        except BaseException as error:
            # This includes a caller that gave up: its own deadline is often the shorter one.
            is_slow = self._elapsed() - began >= self._back_off.slow_seconds
            if counts and began >= self._answered_at:  # else it is one slow request among others that were answered
                self._failed += is_slow or isinstance(error, Exception)
                if is_slow:
                    self._nobody_answered(asked_at)
                if is_trial:
                    self._rest_longer(began)
            raise
        finally:
            if is_trial:
                self._trying_since = None
        self._answered()

    def _admit(self, began: float, *, may_try: bool) -> None:
        self._must_try(began, may_try=may_try)
        self._trial_at = began + max(self._rest_seconds, self._back_off.trial_seconds)
        self._trying_since = began

    def _must_try(self, at: float, *, may_try: bool = True) -> None:
        if self._is_open and (not may_try or at < self._trial_at):
            raise CircuitOpenError(self.reason, retry_after_seconds=self._rest_from(at))

    def _rest_from(self, at: float) -> float:
        """Until the next trial. One under way may be answered soon, and what waits is not to wait for another one."""
        rest = max(self._trial_at - at, 0.0)
        if self._trying_since is None:
            return rest
        return min(rest, max(self._back_off.first_seconds, at - self._trying_since))

    def _rest_longer(self, began: float) -> None:
        self._rest_seconds = min(2 * self._rest_seconds, self._back_off.max_seconds)
        self._trial_at = began + self._rest_seconds

    def _answered(self) -> None:
        self._unanswered, self._failed, self._answered_at = 0, 0, self._elapsed()
        self._rest_seconds = self._back_off.first_seconds
        if self._is_open:
            self._is_open = False
            log.info("circuit.closed", dependency=self.name)

    def _nobody_answered(self, asked_at: float) -> None:
        self._unanswered += 1
        if self._unanswered == 1:
            self._silent_since = asked_at
        if self._unanswered >= OPENS_AFTER and not self._is_open:
            self._is_open, self._trial_at = True, self._elapsed() + self._rest_seconds
            log.warning("circuit.opened", dependency=self.name)
