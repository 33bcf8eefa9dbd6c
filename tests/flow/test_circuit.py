"""A dependency that has stopped answering costs one long wait, not one per call."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from bot.domain.kernel.errors import CircuitOpenError
from bot.flow.circuit import OPENS_AFTER, SLOW_SECONDS, TRIAL_EVERY_SECONDS, BackOff, Circuit

pytestmark = pytest.mark.fast
AT_1308 = 1_800_018_480.0


class Dependency:
    """Answers, or keeps a question for some seconds of its own clock and then raises."""

    def __init__(self, back_off: BackOff | None = None) -> None:
        self.at = 0.0
        self.asked = 0
        self.circuit = Circuit("the API", back_off or BackOff(), elapsed=lambda: self.at, now=lambda: AT_1308 + self.at)

    def ask(self, error: BaseException | None = None, *, seconds: float = 10.0, **how: bool) -> None:
        with self.circuit.asking(**how):
            self.asked += 1
            self.at += seconds
            if error is not None:
                raise error

    def times_out(self, times: int = 1, **how: bool) -> None:
        for _ in range(times):
            with pytest.raises(TimeoutError):
                self.ask(TimeoutError(), **how)

    def silent(self) -> Dependency:
        self.times_out(OPENS_AFTER)
        self.asked = 0
        return self


@pytest.fixture
def dependency() -> Dependency:
    return Dependency()


def test_after_some_unanswered_questions_the_next_fails_at_once_and_says_since_when(dependency: Dependency) -> None:
    dependency.silent()
    with pytest.raises(CircuitOpenError, match="the API has not answered since 13:08 UTC"):
        dependency.ask()
    assert dependency.asked == 0


def test_an_answer_in_between_begins_the_count_again(dependency: Dependency) -> None:
    dependency.times_out(OPENS_AFTER - 1)
    dependency.ask()
    dependency.times_out(OPENS_AFTER - 1)
    assert not dependency.circuit.is_open


def test_a_caller_that_gives_up_first_counts_as_unanswered(dependency: Dependency) -> None:
    for _ in range(OPENS_AFTER):
        with pytest.raises(asyncio.CancelledError):
            dependency.ask(asyncio.CancelledError(), seconds=SLOW_SECONDS)
    assert dependency.circuit.is_open


def test_what_is_refused_at_once_stalls_nobody_and_does_not_count(dependency: Dependency) -> None:
    for _ in range(2 * OPENS_AFTER):
        with pytest.raises(ConnectionRefusedError):
            dependency.ask(ConnectionRefusedError(), seconds=0.1)
    assert not dependency.circuit.is_open


def test_a_dependency_that_refuses_connections_is_silent_too(dependency: Dependency) -> None:
    for _ in range(OPENS_AFTER):
        assert not dependency.circuit.is_silent
        with pytest.raises(ConnectionRefusedError):
            dependency.ask(ConnectionRefusedError(), seconds=0)
    assert dependency.circuit.is_silent
    dependency.ask()
    assert not dependency.circuit.is_silent


def test_callers_that_give_up_at_once_say_nothing_about_the_dependency(dependency: Dependency) -> None:
    for _ in range(OPENS_AFTER):
        with pytest.raises(asyncio.CancelledError):
            dependency.ask(asyncio.CancelledError(), seconds=0)
    assert not dependency.circuit.is_silent


def test_slow_questions_beside_answered_ones_do_not_count(dependency: Dependency) -> None:
    def slow_beside_a_quick_one() -> None:
        with dependency.circuit.asking():
            dependency.at += 5.0
            dependency.ask(seconds=1.0)
            dependency.at += 5.0
            raise TimeoutError

    for _ in range(2 * OPENS_AFTER):
        with pytest.raises(TimeoutError):
            slow_beside_a_quick_one()
    assert not dependency.circuit.is_open


def test_now_and_then_one_question_is_a_trial_and_an_answer_closes(dependency: Dependency) -> None:
    dependency.silent()
    dependency.at += TRIAL_EVERY_SECONDS
    with pytest.raises(TimeoutError):
        dependency.ask(TimeoutError(), seconds=1.0)
    with pytest.raises(CircuitOpenError, match="13:08"):
        dependency.ask()
    dependency.at += TRIAL_EVERY_SECONDS
    dependency.ask()
    assert not dependency.circuit.is_open
    dependency.ask()


def test_while_a_trial_is_under_way_the_others_fail_at_once(dependency: Dependency) -> None:
    dependency.silent()
    dependency.at += TRIAL_EVERY_SECONDS
    with dependency.circuit.asking(), pytest.raises(CircuitOpenError):
        dependency.ask()


def test_what_comes_while_a_trial_is_under_way_need_not_wait_for_the_next_one() -> None:
    dependency = Dependency(BackOff(first_seconds=1.0, max_seconds=8.0, trial_seconds=10.0)).silent()
    dependency.at += 1.0
    with dependency.circuit.asking():
        assert retry_after(dependency) == 1.0
        dependency.at += 4.0
        assert retry_after(dependency) == 4.0
        dependency.at += 5.0
        assert retry_after(dependency) == 1.0, "then it is no longer waited for"
    dependency.ask()


def test_after_a_trial_without_an_answer_all_wait_for_the_next_one() -> None:
    dependency = Dependency(BackOff(first_seconds=1.0, max_seconds=8.0, trial_seconds=10.0)).silent()
    dependency.at += 1.0
    with pytest.raises(TimeoutError):
        dependency.ask(TimeoutError(), seconds=0.5)
    assert retry_after(dependency) == 1.5


def retry_after(dependency: Dependency) -> float:
    with pytest.raises(CircuitOpenError) as refused:
        dependency.ask()
    return refused.value.retry_after_seconds


def test_who_insists_is_let_through_and_an_answer_closes(dependency: Dependency) -> None:
    dependency.silent()
    dependency.ask(insists=True)
    assert not dependency.circuit.is_open


def test_what_is_only_passed_on_neither_opens_nor_tries_but_an_answer_closes(dependency: Dependency) -> None:
    dependency.times_out(2 * OPENS_AFTER, counts=False)
    assert not dependency.circuit.is_open
    dependency.silent()
    dependency.at += TRIAL_EVERY_SECONDS
    with pytest.raises(CircuitOpenError):
        dependency.ask(counts=False)
    dependency.ask(insists=True, counts=False)
    assert not dependency.circuit.is_open


def test_opening_and_closing_are_facts(dependency: Dependency) -> None:
    with capture_logs() as logs:
        dependency.silent()
        dependency.ask(insists=True)
    assert [(one["event"], one["dependency"]) for one in logs] == [
        ("circuit.opened", "the API"),
        ("circuit.closed", "the API"),
    ]
