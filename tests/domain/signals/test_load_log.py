"""A day of load in small points: the point of each slot, and the result of a window of yesterday."""

import pytest

from bot.domain.signals.load_log import SLOT_SECONDS, LoadPoint, last_slot, load_of, load_point
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.window import Window

pytestmark = pytest.mark.fast

SLOT = Window(900.0, 1200.0)


def samples(window: Window, per_second: float, prompt: float) -> list[Scrape]:
    found = []
    for step in range(int(window.seconds // 10) + 1):
        count = 10 * step * per_second
        values = {"request_success": count, "num_requests_running": 0.0, "num_requests_waiting": 0.0}
        lengths = {
            "request_prompt_tokens": Histogram(sum=count * prompt, count=count),
            "request_generation_tokens": Histogram(sum=count * 50, count=count),
        }
        found.append(Scrape(replica="a", at=window.start + 10 * step, ranks={"0": values}, histograms={"0": lengths}))
    return found


def test_a_slot_is_the_same_five_minutes_whoever_looks() -> None:
    assert [last_slot(now) for now in (1200.0, 1499.9)] == [SLOT, SLOT]
    assert last_slot(1500.0).start == 1200.0


def test_a_point_keeps_arrivals_lengths_and_how_many_finished() -> None:
    point = load_point(samples(SLOT, 2, 100), SLOT)
    assert point == LoadPoint(start=900.0, arrivals=2.0, finished=600.0, prompt=100.0, output=50.0)


def test_an_idle_slot_has_no_lengths_and_a_slot_without_samples_no_point() -> None:
    assert load_point(samples(SLOT, 0, 0), SLOT) == LoadPoint(start=900.0, arrivals=0.0)
    assert load_point([], SLOT) is None


def points(*arrivals: float, start: float = 0.0) -> list[LoadPoint]:
    return [
        LoadPoint(start=start + index * SLOT_SECONDS, arrivals=each, finished=each * 300, prompt=100 * each, output=50)
        for index, each in enumerate(arrivals)
    ]


def test_a_window_weighs_its_slots_by_their_share_and_lengths_by_what_finished() -> None:
    load = load_of(points(1, 3), Window(0, 600), since=0.0)
    assert load["arrivals"].value == pytest.approx(2)
    assert load["prompt"].value == pytest.approx((100 * 300 + 300 * 900) / 1200)
    assert load_of(points(1, 3), Window(150, 450), since=0.0)["arrivals"].value == pytest.approx(2)
    assert load_of(points(1, 3), Window(0, 400), since=0.0)["arrivals"].value == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("window", "since", "reason"),
    [
        pytest.param(Window(0, 600), None, "add it to sampling.workloads", id="never-sampled"),
        pytest.param(Window(0, 6000), 0.0, "have gaps", id="gaps"),
        pytest.param(
            Window(-3600, 600),
            0.0,
            "kept since 1970-01-01 00:00 UTC, so this is known from 1970-01-02 01:10 UTC",
            id="young",
        ),
    ],
)
def test_a_window_that_points_do_not_cover_is_unknown_and_says_since_when_it_will_be_known(
    window: Window, since: float | None, reason: str
) -> None:
    load = load_of(points(1, 3) if since is not None else [], window, since=since)
    assert set(load) == {"arrivals", "prompt", "output"}
    assert all(reason in reading.unknown for reading in load.values())
