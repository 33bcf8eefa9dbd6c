"""Comparisons with the past at equal load: which past windows count, and which cannot be compared."""

from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.signals.comparison import Era, compare, comparison_fault
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import ComparedSignal, MetricSignal, RatioSignal
from bot.domain.signals.window import Window

pytestmark = pytest.mark.fast

MINUTE = 60.0
NOW = 36_000.0
RUNNING = MetricSignal(metric="num_requests_running", over="1m", take="avg", across="sum")


def minutes(*of_each: tuple[float, float], replica: str = "a", until: float = NOW) -> list[Scrape]:
    """Minute by minute up to now: how many requests arrived per second, and how many ran."""
    scrapes, finished = [], 0.0
    start = until - len(of_each) * MINUTE
    for minute, (arrivals, running) in enumerate(of_each):
        for tenth in range(6):
            finished += arrivals * 10
            values = {"num_requests_running": running, "num_requests_waiting": 0.0}
            # What arrived is what finished and what now runs: the counter makes up for a change in what runs.
            values["request_success"] = finished - running
            at = start + minute * MINUTE + tenth * 10 + 5
            scrapes.append(Scrape(replica=replica, uid=replica, at=at, ranks={"0": values}))
    return scrapes


def compared(scrapes: Sequence[Scrape], *, past_minutes: int = 8, **spec: Any) -> Reading:
    wanted = ComparedSignal(**{"compared": RUNNING, **spec})
    now = Window(NOW - MINUTE, NOW)
    past = Window(now.start - past_minutes * MINUTE, now.start)
    return compare("it", wanted, now=Era(now, scrapes), past=Era(past, scrapes), picked={})


BUSY, QUIET, WORSE = (10.0, 8.0), (2.0, 1.0), (10.0, 4.0)


def test_only_the_windows_at_similar_load_are_compared_with() -> None:
    reading = compared(minutes(QUIET, BUSY, QUIET, BUSY, QUIET, QUIET, WORSE))
    assert reading.value == pytest.approx(0.5)
    assert reading.unit == "ratio"
    assert reading.detail.startswith("4 now, 8 then: the median of 2 windows at similar load")


def test_one_odd_window_does_not_move_the_past() -> None:
    odd = (10.0, 80.0)
    assert compared(minutes(BUSY, odd, BUSY, BUSY, WORSE)).value == pytest.approx(0.5)


@pytest.mark.parametrize(("within", "is_known"), [(0.2, False), (0.5, True)])
def test_how_similar_the_load_must_be_can_be_set(within: float, is_known: bool) -> None:
    assert compared(minutes((7.0, 8.0), (7.0, 8.0), WORSE), load_within=within).is_known is is_known


def test_without_such_a_load_in_the_past_it_is_unknown_and_says_what_there_was() -> None:
    reading = compared(minutes(QUIET, QUIET, (4.0, 2.0), WORSE))
    assert reading.value is None
    assert reading.unknown == "no such load in the 8 min to compare with: 8 to 12 requests/s, seen 2 to 4"


@pytest.mark.parametrize(
    ("scrapes", "reason"),
    [
        pytest.param(minutes(WORSE), "no history of the 8 min to compare with", id="no-past"),
        pytest.param(minutes(BUSY, BUSY, until=NOW - MINUTE), "now: no replica was scraped", id="no-present"),
        pytest.param(minutes(BUSY, (0.0, 8.0)), "there is no load to compare at", id="no-load"),
        pytest.param(minutes((10.0, 0.0), (10.0, 0.0), WORSE), "it was 0 at similar load", id="zero-then"),
    ],
)
def test_what_cannot_be_compared_is_unknown_with_its_reason(scrapes: list[Scrape], reason: str) -> None:
    reading = compared(scrapes)
    assert reading.value is None
    assert reason in reading.unknown


def test_a_reading_that_is_zero_now_is_none_of_what_it_was() -> None:
    assert compared(minutes(BUSY, BUSY, (10.0, 0.0))).value == 0.0


def test_load_is_of_the_whole_workload_and_so_are_replicas_that_are_gone() -> None:
    before = minutes((5.0, 4.0), (5.0, 4.0), replica="a", until=NOW - MINUTE)
    before += minutes((5.0, 4.0), (5.0, 4.0), replica="b", until=NOW - MINUTE)
    reading = compared([*before, *minutes(WORSE, replica="c")])
    assert reading.value == pytest.approx(0.5)


def test_it_says_what_was_compared_with_what() -> None:
    asked = compared(minutes(BUSY, WORSE), ending="incident.starts_at").query
    assert asked == (
        "avg of num_requests_running over 60 s, sum across replicas, "
        "per the same in the 8 min ending at incident.starts_at at arrivals within ±20%"
    )


@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        (RUNNING, ""),
        (RUNNING.model_copy(update={"across": "each"}), "not each"),
        (RUNNING.model_copy(update={"ending": "incident.starts_at"}), "what is compared ends now"),
        (RatioSignal(ratio=("nothing", "request_success")), "nothing"),
    ],
)
def test_what_can_never_be_compared_says_why(inner: MetricSignal, fault: str) -> None:
    found = comparison_fault(ComparedSignal(compared=inner))
    assert fault in found
    assert bool(found) is bool(fault)
